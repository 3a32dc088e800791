"""A client that trains on its own digits, and checks each update before it leaves."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from task import CLIENT, load_batch, make_model
from torch import nn, optim

from gradpeel.integrations.flower import leakage_mod

check = leakage_mod(
    make_model,
    load_batch,
    policy=lambda context: context.run_config["leakage-policy"],
    client=CLIENT,
)
app = ClientApp(mods=[check])  # the first mod, so that it sees what leaves


@app.train()
def train(msg: Message, context: Context) -> Message:
    model, (x, y) = make_model(), load_batch(context)
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    optimiser = optim.SGD(model.parameters(), lr=CLIENT.lr)
    for _ in range(CLIENT.local_steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    arrays, metrics = ArrayRecord(model.state_dict()), MetricRecord({"num-examples": len(x)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)
