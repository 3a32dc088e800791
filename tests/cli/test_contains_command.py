"""`gradpeel contains`, and weights before and after in the place of an update."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner, Result

import gradpeel as gp
from gradpeel.cli import main
from support import default_model, make_batch, make_model

CONTAINS = "contains update.safetensors --model model.safetensors --records records.npz"
STEP = "--before model.safetensors --after after.safetensors --lr 1 --local-steps 1"


def run(command: str) -> Result:
    return CliRunner().invoke(main, command.split())


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model, an update of 8 samples, the weights after one step, and 40 records."""
    monkeypatch.chdir(tmp_path)
    model = default_model(30, 200, 3)
    x, y = make_batch(30, 40, 3)
    gp.save_update(gp.local_update(model, x[:8], y[:8]), "update.safetensors")
    save_file(model.state_dict(), "model.safetensors")
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=1e-3)
    torch.autograd.backward(nn.functional.cross_entropy(model(x[:8].float()), y[:8]))
    optimiser.step()
    save_file(model.state_dict(), "after.safetensors")
    np.savez("records.npz", x=x.numpy(), y=y.numpy())
    np.savez("others.npz", x=make_batch(30, 50, 3, seed=5)[0].numpy())
    np.savez("pair.npz", a=x.numpy(), b=x.numpy())
    np.savez("text.npz", x=np.array(["a"]))
    np.savez("wide.npz", x=np.ones((3, 31)))


@pytest.mark.parametrize("given", [CONTAINS, f"contains {STEP} --records records.npz"])
def test_verdicts_as_json(given: str) -> None:
    finished = run(f"{given} --non-members others.npz --json")
    assert (finished.exit_code, finished.stderr) == (0, "")
    found = json.loads(finished.stdout)
    assert found["verdicts"] == ["in"] * 8 + ["out"] * 32
    assert (found["in"], found["out"], found["rank"]) == (8, 32, 8)
    assert (found["non_members"], found["false_positives"]) == (50, 0)
    assert len(found["distances"]) == len(found["errors"]) == 40


def test_records_are_compared_at_the_layer_that_is_named() -> None:
    model = make_model(30, 60, 3, (200,))
    x, y = make_batch(30, 40, 3)
    gp.save_update(gp.local_update(model, x[:8], y[:8]), "deep.safetensors")
    save_file(model.state_dict(), "deeper.safetensors")
    given = "contains deep.safetensors --model deeper.safetensors --records records.npz --layer 2"
    found = json.loads(run(f"{given} --json").stdout)
    assert (found["space"], found["layer"]) == ("features", "2")
    assert found["verdicts"] == ["in"] * 8 + ["out"] * 32
    assert "by the feature vectors that enter layer `2`" in run(given).stdout


def test_verdicts_in_words_and_in_a_file() -> None:
    finished = run(f"{CONTAINS} --out found.csv")
    assert finished.exit_code == 0
    assert "8 of 40 records took part in this update, 32 did not." in finished.stdout
    assert finished.stderr == "wrote found.csv: one line per record\n"
    with Path("found.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["verdict"] for line in lines] == ["in"] * 8 + ["out"] * 32
    assert run(f"{CONTAINS} --out found.csv").stderr == (
        "error: found.csv: exists: expected a new file\n"
    )


def test_a_difference_of_weights_is_decoded() -> None:
    finished = run(f"peel {STEP} --batch-size 8 --json")
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert json.loads(finished.stdout)["recovered"] == 8


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (CONTAINS.replace("records.npz", "none.npz"), "none.npz: no such file"),
        (CONTAINS.replace("records.npz", "pair.npz"), "pair.npz: holds a, b: choose one with --fi"),
        (f"{CONTAINS} --field z", "records.npz: z missing: it holds x, y"),
        (CONTAINS.replace("records.npz", "text.npz"), "text.npz: x of dtype <U1: expected numbers"),
        (CONTAINS.replace("records.npz", "wide.npz"), "records of shape (3, 31) enters the target"),
        (f"{CONTAINS} --max-false-positive-rate 2", "max_false_positive_rate=2.0: expected a numb"),
        (f"{CONTAINS} --after after.safetensors", "before, after: expected both or neither"),
        (f"{CONTAINS} --lr 0.1", "lr=0.1: expected only with --after"),
        ("contains --records records.npz", "expected UPDATE and --model, or --before and --after"),
        ("peel update.safetensors", "expected UPDATE and --model, or --before and --after"),
        (f"peel update.safetensors {STEP}", "after: expected --before, and neither UPDATE nor"),
        (f"peel {STEP.replace('after.s', 'model.s')}", "before, after: no weight has changed"),
        (f"peel {STEP.replace('--lr 1', '--lr -1')}", "lr=-1.0: expected a number above 0"),
    ],
)
def test_errors_take_one_line(command: str, message: str) -> None:
    finished = run(command)
    assert finished.exit_code == 2
    assert finished.stderr.startswith("error: ")
    assert message in finished.stderr
    assert finished.stderr.count("\n") == 1
