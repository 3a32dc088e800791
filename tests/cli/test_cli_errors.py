"""Every way to give bad input: one clear line, exit code 2, nothing written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

import gradpeel
from gradpeel import reporting
from gradpeel.cli import main
from gradpeel.client import local_update
from gradpeel.networks import mlp
from gradpeel.update import save_update

AUDIT = "audit --data tiny.npz --batch-size 4 --neurons 20 --out out"
OWN = "audit --data tiny.npz --batch-size 4 --out out"
RUN_ME = 'a") if getattr(__import__("os"), "mkdir")("out") else getattr(self, "1'
NETWORKS = """
import torch
from torch import nn
def head(width): return nn.Sequential(nn.Linear(width, 20), nn.ReLU(), nn.Linear(20, 3))
def dropping(): return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(), *head(8))
def mixing(): return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), *head(8))
class rounding(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = head(6)
    def forward(self, x): return self.head((5 * x).round())
class detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = head(6)
    def forward(self, x): return self.head(x.tanh().detach())
class tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(2, 1, 20, dropout=0.0, batch_first=True)
        self.head = nn.Linear(2, 3)
    def forward(self, x): return self.head(self.block(x.reshape(-1, 3, 2)).mean(1))
class words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(9, 2), nn.Linear(12, 8), head(8)
    def forward(self, x): return self.head(self.mix(self.embed(x).flatten(1)).tanh())
class fours(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = head(6)
    def forward(self, x): return self.head(x.reshape(4, 6).tanh())
def net(): return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))
def slim(): return nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 3))
def text(): return "net"
def wide(width): return nn.Linear(6, width)
number = 3
class two(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()
    def forward(self, x, mask): return self.net(x * mask)
"""
PEEL = "peel update.safetensors --model model.safetensors --samples out"

TABLE = [
    # the data
    ("audit --data digitz --out out", "data='digitz': expected digits, breast_cancer, photos, ci"),
    ("audit --data none.npz --out out", "none.npz: no such file"),
    ("audit --data mnist --data-dir none --out out", "data_dir='none': no such directory"),
    ("audit --data mnist --image-size 64 --out out", "image_size=64: mnist has images of one size"),
    ("audit --data imagenet --image-size 0 --out out", "image_size=0: expected a positive integer"),
    ("audit --data digits --data-dir full --out out", "data_dir='full': data='digits': expected"),
    (f"{AUDIT} --data-dir full", "data_dir='full': data='tiny.npz': expected data to be one of"),
    (f"{AUDIT} --image-size 64", "image_size='64': data='tiny.npz': expected data to be one of"),
    (f"{AUDIT} --device gpu", "device='gpu': expected one of auto, cpu, cuda, mps"),
    (f"{PEEL} --device meta", "device='meta': expected one of auto, cpu, cuda, mps"),
    ("audit --data text.npz --out out", "text.npz: not an .npz file"),
    ("audit --data . --out out", ".: is a directory: expected an .npz file"),
    ("audit --data lacking.npz --out out", "lacking.npz: y_test missing: expected x_train"),
    ("audit --data labels.npz --out out", "labels.npz: y_train[2]=-1: expected a label in 0..2"),
    ("audit --data wide.npz --out out", "wide.npz: x_test has samples of shape (7,): expected"),
    (f"{AUDIT} --batch-size 0", "batch_size=0: expected a positive integer"),
    (f"{AUDIT} --batch-size -3", "batch_size=-3: expected a positive integer"),
    (f"{AUDIT} --batch-size 25", "batch_size=25: tiny has 24 training samples"),
    ("audit --data digits --scaling raw --out out", "scaling='raw': digits holds pixels"),
    ("audit --data holes.csv --out out", "holes.csv: column 'age': 1 of 3 values are missing"),
    ("audit --data plain.csv --out out", "plain.csv: no column of labels: expected label_column"),
    (
        "audit --data plain.csv --label-column sex --out out",
        "plain.csv: no column 'sex': it has 'age', 'size'",
    ),
    ("audit --data text.parquet --out out", "text.parquet: cannot be read: "),
    (f"{AUDIT} --label-column y", "label_column='y': data='tiny.npz': only a file ending in .csv"),
    (
        f"{AUDIT} --channels-first",
        "channels_first: tiny has samples of shape (6,): expected im",
    ),
    (
        "audit --data alone.npz --batch-size 4 --design soliton-data --out out",
        "design=soliton-data: the data has no test split: expected data with a test split",
    ),
    # a network of one's own
    (f"{OWN} --model mynets", "model='mynets': expected MODULE:NAME such as mymodule:make_model"),
    (f"{OWN} --model nowhere:net", "model='nowhere:net': no module 'nowhere': expected one in the"),
    (f"{OWN} --model mynets:none", "model='mynets:none': mynets has no 'none'"),
    (f"{OWN} --model mynets:number", "model='mynets:number': of type int: expected a torch.nn.Mod"),
    (f"{OWN} --model mynets:text", "model='mynets:text': returned a str: expected a torch.nn.Modu"),
    (f"{OWN} --model mynets:wide", "model='mynets:wide': calling it raised TypeError: wide() mis"),
    (f"{OWN} --model broken:net", "model='broken:net': importing broken raised RuntimeError: brok"),
    (f"{OWN} --model lost:net", "model='lost:net': lost imports 'not_there_either': not found"),
    (f"{OWN} --model mynets:two", "x of shape (4, 6): the model does not take it ("),
    (f"{OWN} --model mynets:slim", "x of shape (4, 6) enters the target as (4, 6): expected (bat"),
    (f"{OWN} --model mynets:net --neurons 9", "neurons=9: the network comes from --model, which"),
    (f"{OWN} --model mynets:net --init torch", "init=torch: the network comes from --model, whi"),
    (
        f"{OWN} --model mynets:net --checkpoint deep.safetensors",
        "checkpoint deep.safetensors: does not fit the network: ",
    ),
    (f"{OWN} --checkpoint none.safetensors", "none.safetensors: no such file"),
    (f"{OWN} --checkpoint conv.safetensors", "conv.safetensors: not a multilayer perceptron: "),
    (
        f"{OWN} --checkpoint model.safetensors --checkpoints *.safetensors",
        "checkpoint='model.safetensors', checkpoints: expected one of the two",
    ),
    (f"{OWN} --checkpoints run/*.safetensors", "checkpoints='run/*.safetensors': no such file"),
    (f"{OWN} --checkpoints model.s*", "model.safetensors: no number in its name: expected the st"),
    (f"{OWN} --checkpoints step*.s*", "step-07.safetensors: step 7 is also that of step-007.safe"),
    # from features back to inputs
    (
        f"{OWN} --model mynets:dropping --invert",
        "inputs cannot be reconstructed: [change this setting] Dropout '2' is active: an input has",
    ),
    (
        f"{OWN} --model mynets:mixing --invert",
        "inputs cannot be reconstructed: [change this setting] BatchNorm1d '1' is in training mode",
    ),
    (
        f"{OWN} --model mynets:mixing --invert --repeats 2",
        "inputs cannot be reconstructed: [change this setting] BatchNorm1d '1' is in training mode",
    ),
    (
        f"{OWN} --model mynets:rounding --invert",
        "layer 'head.0': its features have no derivative with respect to the input, as after round",
    ),
    (
        f"{OWN} --model mynets:detached --invert",
        "layer 'head.0': its features have no derivative with respect to the input, as after round",
    ),
    (
        f"{OWN} --model mynets:tokens --invert",
        "layer 'block.linear1': 3 rows of each input enter it, one per token: expected one row per",
    ),
    (
        f"{OWN} --data words.npz --scaling raw --model mynets:words --invert",
        "layer 'head.0': its features mix the positions of tokens: expected features of its own",
    ),
    (
        f"{OWN} --model mynets:fours --invert",
        "sample_shape=(6,): x of shape (2, 6): the model does not take it (shape '[4, 6]' is inva",
    ),
    (f"{OWN} --model mynets:net --invert --layer 9", "layer='9': expected the name of a Linear"),
    (f"{AUDIT} --repeats 2 --compare", "compare: only a single audit is compared: expected neit"),
    (f"{AUDIT} --repeats 2 --batch-size 25", "batch_size=25: tiny has 24 training samples"),
    # the network and the design
    (f"{AUDIT} --neurons {10**30}", f"a layer of {10**30} neurons or inputs: expected at most"),
    (f"{AUDIT} --tail {10**30}", f"a layer of {10**30} neurons or inputs: expected at most"),
    (f"{AUDIT} --tail 0", "tail='0': expected positive integers such as 256,128"),
    (f"{AUDIT} --tail wide", "tail='wide': expected positive integers such as 256,128"),
    (f"{AUDIT} --noise -1", "noise=-1.0: expected a number of at least 0"),
    (f"{AUDIT} --noise nan", "noise=nan: expected a number of at least 0"),
    (f"{AUDIT} --label-smoothing 1", "label_smoothing=1.0: expected a number from 0 to below 1"),
    (
        f"{AUDIT} --loss mean-squared-error --label-smoothing 0.1",
        "label_smoothing=0.1: loss mean-squared-error has no label_smoothing; cross-entropy has",
    ),
    (f"{AUDIT} --lr 0", "lr=0.0: expected a number above 0"),
    (f"{AUDIT} --lr inf", "lr=inf: expected a number above 0"),
    (f"{AUDIT} --lr 0.1 --momentum 1", "momentum=1.0: expected a number from 0 to below 1"),
    (f"{AUDIT} --lr 0.1 --weight-decay -1", "weight_decay=-1.0: expected a number of at least 0"),
    (f"{AUDIT} --lr 0.1 --local-steps 0", "local_steps=0: expected a positive integer"),
    (f"{AUDIT} --lr 0.1 --local-batch-size -2", "local_batch_size=-2: expected a positive integer"),
    (f"{AUDIT} --local-steps 5", "local_steps=5: only a client with a learning rate (lr) trains"),
    (
        f"{AUDIT} --lr 0.1 --local-steps 5 --local-epochs 2",
        "local_steps=5, local_epochs=2: expected one of the two",
    ),
    (f"{AUDIT} --lr 1e300 --local-steps 9", "lr=1e+300: the training diverges in local step"),
    (f"{AUDIT} --data-range 0", "data-range='0': expected two numbers such as 0,1"),
    (f"{AUDIT} --effort -1", "effort=-1.0: expected a number of at least 0"),
    (f"{AUDIT} --scale 0.9", "scale=0.9: design passive has no scale; trap-weights has"),
    (f"{AUDIT} --weights mirrored", "weights=mirrored: design passive has no weights; trap-wei"),
    (f"{AUDIT} --design trap-weights --scale 0", "scale=0.0: expected a number above 0 and at mo"),
    (f"{AUDIT} --design trap-weights --scale 1.5", "scale=1.5: expected a number above 0 and at"),
    (f"{AUDIT} --design trap-weights --scale nan", "scale=nan: expected a number above 0 and at"),
    (f"{AUDIT} --design trap-weights --soliton 1,1", "soliton=1,1: design trap-weights has no so"),
    (f"{AUDIT} --design soliton-data --scale 0.9", "scale=0.9: design soliton-data has no scale"),
    (f"{AUDIT} --design soliton-data --init torch", "init=torch: design soliton-data has no init"),
    (f"{AUDIT} --design soliton-free --soliton 0.05", "soliton='0.05': expected two numbers such"),
    (f"{AUDIT} --design soliton-free --soliton 0.05,2", "delta=2.0: expected a number above 0 an"),
    # where results go
    (f"{AUDIT} --out full", "full: holds files: expected a new or an empty directory"),
    (f"{AUDIT} --out tiny.npz", "tiny.npz: is a file: expected a new or an empty directory"),
    ("demo --out full", "full: holds files: expected a new or an empty directory"),
    # the update and its model
    (PEEL.replace("update.s", "none.s"), "none.safetensors: no such file"),
    (PEEL.replace("model.s", "none.s"), "none.safetensors: no such file"),
    (PEEL.replace("update.safetensors", "text.npz"), "text.npz: not an .npz file"),
    (PEEL.replace("update.safetensors", "text.txt"), "text.txt: expected a file ending in .safet"),
    (PEEL.replace("update.s", "nan.s"), "nan.safetensors: 0.bias: 1 of 20 values are not finite"),
    (PEEL.replace("update.s", "deep.s"), "update: '2.bias' has shape (5,): the model's is (3,)"),
    (PEEL.replace("update.s", "more.s"), "update: 'more': the model has no such parameter"),
    (PEEL.replace("update.s", "less.s"), "update: no gradient '0.weight', the target's; it has"),
    (PEEL.replace("update.s", "slim.s"), "update: '0.bias' has shape (10,): the model's is (20,)"),
    (PEEL.replace("model.s", "conv.s"), "conv.safetensors: not a multilayer perceptron: 0.weight"),
    (PEEL.replace("model.s", "lone.s"), "lone.safetensors: not a multilayer perceptron: 0.weight"),
    (
        PEEL.replace("model.s", "line.s"),
        "update: '0.bias' has shape (20,): the model's is (3,)",
    ),
    (
        PEEL.replace("model.s", "head.s"),
        "update: '2.bias': the model has no such parameter (where",
    ),
    (PEEL.replace("model.s", "code.s"), "code.safetensors: not a multilayer perceptron: a"),
    (f"{PEEL} --batch-size 0", "update.safetensors: says batch_size=4 but 0 was given"),
    (
        PEEL.replace("update.s", "bare.s") + " --batch-size 0",
        "bare.safetensors: batch_size=0: expe",
    ),
    (f"{PEEL} --label-smoothing -0.1", "label_smoothing=-0.1: expected a number from 0 to below 1"),
    (
        f"{PEEL} --unknown-tail --label-smoothing 0.1",
        "label_smoothing=0.1: with --unknown-tail there are no labels to smooth",
    ),
    (
        PEEL.replace("update.s", "less.s") + " --unknown-tail",
        "update: no gradient '0.weight', the target's; it has",
    ),
    (f"{PEEL} --batch-size 5", "update.safetensors: says batch_size=4 but 5 was given"),
    (f"{PEEL} --reduction sum", "update.safetensors: says reduction='mean' but 'sum' was given"),
    (f"{PEEL} --data-range 0", "data-range='0': expected two numbers such as 0,1"),
    (f"{PEEL} --data-range 1,0", "data_range=(1.0, 0.0): expected the smaller value first"),
    (f"{PEEL} --shape 2,2", "shape=2,2: expected 6 values in all, as the model has"),
    (f"{PEEL} --shape 2,x", "shape='2,x': expected positive integers such as 256,128"),
    (f"{PEEL} --samples full", "full: holds files: expected a new or an empty directory"),
    (
        "peel update.safetensors --model model.safetensors --shape 2,3",
        "shape=2,3: only the file that --samples writes has a shape",
    ),
]

# Typer checks these, and how it words what it says is its own business.
TYPER = [
    f"{AUDIT} --neurons 0",
    f"{AUDIT} --seed -1",
    f"{AUDIT} --design foo",
    f"{AUDIT} --dtype int8",
    f"{AUDIT} --batch-size many",
    f"{AUDIT} --loss hinge",
    f"{AUDIT} --repeats 0",
    "demo --seed -1",
]


def run(command: str) -> Result:
    return CliRunner().invoke(main, command.split())


@pytest.fixture
def files(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a file for each thing that can be wrong with one."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, to be copied."""
    folder = tmp_path_factory.mktemp("files")
    with contextlib.chdir(folder):
        _make_files()
    return folder


def _make_files() -> None:
    Path("full").mkdir()
    Path("full/mine").write_text("mine")
    for name in ("text.npz", "text.txt"):
        Path(name).write_text("hello")
    x, y = np.random.default_rng(0).random((24, 6)), np.arange(24) % 3
    np.savez("tiny.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    np.savez("alone.npz", x=x, y=y)
    words = np.random.default_rng(0).integers(9, size=(24, 6))
    np.savez("words.npz", x_train=words, y_train=y, x_test=words, y_test=y)
    Path("holes.csv").write_text("age,label\n1,0\n,1\n3,0\n", encoding="utf-8")
    Path("plain.csv").write_text("age,size\n1,0\n2,1\n", encoding="utf-8")
    Path("text.parquet").write_text("hello", encoding="utf-8")
    Path("mynets.py").write_text(NETWORKS, encoding="utf-8")
    Path("broken.py").write_text("raise RuntimeError('broken\\nfor good')\n", encoding="utf-8")
    Path("lost.py").write_text("import not_there_either\n", encoding="utf-8")
    np.savez("lacking.npz", x_train=x, y_train=y, x_test=x)
    np.savez("wide.npz", x_train=x, y_train=y, x_test=np.ones((24, 7)), y_test=y)
    np.savez("labels.npz", x_train=x, y_train=np.where(y == 2, -1, y), x_test=x, y_test=y)

    for name, hidden in [("update", (20,)), ("slim", (10,)), ("deep", (20, 5))]:
        model = mlp(6, 3, hidden, rng=np.random.default_rng(0))
        update = local_update(model, torch.from_numpy(x[:4]), torch.from_numpy(y[:4]))
        save_update(update, f"{name}.safetensors")
        if name == "update":
            state = model.state_dict()
            for file in ("model", "step-007", "step-07"):
                save_file(state, f"{file}.safetensors")
            head = {name: state[name] for name in ("0.weight", "0.bias")}
            save_file(head, "head.safetensors")
            gradients = dict(update.gradients)
    save_file(gradients, "bare.safetensors")
    bias = gradients["0.bias"].clone()
    bias[3] = torch.nan
    save_file(gradients | {"0.bias": bias}, "nan.safetensors", metadata={"batch_size": "4"})
    save_file(gradients | {"more": bias.new_ones(2)}, "more.safetensors", {"batch_size": "4"})
    save_file({"0.bias": gradients["0.bias"]}, "less.safetensors", {"batch_size": "4"})
    save_file(torch.nn.Conv2d(1, 2, 3).state_dict(prefix="0."), "conv.safetensors")
    save_file(torch.nn.Linear(6, 3).state_dict(prefix="0."), "line.safetensors")
    save_file({"0.weight": head["0.weight"]}, "lone.safetensors")
    # torch.fx writes the names of modules into source code, which it runs.
    layers = {"0": (20, 6), "1": (5, 20), RUN_ME: (3, 5)}
    code = {f"{name}.weight": torch.ones(shape) for name, shape in layers.items()}
    code |= {f"{name}.bias": torch.ones(shape[0]) for name, shape in layers.items()}
    save_file(code, "code.safetensors")


def listing(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("command", "message"), TABLE)
def test_bad_input_is_told_in_one_line(files: Path, command: str, message: str) -> None:
    before = listing(files)
    finished = run(command)
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert finished.stderr.startswith(f"error: {message}")
    assert finished.stderr.count("\n") == 1
    assert listing(files) == before
    assert not Path("out").exists()


@pytest.mark.parametrize("command", TYPER)
def test_a_wrong_value_of_an_option_is_told_in_one_line(files: Path, command: str) -> None:
    before = listing(files)
    finished = run(command)
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert finished.stderr.startswith("error: ")
    assert command.split()[-2] in finished.stderr  # which option
    assert finished.stderr.count("\n") == 1
    assert listing(files) == before


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "good",
    [
        AUDIT,
        PEEL,
        PEEL.replace("update.s", "bare.s"),
        PEEL.replace("update.s", "bare.s") + " --batch-size 4",
        f"{PEEL.replace('model.s', 'head.s')} --unknown-tail",
        f"{OWN} --model mynets:tokens",
        f"{OWN} --model mynets:net --invert",
    ],
)
def test_the_commands_of_the_table_work_when_nothing_is_wrong(
    monkeypatch: pytest.MonkeyPatch, good: str
) -> None:
    monkeypatch.setattr(reporting, "save_figures", lambda *_, **__: [])
    finished = run(good)
    assert finished.exit_code == 0
    assert Path("out").is_dir()


def test_an_unknown_design_is_told_those_that_there_are() -> None:
    line = run(f"{AUDIT} --design foo").stderr
    assert all(name in line for name in ("foo", "passive", "trap-weights", "soliton-data"))


@pytest.mark.parametrize(
    "command", ["audit --dota digits", "adit", "audit", "peel", f"{AUDIT} --invert=3"]
)
def test_what_is_no_command_is_refused(command: str) -> None:
    finished = run(command)
    assert (finished.exit_code, finished.stdout) == (2, "")
    assert finished.stderr


@pytest.mark.usefixtures("files")
def test_a_place_that_cannot_be_written_is_told() -> None:
    finished = run(f"{AUDIT} --out text.txt/below")
    assert finished.exit_code == 2
    assert finished.stderr.startswith("error: ")
    assert os.strerror(errno.ENOTDIR) in finished.stderr
    assert finished.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_real_entry_point(files: Path) -> None:
    """A good command and a bad one, each in a process of its own."""

    def process(command: str) -> subprocess.CompletedProcess[str]:
        source = Path(gradpeel.__file__).parents[1]
        return subprocess.run(
            [sys.executable, "-m", "gradpeel", *command.split()],
            env=os.environ | {"PYTHONPATH": str(source)},
            capture_output=True,
            text=True,
            check=False,
        )

    before = listing(files)
    command = PEEL.replace("update.s", "nan.s")
    (message,) = [message for known, message in TABLE if known == command]
    refused = process(command)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: {message}")
    assert refused.stderr.count("\n") == 1
    assert listing(files) == before

    done = process(PEEL)
    assert done.returncode == 0
    assert "gradpeel peel" in done.stdout
    assert Path("out/samples.npz").is_file()
