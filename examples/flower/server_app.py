"""The server of a simulation: FedAvg, and a report on what the server could read."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from task import CLIENT, make_model

from gradpeel.integrations.flower import AuditedStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    strategy = AuditedStrategy(FedAvg(fraction_evaluate=0.0), make_model, client=CLIENT)
    arrays = ArrayRecord(make_model().state_dict())
    strategy.start(grid, arrays, num_rounds=context.run_config["rounds"])
    print("What this server could read:\n" + strategy.report())
