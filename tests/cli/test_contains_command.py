"""`gradpeel contains`, and weights before and after in the place of an update."""

from __future__ import annotations

import csv
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
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


SEVERAL = "--before model.safetensors --after trained.safetensors"


@pytest.fixture
def trained() -> gp.Update:
    """What five steps with momentum and weight decay leave, as files and as the update itself."""
    model = default_model(30, 200, 3)
    x, y = make_batch(30, 40, 3)
    client = gp.Client(lr=0.05, local_steps=5, momentum=0.9, weight_decay=0.01)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    update = gp.local_update(model, x[:8], y[:8], client)
    for _ in range(5):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x[:8].float()), y[:8]))
        optimiser.step()
    save_file(model.state_dict(), "trained.safetensors")
    return update


@pytest.mark.parametrize("command", ["peel", "contains --records records.npz"])
@pytest.mark.slow
def test_momentum_and_weight_decay_are_undone(
    command: str, trained: gp.Update, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = command.split(maxsplit=1)[0]
    module = {"peel": "gradpeel.decoder", "contains": "gradpeel.membership"}[name]
    decode = getattr(import_module(module), name)
    seen: list[gp.Update] = []

    def watched(model: nn.Module, update: gp.Update, *rest: Any, **options: Any) -> Any:
        seen.append(update)
        return decode(model, update, *rest, **options)

    monkeypatch.setattr(import_module(module), name, watched)
    stated = f"{SEVERAL} --lr 0.05 --local-steps 5 --momentum 0.9 --weight-decay 0.01"
    assert run(f"{command} {stated} --json").exit_code == 0
    assert seen[0].training == trained.training
    for parameter, gradient in trained.gradients.items():
        # Up to the rounding of a weight, divided by the learning rate.
        torch.testing.assert_close(seen[0].gradients[parameter], gradient, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("difference.safetensors --model model.safetensors", "give the weights with --before and"),
        (f"{SEVERAL} --lr 0.05", "If there was only one, --local-steps 1 lets the decoder use"),
        (f"{SEVERAL} --lr 0.05 --local-steps 1", "If the client took several, give their number"),
        (f"{SEVERAL} --lr 0.05 --local-steps 5", "`gradpeel contains` may still tell whether"),
    ],
)
@pytest.mark.usefixtures("trained")
@pytest.mark.slow
def test_where_nothing_is_found_a_hint_names_the_options(options: str, words: str) -> None:
    before, after = load_file("model.safetensors"), load_file("trained.safetensors")
    differences = {name: before[name] - after[name] for name in before}
    save_file(differences, "difference.safetensors")
    finished = run(f"peel {options} --effort 0 --json")
    found = json.loads(finished.stdout)
    assert found["recovered"] == 0
    assert words in found["hint"]
    shown = " ".join(
        line.strip("│ ") for line in run(f"peel {options} --effort 0").stdout.split("\n")
    )
    assert words in " ".join(shown.split())


def test_where_something_is_found_there_is_no_hint() -> None:
    assert json.loads(run(f"peel {STEP} --batch-size 8 --json").stdout)["hint"] is None


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
        (f"{CONTAINS} --lr 0.1", "lr=0.1: a setting of local training: expected with --before"),
        (f"{CONTAINS} --lr 0", "lr=0.0: a setting of local training: expected with --before"),
        (f"{CONTAINS} --momentum 0.9", "momentum=0.9: a setting of local training: expected with"),
        (f"peel {STEP} --momentum 1", "momentum=1.0: expected a number from 0 to below 1"),
        (
            f"peel {STEP.replace('--local-steps 1', '--weight-decay 0.1')}",
            "weight_decay=0.1: cannot be undone without --lr and --local-steps: give both, or",
        ),
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
