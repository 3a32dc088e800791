from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from gradpeel import reporting
from gradpeel.cli import main
from gradpeel.datasets import draw_batch, load

FILES = ("update.safetensors", "model.safetensors")


def run(*options: str) -> Result:
    return CliRunner().invoke(main, ["peel", FILES[0], "--model", FILES[1], *options])


def audit(out: Path, *options: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reporting, "save_figures", lambda *_, **__: [])
        argv = ["audit", "--data", "digits", *options, "--no-compare", "--out", str(out), "--json"]
        finished = CliRunner().invoke(main, argv)
    numbers: dict[str, Any] = json.loads(finished.stdout)
    return numbers


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """An audit of 24 digits, some of which can be recovered: its directory and its numbers."""
    out = tmp_path_factory.mktemp("audited")
    return out, audit(out, "--batch-size", "24", "--neurons", "60", "--tail", "30")


@pytest.fixture
def truth(
    audited: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The audit's numbers; the working directory holds its update and its weights, nothing else."""
    out, numbers = audited
    for name in FILES:
        shutil.copy(out / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return numbers


def test_an_update_tells_what_the_audit_found(truth: dict[str, Any]) -> None:
    finished = run("--json")
    assert (finished.exit_code, finished.stderr) == (0, "")
    numbers = json.loads(finished.stdout)
    same = (
        "batch_size_by_weight", "batch_size_proven", "batch_size_stated", "candidates_tested",
        "dtype", "reduction", "recovered", "rounds", "recovered_by_round", "evidence", "warnings",
    )  # fmt: skip
    assert {key: numbers[key] for key in same} == {key: truth[key] for key in same}
    assert 3 <= numbers["recovered"] < 24
    assert sum(numbers["recovered_by_class"]) == numbers["recovered"]
    assert len(numbers["recovered_by_class"]) == 10
    assert numbers["complete"] is False
    assert numbers["batch_size_by_weight"] == 24
    assert numbers["batch_size_proven"] is None
    assert numbers["max_residual"] < 1e-6
    assert numbers["max_error"] < 1e-6


@pytest.mark.slow
def test_an_update_that_does_not_say_its_batch_size(truth: dict[str, Any]) -> None:
    save_file(load_file(FILES[0]), FILES[0])  # without what `save_update` wrote beside
    numbers = json.loads(run("--json").stdout)
    assert (numbers["batch_size_stated"], numbers["batch_size_by_weight"]) == (None, 24)
    assert numbers["recovered"] == truth["recovered"]
    assert "24, estimated from the weight of one sample" in run().stdout


@pytest.mark.slow
def test_a_wrong_batch_size_is_told(truth: dict[str, Any]) -> None:
    save_file(load_file(FILES[0]), FILES[0])
    numbers = json.loads(run("--batch-size", "25", "--json").stdout)
    assert (numbers["batch_size_stated"], numbers["batch_size_by_weight"]) == (25, 24)
    assert len(numbers["warnings"]) == 1
    assert numbers["recovered"] == truth["recovered"]
    assert "Warning: " in run("--batch-size", "25").stdout


def test_label_smoothing_reaches_the_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = audit(tmp_path, "--batch-size", "8", "--neurons", "200", "--label-smoothing", "0.2")
    monkeypatch.chdir(tmp_path)
    numbers = json.loads(run("--label-smoothing", "0.2", "--json").stdout)
    assert numbers["recovered"] == truth["recovered"] == 8
    assert sum(numbers["recovered_by_class"]) == 8
    assert numbers["complete"]


@pytest.mark.parametrize("layers", [("1.", "3."), ("1.", "3.", "5.")], ids=["first", "all"])
@pytest.mark.slow
def test_the_first_layers_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: tuple[str, ...]
) -> None:
    # Without a tail it takes a layer wide enough for firing patterns to tell samples apart.
    truth = audit(tmp_path, "--batch-size", "24", "--neurons", "600", "--tail", "30")
    assert truth["recovered"] > 0
    monkeypatch.chdir(tmp_path)
    state = load_file(FILES[1])
    save_file({name: state[name] for name in state if name.startswith(layers)}, FILES[1])
    finished = run("--unknown-tail", "--samples", "found", "--json")
    assert finished.exit_code == 0
    numbers = json.loads(finished.stdout)
    assert numbers["recovered"] == truth["recovered"]
    assert numbers["recovered_by_class"] is None
    assert numbers["unlabelled"] == truth["recovered"]
    batch = draw_batch(load("digits"), 24).x.numpy().reshape(24, 64)
    with np.load("found/samples.npz") as arrays:
        assert set(arrays["labels"].tolist()) == {-1}
        assert set(arrays["multiplicities"].tolist()) == {0}
        for sample in arrays["samples"]:
            assert np.abs(batch - sample).max(axis=1).min() < 1e-6


def test_counts_are_shown_and_nothing_is_written(truth: dict[str, Any]) -> None:
    finished = run()
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert f"{truth['recovered']} of the 24 samples" in finished.stdout
    assert "personal data" in finished.stdout
    assert sorted(path.name for path in Path().iterdir()) == sorted(FILES)


@pytest.mark.parametrize(("shape", "sample_shape"), [([], (64,)), (["--shape", "8,8"], (8, 8))])
@pytest.mark.slow
def test_samples_are_written_on_request_for_the_user_alone(
    truth: dict[str, Any], shape: list[str], sample_shape: tuple[int, ...]
) -> None:
    finished = run("--samples", "found", *shape, "--data-range", "0,1", "--json")
    path = Path("found/samples.npz")
    assert finished.exit_code == 0
    assert finished.stderr.startswith(f"wrote {path}: recovered samples are personal data")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "data range" in json.loads(finished.stdout)["evidence"]

    batch = draw_batch(load("digits"), 24)
    with np.load(path) as arrays:
        assert sorted(arrays.files) == [
            "errors", "labels", "multiplicities", "residuals", "rounds", "samples",
        ]  # fmt: skip
        assert arrays["samples"].shape == (truth["recovered"], *sample_shape)
        assert arrays["rounds"].tolist() == sorted(arrays["rounds"])
        assert len(arrays["residuals"]) == len(arrays["errors"]) == truth["recovered"]
        assert set(arrays["multiplicities"].tolist()) == {1}
        for sample, label in zip(arrays["samples"], arrays["labels"], strict=True):
            gaps = np.abs(batch.x.numpy().reshape(24, 64) - sample.reshape(64)).max(axis=1)
            assert gaps.min() < 1e-6
            assert batch.y[int(gaps.argmin())] == label


@pytest.mark.slow
def test_a_layer_behind_the_first_gives_feature_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit(tmp_path / "wide", "--batch-size", "6", "--neurons", "80", "--tail", "200")
    monkeypatch.chdir(tmp_path / "wide")
    finished = run("--layer", "3", "--json", "--samples", "found")
    numbers = json.loads(finished.stdout)
    assert (numbers["space"], numbers["layer"]) == ("features", "3")
    assert numbers["recovered"] == 6
    assert finished.stderr == (
        "wrote found/features.npz: recovered feature vectors are personal data, and only you can "
        "read them\n"
    )
    with np.load("found/features.npz") as file:
        assert file["features"].shape == (6, 80)
        assert "samples" not in file.files
    assert json.loads(run("--json").stdout)["layer"] == "1"
    for options, message in (
        (("--layer", "9"), "layer='9': expected the name of a Linear: '1', '3', '5'"),
        (
            ("--layer", "3", "--samples", "more", "--shape", "80"),
            (
                "shape=80: what is recovered are feature vectors that enter layer '3', which have "
                "no shape"
            ),
        ),
    ):
        refused = run(*options)
        assert (refused.exit_code, refused.stderr) == (2, f"error: {message}\n")


def test_an_update_that_decodes_to_nothing_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit(tmp_path, "--batch-size", "24", "--neurons", "1")
    monkeypatch.chdir(tmp_path)
    finished = run("--samples", "found", "--json")
    assert finished.exit_code == 0
    numbers = json.loads(finished.stdout)
    assert numbers["recovered"] == 0
    assert numbers["max_residual"] is numbers["min_score"] is numbers["max_error"] is None
    assert numbers["recovered_by_class"] is None
    with np.load("found/samples.npz") as arrays:
        assert arrays["samples"].shape == (0, 64)
    assert "No sample of 24" in run().stdout


def test_an_update_of_local_steps_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    truth = audit(
        tmp_path, "--batch-size", "8", "--neurons", "200", "--lr", "0.1", "--local-steps", "1"
    )
    finished = run("--json")
    assert finished.exit_code == 0
    assert json.loads(finished.stdout)["recovered"] == truth["recovered"] == 8
