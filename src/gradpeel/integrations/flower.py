"""Flower: a client that checks its own updates, and a strategy that audits a simulation.

    from flwr.clientapp import ClientApp
    from gradpeel.integrations.flower import leakage_mod

    mod = leakage_mod(make_model, batch_fn, policy="refuse", client=gp.Client(lr=0.1))
    app = ClientApp(mods=[mod])

Flower calls the first mod first and gives it the reply last. Registered first, it sees the update
that leaves, after any other mod has clipped it or added noise to it.

The strategy reads what any honest but curious server could read of each reply. It writes no
samples and changes nothing: what clients receive and what is aggregated are the same without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from torch import Tensor, nn

from gradpeel.checking import Budget
from gradpeel.client import Client
from gradpeel.coercion import Samples, Targets
from gradpeel.errors import InputError
from gradpeel.integrations.outgoing import (
    WITHHELD,
    Outgoing,
    Policy,
    WithheldError,
    check_policy,
)
from gradpeel.integrations.replies import Reading, Reply, read_reply, replies_table

try:
    from flwr.app import (
        ArrayRecord,
        ConfigRecord,
        Context,
        Error,
        Message,
        MessageType,
        MetricRecord,
    )
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
except ImportError as error:
    raise ImportError(
        f"{__name__}: expected Flower installed: pip install 'gradpeel[flower]'"
    ) from error

__all__ = ["AuditedStrategy", "leakage_mod"]

# Flower's own handlers show it, on the client alone.
_LOG = logging.getLogger("flwr.gradpeel")


def leakage_mod(
    make_model: Callable[[], nn.Module],
    batch_fn: Callable[[Context], tuple[Samples, Targets]],
    *,
    policy: Policy | Callable[[Context], Policy] = "log",
    budget: Budget = Budget(),  # noqa: B008 - immutable
    client: Client,
) -> Callable[[Message, Context, Callable[[Message, Context], Message]], Message]:
    """Make a client mod that checks the weights of every training reply before they leave.

    It compares the weights that came with those that would go, so it works with any training code
    that uses plain SGD. Other messages than those of training pass unchecked, and so do the metrics
    of a reply.

    It fails closed: where the update cannot be checked, for whatever reason, nothing is sent. The
    server learns only that nothing is sent; the reasons are logged on the client.

    Args:
        make_model: makes the network whose weights are exchanged, in the mode in which it is
            trained.
        batch_fn: gives the samples and labels that the client trained on in this round. Flower
            shows a mod weights, never the data.
        policy: what to do about an update that exceeds the budget: "log" or "warn" of it and send
            it, "guard" it and send what is left if that holds the budget, or "refuse" to send it.
            A function is called for every message, for example to read `context.run_config`.
        budget: how much an update may give away.
        client: how the client is trained: its learning rate, steps, momentum and weight decay.

    Returns:
        The mod, for `flwr.clientapp.ClientApp(mods=[...])`; put it first.

    Raises:
        InputError: there is no such policy, or the client has no learning rate.
    """
    if not callable(policy):
        check_policy(policy)
    watch = Outgoing(make_model=make_model, client=client, budget=budget)

    def mod(
        msg: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        if msg.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return call_next(msg, context)
        try:
            # The training may change what came with the message, so it is copied first.
            before = _weights(msg)[1]
        except Exception:  # noqa: BLE001 -- whatever went wrong, nothing may leave
            return _withhold(msg)
        reply = call_next(msg, context)
        if reply.has_error():
            return reply
        try:
            key, after = _weights(reply)
            chosen = policy(context) if callable(policy) else policy
            decision = watch.decide(before, after, *batch_fn(context), policy=chosen)
        except WithheldError as reason:
            _LOG.warning("%s", reason)
            return Message(_error(), reply_to=msg)
        except Exception:  # noqa: BLE001 -- as above
            return _withhold(msg)
        level = logging.INFO if chosen == "log" or not decision.breaches else logging.WARNING
        _LOG.log(level, "%s", decision)
        if decision.weights is not None:
            reply.content[key] = ArrayRecord(decision.weights)
        return reply

    return mod


def _weights(message: Message) -> tuple[str, dict[str, Tensor]]:
    """The key of a message's only array record, and what it holds, copied."""
    records = message.content.array_records
    if len(records) != 1:
        raise InputError(f"message with {len(records)} array records: expected one, the weights")
    ((key, record),) = records.items()
    return key, dict(record.to_torch_state_dict())


def _withhold(msg: Message) -> Message:
    """The reply where the check failed: called while the exception is handled."""
    _LOG.exception("the update could not be checked, so it is withheld")
    return Message(_error(), reply_to=msg)


def _error() -> Error:
    return Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=WITHHELD)


class AuditedStrategy(Strategy):
    """A strategy that also records what can be read of each reply. For simulations.

    It sees what every server sees. Recovered samples are counted and forgotten.

    Args:
        strategy: any strategy of `flwr.serverapp.strategy`; it does all the work.
        make_model: makes the network whose weights are exchanged.
        client: how clients train, as far as the server knows.
        samples_key: name of the metric in which clients state their number of samples.

    Raises:
        InputError: the client has no learning rate.
    """

    def __init__(
        self,
        strategy: Strategy,
        make_model: Callable[[], nn.Module],
        *,
        client: Client,
        samples_key: str = "num-examples",
    ) -> None:
        # Both sides state the same things, and the same is wrong with them.
        Outgoing(make_model=make_model, client=client)
        self.strategy = strategy
        self.replies: list[Reply] = []
        self._make_model = make_model
        self._client = client
        self._samples_key = samples_key
        self._sent: dict[int, Message] = {}

    def report(self) -> str:
        """What was read of each reply so far: a table in Markdown."""
        return replies_table(self.replies)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """What the strategy sends, and a note of it."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._sent = {message.metadata.dst_node_id: message for message in messages}
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Read each reply, then let the strategy aggregate them."""
        received = list(replies)
        self.replies += [self._read(server_round, reply) for reply in received]
        return self.strategy.aggregate_train(server_round, received)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """What the strategy sends."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """What the strategy makes of it."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log what the strategy says of itself."""
        self.strategy.summary()

    def _read(self, server_round: int, reply: Message) -> Reply:
        node = reply.metadata.src_node_id
        if reply.has_error():
            return Reply(server_round, str(node), None)
        metrics = (
            record.get(self._samples_key) for record in reply.content.metric_records.values()
        )
        samples = next((int(value) for value in metrics if isinstance(value, int | float)), None)
        try:
            before, after = _weights(self._sent[node])[1], _weights(reply)[1]
        except InputError as error:
            return Reply(server_round, str(node), Reading(samples, failed=str(error)))
        reading = read_reply(
            self._make_model(), before, after, client=self._client, samples=samples
        )
        return Reply(server_round, str(node), reading)
