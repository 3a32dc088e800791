from __future__ import annotations

import hashlib
import json
import shlex
import stat
import sys
import webbrowser
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner, Result

from gradpeel import reporting
from gradpeel.cli import main, variations
from gradpeel.update import load_tensors, load_update

KEYS = {
    "data",
    "design",
    "weights",
    "batch_size",
    "neurons",
    "seed",
    "dtype",
    "loss",
    "label_smoothing",
    "noise",
    "defences",
    "without_tail",
    "recovered",
    "recovery_rate",
    "peeling_bound",
    "baseline_rate",
    "label_accuracy",
    "false_certificates",
    "inexact_certificates",
    "repeats",
    "rounds",
    "batch_size_by_weight",
    "batch_size_proven",
    "batch_size_stated",
    "candidates_tested",
    "readable",
    "evidence",
    "complete",
    "warnings",
    "max_abs_error",
    "membership",
    "wrong_memberships",
    "inversion",
    "leaked_tokens",
    "seconds",
}
SMALL = ("--data", "breast_cancer", "--batch-size", "8", "--neurons", "100")


def run(*options: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, options)])


def numbers_of(*options: str | Path) -> dict[str, object]:
    """What --json prints, read by a parser that knows no NaN."""

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is not JSON")

    finished = run(*options, "--json")
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert finished.stdout.count("\n") == 1
    numbers: dict[str, object] = json.loads(finished.stdout, parse_constant=refuse)
    return numbers


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take a second to draw."""
    monkeypatch.setattr(reporting, "save_figures", lambda *_, **__: [])


def test_json_is_one_object_with_the_promised_keys() -> None:
    numbers = numbers_of("--data", "digits", "--batch-size", "16", "--neurons", "300")
    assert numbers.keys() >= KEYS
    expected = {
        "data": "digits",
        "design": "passive",
        "weights": "gaussian",
        "batch_size": 16,
        "neurons": 300,
        "seed": 0,
        "dtype": "float64",
        "loss": "cross-entropy",
        "label_smoothing": 0.0,
        "noise": 0.0,
        "defences": [],
        "without_tail": None,
        "batch_size_stated": 16,
        "recovered": 16,
        "recovery_rate": 1.0,
        "peeling_bound": 1.0,
        "label_accuracy": 1.0,
        "false_certificates": 0,
        "repeats": 0,
        "complete": True,
    }
    assert {key: numbers[key] for key in expected} == expected


@pytest.mark.slow
def test_inputs_are_reconstructed_where_features_come_back() -> None:
    options = ("--data", "digits", "--batch-size", "3", "--neurons", "300", "--init", "torch")
    numbers = numbers_of(*options, "--tail", "200", "--layer", "3", "--invert")
    found = numbers["inversion"]
    assert isinstance(found, dict)
    assert (found["layer"], found["reconstructions"], found["determined"]) == ("3", 3, 3)
    assert found["median_psnr"] is None or found["median_psnr"] > 100
    assert numbers_of(*options, "--invert")["inversion"] is None


def test_where_nothing_is_recovered_values_are_null() -> None:
    numbers = numbers_of("--data", "breast_cancer", "--neurons", "1")
    assert numbers["recovered"] == 0
    assert numbers["max_abs_error"] is None
    assert numbers["label_accuracy"] is None


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--shuffle", "--init", "torch", "--tail", "20,10"],
        ["--design", "soliton-data", "--weights", "mirrored"],
    ],
)
@pytest.mark.slow
def test_a_seed_names_the_result(options: list[str]) -> None:
    first, again, other = (numbers_of(*SMALL, *options, "--seed", seed) for seed in "334")
    del first["seconds"], again["seconds"], other["seconds"]
    assert first == again
    assert {**first, "seed": 4} != other


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--init", "torch"], {"design": "passive", "weights": "torch"}),
        (["--dtype", "float32"], {"dtype": "float32"}),
        (["--dtype", "bfloat16"], {"dtype": "bfloat16"}),
        (["--reduction", "sum"], {"reduction": "sum", "recovered": 8}),
        (["--noise", "1e-7"], {"noise": 1e-7, "readable": 8}),
        (
            ["--label-smoothing", "0.1"],
            {"label_smoothing": 0.1, "recovered": 8, "label_accuracy": 1.0},
        ),
        (
            ["--loss", "mean-squared-error", "--neurons", "600"],
            {"loss": "mean squared error", "recovered": 8, "label_accuracy": None},
        ),
        (
            ["--loss", "binary-cross-entropy", "--reduction", "sum", "--neurons", "600"],
            {"loss": "binary cross-entropy", "recovered": 8, "label_accuracy": None},
        ),
        (
            ["--unknown-batch-size"],
            {"batch_size_stated": None, "batch_size_by_weight": 8, "recovered": 8},
        ),
        (
            ["--unknown-tail", "--data", "digits", "--neurons", "600"],
            {"without_tail": "kept from the decoder", "recovered": 8, "unlabelled": 8},
        ),
        (["--tail", "20,10"], {"tail": [20, 10], "recovered": 8}),
        (["--data-range", "0,1"], {"data_range": [0.0, 1.0], "recovered": 8}),
        (["--data-range", "2,3"], {"data_range": [2.0, 3.0], "recovered": 0}),
        (["--knows-tail", "--knows-batch-size"], {"knows_tail": True, "knows_batch_size": True}),
        (
            ["--lr", "0.1", "--weight-decay", "0.01"],
            {"lr": 0.1, "weight_decay": 0.01, "local_steps": 1, "recovered": 8},
        ),
        (
            ["--lr", "0.1", "--local-steps", "3", "--momentum", "0.5", "--effort", "0"],
            {"local_steps": 3, "momentum": 0.5, "local_batch_size": None, "label_accuracy": None},
        ),
        (
            ["--lr", "0.1", "--local-epochs", "2", "--local-batch-size", "3", "--effort", "0"],
            {
                "local_steps": 6,
                "local_epochs": 2,
                "local_batch_size": 3,
                "without_tail": "the update is the sum of the gradients of 6 local steps",
            },
        ),
        (["--shuffle", "--scaling", "standard"], {"shuffle": True, "scaling": "standard"}),
        (
            ["--design", "trap-weights", "--scale", "0.9"],
            {"weights": "independent", "scale": 0.9, "soliton": None},
        ),
        (
            ["--design", "soliton-free", "--weights", "mirrored", "--soliton", "0.1,0.5"],
            {"weights": "mirrored", "scale": None, "soliton": [0.1, 0.5]},
        ),
        (["--design", "soliton-data"], {"design": "soliton-data", "soliton": [0.05, 0.4]}),
    ],
)
@pytest.mark.slow
def test_options_reach_the_audit(options: list[str], expected: dict[str, object]) -> None:
    numbers = numbers_of(*SMALL, *options)
    assert {key: numbers[key] for key in expected} == expected
    assert numbers["false_certificates"] == 0


def test_a_person_gets_a_summary() -> None:
    finished = run(*SMALL)
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert "gradpeel audit: breast_cancer" in finished.stdout
    assert "All 8 samples" in finished.stdout


@pytest.mark.slow
def test_the_report_names_the_command_and_the_files(folder: Path) -> None:
    given = (*SMALL, "--seed", "3", "--unknown-tail", "--scaling", "standard")
    assert run(*given, "--quiet", "--out", "runs/first", "--no-samples").exit_code == 0
    page = json.loads(Path("runs/first/report.json").read_text(encoding="utf-8"))
    words = shlex.split(page["command"])
    assert words[:2] == ["gradpeel", "audit"]
    # In the order of the help; where files lie is nobody else's business.
    assert sorted(words[2:]) == sorted(map(str, given))
    model = Path("runs/first/model.safetensors").read_bytes()
    assert page["hashes"][0] == {"name": "Model", "text": hashlib.sha256(model).hexdigest()}


@pytest.mark.parametrize("out", [(), ("--out", "here")], ids=["nowhere", "here"])
@pytest.mark.slow
def test_open_shows_the_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch, out: tuple[str, ...]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", asked.append)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert run(*SMALL, "--no-compare", "--quiet", "--open", *out).exit_code == 0
    (address,) = asked
    if out:
        assert address == Path("here/report.html").absolute().as_uri()
    shown = Path(address.removeprefix("file://")).read_text(encoding="utf-8")
    assert "gradpeel audit --data breast_cancer" in shown


@pytest.mark.parametrize("asked", [("--compare",), ()], ids=["asked", "by itself"])
@pytest.mark.slow
def test_a_report_compares_one_change_each(folder: Path, asked: tuple[str, ...]) -> None:
    finished = run(*SMALL, *asked, "--effort", "0", "--quiet", "--out", "here")
    assert finished.exit_code == 0
    assert "With float32: 8 of 8 read; noise of 0.001: " in finished.stdout
    page = json.loads(Path("here/report.json").read_text(encoding="utf-8"))
    changed = {one["name"]: one["batch_size"] for one in page["variations"]}
    assert changed == {"float32": 8, "noise of 0.001": 8, "batch of 16": 16}
    # The same as an audit that is asked for by itself.
    alone = numbers_of(*SMALL, "--effort", "0", "--dtype", "float32")
    assert page["variations"][0]["read"] == alone["readable"]


@pytest.mark.slow
def test_without_a_report_nothing_is_compared_unless_asked_for(folder: Path) -> None:
    quick = (*SMALL, "--effort", "0")
    assert "With float32" not in run(*quick).stdout
    assert "With float32: 8 of 8 read" in run(*quick, "--compare").stdout
    assert "With" not in run(*quick, "--no-compare", "--out", "here").stdout
    assert json.loads(Path("here/report.json").read_text(encoding="utf-8"))["variations"] == []
    assert "What would change this" not in Path("here/report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_comparisons_that_take_too_long_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variations, "SECONDS", 0.0)
    finished = run(*SMALL, "--out", "here")
    assert "With float32, noise of 0.001, batch of 16: not finished" in finished.stdout
    page = Path("here/report.html").read_text(encoding="utf-8")
    assert "Not finished in time: float32, noise of 0.001, batch of 16" in page
    assert run("--quiet", "--out", "there", *SMALL, "--compare", "--effort", "0").exit_code == 0
    assert "Not finished in time" not in Path("there/report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_later_layer_gives_feature_vectors(folder: Path) -> None:
    deep = ("--data", "digits", "--batch-size", "6", "--neurons", "80", "--tail", "200")
    found = numbers_of(*deep, "--layer", "3", "--no-compare", "--out", "deep", "--quiet")
    assert (found["space"], found["layer"], found["features"]) == ("features", "3", 80)
    assert found["recovered"] == 6
    page = json.loads((folder / "deep" / "report.json").read_text(encoding="utf-8"))
    assert (page["space"], page["layer"], page["mosaic"]) == ("features", "3", None)
    shown = run(*deep, "--layer", "3").stdout
    assert "feature vectors that enter layer `3`, 80 features each" in shown
    refused = run(*deep, "--layer", "2")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "error: layer='2' is a ReLU: expected the name of a Linear: '1', '3', '5'\n"
    )


@pytest.mark.slow
def test_out_holds_what_it_takes_to_look_again(folder: Path) -> None:
    finished = run(*SMALL, "--no-compare", "--json", "--out", "runs/first")
    out = Path("runs/first")
    written = sorted(out.iterdir())
    names = {path.name for path in written}
    assert names >= {"result.json", "update.safetensors", "model.safetensors"}
    assert names >= {"report.html", "report.json", "samples.png", "samples.svg"}
    others = ", ".join(path.name for path in written if path.name != "report.html")
    assert finished.stderr.splitlines() == [
        f"Report: {out / 'report.html'}",
        f"Also in {out}: {others}",
    ]

    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert result == json.loads(finished.stdout)
    assert load_update(out / "update.safetensors").batch_size == 8
    assert load_tensors(out / "model.safetensors")[0]["1.weight"].shape == (100, 30)

    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
    assert [path.name for path in folder.iterdir()] == ["runs"]


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_samples_can_be_left_out() -> None:
    assert run(*SMALL, "--no-compare", "--out", "out", "--no-samples", "--quiet").exit_code == 0
    assert not list(Path("out").glob("samples.*"))
    assert not json.loads(Path("out/report.json").read_text(encoding="utf-8"))["with_samples"]
    assert "Samples and labels were left out" in Path("out/report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("folder", "_no_figures")
def test_quiet_leaves_the_result_alone() -> None:
    finished = run(*SMALL, "--no-compare", "--out", "out", "--quiet")
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert "gradpeel audit: breast_cancer" in finished.stdout
    assert Path("out/result.json").is_file()


@pytest.mark.parametrize("moment", ["audit", "figures"])
@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (OSError(28, "No space left on device", "there"), 2, "error: there: No space left on dev"),
    ],
)
def test_what_ends_half_way_leaves_nothing(
    *,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    error: BaseException,
    code: int,
    line: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    # `gradpeel.audit` is the function; the module of that name is found in sys.modules only.
    place = {
        "audit": (sys.modules["gradpeel.audit"], "audit"),
        "figures": (reporting, "save_figures"),
    }
    monkeypatch.setattr(*place[moment], fail)
    finished = run(*SMALL, "--no-compare", "--out", "out")
    assert (finished.exit_code, finished.stdout) == (code, "")
    assert finished.stderr.startswith(line)
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("_no_figures")
@pytest.mark.slow
def test_the_batch_is_the_first_samples_or_drawn(folder: Path) -> None:
    # Every sample is its own class, so the last layer's bias gradient names the batch: it is
    # negative for those and only those.
    x, y = np.random.default_rng(0).random((24, 6)), np.arange(24)
    np.savez(folder / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)

    def batch(name: str, *options: str) -> list[int]:
        given = ("--data", "own.npz", "--batch-size", "6", "--init", "torch", "--no-compare")
        run(*given, "--out", name, *options)
        gradients = load_update(folder / name / "update.safetensors").gradients
        return (gradients["3.bias"] < 0).nonzero()[:, 0].tolist()

    assert batch("first") == [0, 1, 2, 3, 4, 5]
    drawn = batch("drawn", "--shuffle")
    assert len(drawn) == 6
    assert drawn != [0, 1, 2, 3, 4, 5]
    assert drawn != batch("drawn otherwise", "--shuffle", "--seed", "1")


def save_mnist(folder: Path) -> None:
    """Forty images, of which a batch takes the first."""
    x = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
    y = np.arange(40) % 10
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x[::-1], y_test=y)


@pytest.mark.parametrize("shuffle", [[], ["--shuffle"]])
@pytest.mark.slow
def test_a_standard_set_is_taken_from_the_data_directory(folder: Path, shuffle: list[str]) -> None:
    save_mnist(folder)
    small = ("--batch-size", "8", "--neurons", "200", *shuffle)
    numbers = numbers_of("--data", "mnist", "--data-dir", folder, *small)
    same = numbers_of("--data", "./mnist.npz", *small)
    assert numbers["data"] == "mnist"
    assert numbers["max_abs_error"] == same["max_abs_error"]
    assert numbers["recovered"] == same["recovered"]


def test_a_batch_beyond_a_standard_set_is_told_its_size(folder: Path) -> None:
    save_mnist(folder)
    finished = run("--data", "mnist", "--data-dir", folder, "--batch-size", "41")
    assert finished.exit_code == 2
    assert finished.stderr == "error: batch_size=41: mnist has 40 training samples\n"


NETWORK = """
from torch import nn
def make_model():
    return nn.Sequential(nn.Linear(30, 120), nn.ReLU(), nn.Linear(120, 2))
