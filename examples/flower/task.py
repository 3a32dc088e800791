"""What the clients and the server have in common: the network, the data, and the training."""

import torch
from flwr.app import Context
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.datasets import load

CLIENT = gp.Client(lr=0.1, local_steps=1)
SAMPLES = 8


def make_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))


def load_batch(context: Context) -> tuple[Tensor, Tensor]:
    """This client's samples: a different part of the digits for each client."""
    data, part = load("digits"), int(context.node_config["partition-id"])
    mine = slice(part * SAMPLES, (part + 1) * SAMPLES)
    return torch.tensor(data.x_train[mine], dtype=torch.float32), torch.tensor(data.y_train[mine])
