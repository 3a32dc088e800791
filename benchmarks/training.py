"""What a round gives away at the checkpoints of a training run.

    python -m benchmarks.training --data-dir DIR [--out docs/training-table.md] [--run run]

Trains a perceptron of 1,000 neurons on MNIST with Adam, from PyTorch's default start, in float32
and on batches of 32, and audits it after 0, 10, 50 and 200 steps on batches that it was not trained
on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

import gradpeel as gp
from gradpeel.datasets import Dataset, load
from gradpeel.files import write_files

STEPS = (0, 10, 50, 200)
BATCH_SIZE, NEURONS, REPEATS = 32, 1000, 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/training-table.md"))
    parser.add_argument("--run", type=Path, help="also keep the checkpoints in this folder")
    given = parser.parse_args()
    data = load("mnist", data_dir=given.data_dir)
    model, states = train(data, STEPS)
    if given.run is not None:
        files = {f"step-{step:03}.safetensors": save(state) for step, state in states.items()}
        write_files(given.run, files)
    curve = gp.audit_checkpoints(
        model,
        states,
        data.x_test,
        data.y_test,
        batch_size=BATCH_SIZE,
        repeats=REPEATS,
        on_audit=lambda found: print(found, flush=True),
    )
    text = table(curve)
    write_files(given.out.parent, {given.out.name: text.encode()})[0].chmod(0o644)
    print(text)


def train(data: Dataset, steps: tuple[int, ...]) -> tuple[nn.Module, dict[int, dict[str, Tensor]]]:
    """A network, and its weights at some steps of its training."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(data.features, NEURONS),
        nn.ReLU(),
        nn.Linear(NEURONS, data.classes),
    )
    adam = torch.optim.Adam(model.parameters())
    x, y = torch.from_numpy(data.x_train).float(), torch.from_numpy(data.y_train)
    states = {}
    for step in range(max(steps) + 1):
        if step in steps:
            states[step] = {name: value.clone() for name, value in model.state_dict().items()}
        chosen = torch.randint(len(x), (BATCH_SIZE,))
        adam.zero_grad()
        loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    return model, states


def table(curve: gp.TrainingCurve) -> str:
    """The page: one row per checkpoint."""
    setting = (
        f"MNIST, {NEURONS:,} neurons, PyTorch's default start, float32. Trained by Adam with its "
        f"default settings on batches of {BATCH_SIZE}. {REPEATS} batches of {BATCH_SIZE} samples "
        "that the network was not trained on, the same at every step: median (least to most)."
    )
    head = (
        "Adam steps",
        "readable",
        "recovered with proof",
        "peeling bound",
        "shown to have taken part",
        "false certificates",
    )
    lines = ["# Leakage over training: table", "", setting, "", f"| {' | '.join(head)} |"]
    lines.append(f"|{' ---: |' * len(head)}")
    for step, found in zip(curve.steps, curve.at, strict=True):
        cells = [
            str(step),
            _cell([one.score.read for one in found]),
            _cell([one.score.recovered for one in found]),
            _cell([round(one.score.peeling_bound * BATCH_SIZE) for one in found]),
            _cell([one.membership.count("in") for one in found]),
            str(found.false_certificates),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(counts: list[int]) -> str:
    low, middle, high = min(counts), sorted(counts)[len(counts) // 2], max(counts)
    return str(middle) if low == high else f"{middle} ({low} to {high})"


if __name__ == "__main__":
    main()