"""


@pytest.fixture
def own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a network, and checkpoints of it."""
    (folder / "my_network.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "my_network", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for step in (0, 9, 10):
        torch.manual_seed(step)
        state = nn.Sequential(nn.Linear(30, 120), nn.ReLU(), nn.Linear(120, 2)).state_dict()
        save_file(state, folder / f"step-{step}.safetensors")
    return folder


OWN = ("--data", "breast_cancer", "--batch-size", "8", "--effort", "0")


@pytest.mark.usefixtures("own")
@pytest.mark.slow
def test_a_network_of_ones_own() -> None:
    numbers = numbers_of(*OWN, "--model", "my_network:make_model")
    assert (numbers["neurons"], numbers["weights"], numbers["dtype"]) == (120, "keep", "float32")
    assert numbers["model"] == "my_network:make_model"
    assert numbers["tail"] is None
    again = numbers_of(*OWN, "--model", "my_network:make_model")
    assert numbers["recovered"] == again["recovered"]
    wide = numbers_of(*OWN, "--model", "my_network:make_model", "--dtype", "float64")
    assert wide["dtype"] == "float64"
    assert sys.path[0] != str(Path.cwd())


@pytest.mark.usefixtures("own")
@pytest.mark.slow
def test_weights_from_a_file_with_and_without_a_network() -> None:
    file = ("--checkpoint", "step-9.safetensors")
    mine, from_file = (
        numbers_of(*OWN, *more, *file) for more in (("--model", "my_network:make_model"), ())
    )
    for name in ("recovered", "readable", "peeling_bound", "neurons", "rounds"):
        assert mine[name] == from_file[name]


@pytest.mark.slow
def test_repeats_report_their_spread(folder: Path) -> None:
    finished = run(*SMALL, "--repeats", "3", "--effort", "0", "--out", "out")
    assert finished.exit_code == 0
    assert "3 repeats, a server can read" in finished.stdout
    assert "every repeat initialises" in " ".join(finished.stdout.split())
    assert {path.name for path in Path("out").iterdir()} == {"report.html", "result.json", "worst"}
    assert stat.S_IMODE(Path("out/worst").stat().st_mode) == 0o700
    numbers = json.loads(Path("out/result.json").read_text(encoding="utf-8"))
    assert numbers["varied"] == ["batches", "initialisations"]
    assert len(numbers["audits"]) == 3
    worst = json.loads(Path("out/worst/result.json").read_text(encoding="utf-8"))
    assert worst["readable"] == numbers["readable"]["most"]
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert 'href="worst/report.html"' in page
    assert "--repeats 3" in page


@pytest.mark.usefixtures("own")
@pytest.mark.slow
def test_checkpoints_are_a_curve() -> None:
    numbers = numbers_of(
        *OWN, "--model", "my_network:make_model", "--checkpoints", "step-*.safetensors"
    )
    assert [one["step"] for one in numbers["checkpoints"]] == [0, 9, 10]  # type: ignore[attr-defined]
    finished = run(*OWN, "--checkpoints", "step-*.safetensors", "--quiet")
    assert finished.exit_code == 0
    assert "At step 0, a server can read" in finished.stdout


@pytest.mark.slow
def test_the_command_on_a_page_names_no_directory(own: Path) -> None:
    files = ("--checkpoints", str(own / "step-*.safetensors"))
    assert run(*OWN, *files, "--out", "out", "--quiet").exit_code == 0
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "step-*.safetensors" in page
    assert str(own) not in page


def test_tables_and_files_without_a_test_split(folder: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = enumerate(rng.random((20, 2)))
    lines = [f"{a:.3f},{b:.0f},{'ab'[i % 2]},{i % 2}" for i, (a, b) in sizes]
    (folder / "people.csv").write_text("\n".join(["size,big,kind,label", *lines]), encoding="utf-8")
    small = ("--batch-size", "4", "--neurons", "60", "--effort", "0")
    assert numbers_of("--data", "people.csv", *small)["features"] == 4
    assert numbers_of("--data", "people.csv", "--label-column", "kind", *small)["features"] == 3
    np.savez("alone.npz", x=rng.random((9, 5)), y=np.arange(9) % 2)
    assert numbers_of("--data", "alone.npz", *small)["features"] == 5


@pytest.mark.slow
def test_images_for_convolutions(folder: Path) -> None:
    small = ("--data", "digits", "--batch-size", "4", "--neurons", "60")
    finished = run(*small, "--channels-first", "--out", "out")
    assert finished.exit_code == 0
    values = json.loads(Path("out/report.json").read_text(encoding="utf-8"))
    assert values["pictures"]
