"""Four clients in a simulation of Flower, each with another policy: run as a script.

It prints one JSON object per client: what its reply was, and how many of its records the weights in
it give away. The server reads the same replies without ground truth.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor

from gradpeel.integrations.flower import AuditedStrategy, leakage_mod
from integrations.small_clients import CLIENT, load_batch, make_model, readable, train, trained

PARTS = ("log", "guard", "refuse", "broken")


def part_of(context: Any) -> int:
    """Which of the clients this is."""
    return int(context.node_config["partition-id"])


def policy(context: Any) -> Any:
    """What each client does about its leak; the last one would send it, if it could check it."""
    return "log" if PARTS[part_of(context)] == "broken" else PARTS[part_of(context)]


def batch(context: Any) -> tuple[Tensor, Tensor]:
    """What the check is given."""
    if PARTS[part_of(context)] == "broken":
        raise OSError("the data cannot be read a second time")
    return load_batch(part_of(context))


client_app = ClientApp(mods=[leakage_mod(make_model, batch, policy=policy, client=CLIENT)])
server_app = ServerApp()
received: list[Any] = []


@client_app.train()
def _train(msg: Message, context: Any) -> Message:
    model, (x, y) = make_model(), load_batch(part_of(context))
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    metrics = MetricRecord({"num-examples": len(x), "part": part_of(context)})
    arrays = ArrayRecord(train(model, x, y))
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)


class _Remembering(FedAvg):
    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        received.extend(replies)
        return super().aggregate_train(server_round, replies)


@server_app.main()
def _main(grid: Any, context: Any) -> None:
    plain = _Remembering(fraction_evaluate=0.0, min_train_nodes=len(PARTS))
    strategy = AuditedStrategy(plain, make_model, client=CLIENT)
    strategy.start(grid, ArrayRecord(trained().before), num_rounds=1)
    for reply, read in zip(received, strategy.replies, strict=True):
        found: dict[str, Any] = {"policy": None, "error": None, "readable": None, "certified": None}
        if reply.has_error():
            found["error"] = [reply.error.code, reply.error.reason, reply.has_content()]
        else:
            part = int(reply.content["metrics"]["part"])
            after = dict(reply.content["arrays"].to_torch_state_dict())
            reading = read.reading
            assert reading is not None
            found |= {"policy": PARTS[part], "readable": readable(after, part)}
            found |= {"certified": reading.certified, "failed": reading.failed}
        sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    small = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80_000_000}
    one = {"num_cpus": 1, "num_gpus": 0}
    run_simulation(
        server_app,
        client_app,
        num_supernodes=len(PARTS),
        backend_config={"init_args": small, "client_resources": one},
    )
