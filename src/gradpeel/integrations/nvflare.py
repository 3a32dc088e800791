"""NVFlare: a filter that checks the weights of a client's task result before they leave.

NVFlare makes filters from class names in a job's configuration, so give your own settings in a
class of your own:

    from gradpeel.integrations.nvflare import LeakageFilter

    class MyFilter(LeakageFilter):
        def __init__(self) -> None:
            super().__init__(make_model, batch_fn, policy="refuse", client=gp.Client(lr=0.1))

The client has to apply it to the training task twice: to the task's data, where it notes the
weights that arrive and changes nothing, and to the task's result, as the last filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from gradpeel.checking import Budget
from gradpeel.client import Client
from gradpeel.coercion import Samples, Targets
from gradpeel.errors import InputError
from gradpeel.integrations.outgoing import WITHHELD, Outgoing, Policy, check_policy

try:
    from nvflare.apis.dxo import DXO, DataKind, from_shareable
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.filter import ContentBlockedException, FilterChainType, FilterContextKey
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable, make_reply
except ImportError as error:
    raise ImportError(
        f"{__name__}: expected NVFlare installed: pip install 'gradpeel[nvflare]'"
    ) from error

__all__ = ["LeakageFilter"]

_RECEIVED = "gradpeel.received"
_KINDS = [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF]


class LeakageFilter(DXOFilter):
    """Checks weights, or differences of weights, before a client sends them.

    It fails closed: what is not a DXO of weights, or cannot be checked for whatever reason, is
    blocked. NVFlare's own `DXOFilter` lets payloads pass that are not a DXO. The server learns
    only that a filter failed; the reasons are logged on the client.

    Args:
        make_model: makes the network whose weights are exchanged, in the mode in which it is
            trained.
        batch_fn: gives the samples and labels that the client trained on in this round.
        policy: what to do about an update that exceeds the budget: "log" or "warn" of it and send
            it, "guard" it and send what is left if that holds the budget, or "refuse" to send it.
            A function is called for every result.
        budget: how much an update may give away.
        client: how the client is trained: its learning rate, steps, momentum and weight decay.

    Raises:
        InputError: there is no such policy, or the client has no learning rate.
    """

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        batch_fn: Callable[[FLContext], tuple[Samples, Targets]],
        *,
        policy: Policy | Callable[[FLContext], Policy] = "log",
        budget: Budget = Budget(),  # noqa: B008 - immutable
        client: Client,
    ) -> None:
        super().__init__(supported_data_kinds=_KINDS, data_kinds_to_filter=None)
        if not callable(policy):
            check_policy(policy)
        self._watch = Outgoing(make_model=make_model, client=client, budget=budget)
        self._batch_fn = batch_fn
        self._policy = policy

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Note the weights of a task, or check those of its result.

        Raises:
            ContentBlockedException: the result must not leave.
        """
        if self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_DATA_CHAIN:
            self._note(shareable, fl_ctx)
            return shareable
        if shareable.get_return_code() != ReturnCode.OK:
            # An error needs no payload.
            return make_reply(shareable.get_return_code())
        try:
            _weights_in(shareable)
        except Exception as error:  # noqa: BLE001 -- what is not understood may not leave
            self._block(fl_ctx, error)
        return super().process(shareable, fl_ctx)

    def process_dxo(
        self,
        dxo: DXO,
        shareable: Shareable,  # noqa: ARG002 -- NVFlare gives it to all filters
        fl_ctx: FLContext,
    ) -> DXO | None:
        """Check weights; None to send them as they are.

        Raises:
            ContentBlockedException: they must not leave.
        """
        try:
            return self._checked(dxo, fl_ctx)
        except Exception as error:  # noqa: BLE001 -- whatever went wrong, nothing may leave
            self._block(fl_ctx, error)

    def _checked(self, dxo: DXO, fl_ctx: FLContext) -> DXO | None:
        before: dict[str, Tensor] | None = fl_ctx.get_prop(_RECEIVED)
        if before is None:
            raise InputError("the weights that came are unknown: filter the task's data too")
        data = _tensors(dxo.data)
        is_difference = dxo.data_kind == DataKind.WEIGHT_DIFF
        after = _added(before, data) if is_difference else data
        policy = self._policy(fl_ctx) if callable(self._policy) else self._policy
        x, y = self._batch_fn(fl_ctx)
        decision = self._watch.decide(before, after, x, y, policy=policy)
        log = self.log_info if policy == "log" or not decision.breaches else self.log_warning
        log(fl_ctx, str(decision))
        if decision.weights is None:
            return None
        new = _added(decision.weights, before, sign=-1) if is_difference else decision.weights
        sent = {name: new[name].numpy() for name in dxo.data}
        return DXO(dxo.data_kind, data=sent, meta=dict(dxo.meta))

    def _note(self, shareable: Shareable, fl_ctx: FLContext) -> None:
        """Keep a copy of the weights that came. Where there are none, the result is blocked."""
        try:
            received = _tensors(_weights_in(shareable).data)
        except Exception as error:  # noqa: BLE001 -- a task may bring anything
            self.log_warning(fl_ctx, f"no weights in this task: {error}")
            received = None
        # Private: it stays on this machine. The runner makes a new context for every task.
        fl_ctx.set_prop(_RECEIVED, received, private=True, sticky=False)

    def _block(self, fl_ctx: FLContext, reason: Exception) -> NoReturn:
        self.log_warning(fl_ctx, f"the result is blocked: {type(reason).__name__}: {reason}")
        raise ContentBlockedException(WITHHELD) from None


def _weights_in(shareable: Shareable) -> DXO:
    """The weights that a task or its result brings."""
    dxo = from_shareable(shareable)
    if dxo.data_kind not in _KINDS or not dxo.data:
        raise InputError(f"data of kind {dxo.data_kind!r}: expected weights")
    return dxo


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Copies of NumPy arrays or tensors."""
    return {name: torch.as_tensor(array).detach().cpu().clone() for name, array in arrays.items()}


def _added(
    weights: Mapping[str, Tensor], others: Mapping[str, Tensor], *, sign: int = 1
) -> dict[str, Tensor]:
    """The sum of two sets of weights, or their difference, rounded once."""
    if weights.keys() != others.keys():
        odd = min(weights.keys() ^ others.keys())
        raise InputError(f"{odd!r}: expected the same weights as the client received")
    return {
        name: (one.double() + sign * others[name].double()).to(one.dtype)
        for name, one in weights.items()
    }
