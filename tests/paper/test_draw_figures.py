from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from gradpeel.datasets import Dataset, load
from gradpeel.errors import InputError
from gradpeel.paper.figures import FIGURES, draw_figures

FAST = ["means", "firing_patterns"]


def renamed(digits: Dataset, name: str) -> Dataset:
    return dataclasses.replace(digits, name=name)


def check(paths: list[Path], names: list[str]) -> None:
    """All files are there and well-formed, none is large, and nobody else can read them."""
    expected = [f"{name}.{kind}" for name in names for kind in ("png", "svg", "pdf")]
    assert [path.name for path in paths] == [*expected, "captions.json"]
    for path in paths:
        assert path.stat().st_size < 1_500_000
        assert path.stat().st_mode & 0o077 == 0
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.mode == "RGB"
                image.verify()
        if path.suffix == ".pdf":
            assert path.read_bytes().startswith(b"%PDF-")
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314


@pytest.mark.slow
def test_titles_can_be_left_out_of_the_drawings(tmp_path: Path, digits: Dataset) -> None:
    def drawn(folder: str, *, titles: bool) -> tuple[Image.Image, bytes]:
        paths = draw_figures(
            lambda name: renamed(digits, name), tmp_path / folder, only=["means"], titles=titles
        )
        with Image.open(paths[0]) as image:
            return image.convert("RGB"), paths[-1].read_bytes()

    full, captions = drawn("full", titles=True)
    bare, same = drawn("bare", titles=False)
    assert captions == same
    assert json.loads(captions)["figures"]["means"]["title"].startswith("The mean picture, and")
    assert bare.width == full.width
    assert bare.height < full.height
    # The body is the same picture, pixel by pixel.
    body = full.crop((0, full.height - bare.height, full.width, full.height))
    apart = np.asarray(bare, dtype=int) - np.asarray(body, dtype=int)
    assert (np.abs(apart).max(axis=(1, 2)) > 8).mean() < 0.05


@pytest.mark.slow
def test_figures_are_written_in_all_formats_with_their_captions(
    tmp_path: Path, digits: Dataset
) -> None:
    lines: list[str] = []
    asked: list[str] = []

    def load_stub(name: str) -> Dataset:
        asked.append(name)
        return renamed(digits, name)

    notes = {"cifar10": "scans of digits", "mnist": "not asked for"}
    paths = draw_figures(
        load_stub, tmp_path / "out", only=FAST, notes=notes, on_progress=lines.append
    )
    check(paths, ["firing_patterns", "means"])
    assert sorted((tmp_path / "out").iterdir()) == sorted(paths)
    assert asked == ["cifar10"]
    assert [line.partition(":")[0] for line in lines] == ["firing_patterns", "means"]
    told = json.loads(paths[-1].read_text(encoding="utf-8"))
    assert told["seed"] == 0
    assert list(told["figures"]) == ["firing_patterns", "means"]
    for numbers in told["figures"].values():
        assert numbers["caption"].startswith("CIFAR-10")
        assert numbers["caption"].endswith(". CIFAR-10: scans of digits.")
    assert told["figures"]["firing_patterns"]["neurons"] == 1000


def patterns(digits: Dataset, out: Path, seed: int = 0) -> list[bytes]:
    """The bytes of one figure's files."""
    paths = draw_figures(
        lambda name: renamed(digits, name), out, only=["firing_patterns"], seed=seed
    )
    return [path.read_bytes() for path in paths]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    tmp_path: Path, digits: Dataset
) -> None:
    first = patterns(digits, tmp_path / "a")
    assert patterns(digits, tmp_path / "b") == first
    others = patterns(digits, tmp_path / "c", seed=1)
    assert all(one != other for one, other in zip(first, others, strict=True))


@pytest.mark.slow
def test_another_process_gives_the_same_bytes(tmp_path: Path, digits: Dataset) -> None:
    first = patterns(digits, tmp_path / "a")
    code = """
import dataclasses, sys
from pathlib import Path
from gradpeel.datasets import load
from gradpeel.paper.figures import draw_figures
stub = lambda name: dataclasses.replace(load("digits"), name=name)
draw_figures(stub, Path(sys.argv[1]), only=["firing_patterns"])
assert "matplotlib.pyplot" not in sys.modules
"""
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", code, str(tmp_path / "c")]
    subprocess.run(command, check=True, env=environment)
    names = [f"firing_patterns.{kind}" for kind in ("png", "svg", "pdf")] + ["captions.json"]
    assert [(tmp_path / "c" / name).read_bytes() for name in names] == first


def test_a_figure_that_cannot_be_drawn_is_named_and_leaves_no_files(
    tmp_path: Path, patients: Dataset
) -> None:
    with pytest.raises(
        InputError, match=r"^figure means: .* has samples of shape .*: expected pic"
    ):
        draw_figures(lambda _: patients, tmp_path, only=["means"])
    with pytest.raises(InputError, match=r"^figure board: here is no data$"):
        draw_figures(refuse, tmp_path, only=["board"])
    assert list(tmp_path.iterdir()) == []


def refuse(_: str) -> Dataset:
    raise InputError("here is no data")


def test_too_few_samples_are_told(tmp_path: Path, digits: Dataset) -> None:
    few = dataclasses.replace(digits, x_train=digits.x_train[:9], y_train=digits.y_train[:9])
    with pytest.raises(InputError, match=r"^figure board: batch_size=256: digits has 9 training"):
        draw_figures(lambda _: few, tmp_path, only=["board"])


@pytest.mark.parametrize("only", [["board", "bored"], []])
def test_unknown_figures_are_told_before_the_work(only: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^only=.*: expected some of teaser, peeling_graph, "):
        draw_figures(lambda _: pytest.fail("went on"), tmp_path / "out", only=only)
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        draw_figures(lambda _: pytest.fail("went on"), tmp_path / "out")


def test_every_figure_says_what_data_it_needs(digits: Dataset) -> None:
    """As far as it can be told without drawing the long ones."""
    for name in FAST:
        asked: list[str] = []

        def load_stub(dataset: str, asked: list[str] = asked) -> Dataset:
            asked.append(dataset)
            return renamed(digits, dataset)

        FIGURES[name].draw(load_stub, seed=0, notes={})
        assert tuple(asked) == FIGURES[name].datasets


@pytest.mark.slow
def test_all_figures_from_real_data(tmp_path: Path, data_dir: Path) -> None:
    asked: set[str] = set()

    def load_real(name: str) -> Dataset:
        asked.add(name)
        return load(data_dir / f"{name}.npz")

    paths = draw_figures(load_real, tmp_path)
    check(paths, list(FIGURES))
    assert asked == {name for figure in FIGURES.values() for name in figure.datasets}
    told = json.loads(paths[-1].read_text(encoding="utf-8"))["figures"]
    # Every sample of the batch comes back exactly, with its label, from an untouched network.
    teaser = told["teaser"]
    assert teaser["recovered"] == teaser["labels_right"] == 128
    assert teaser["false_certificates"] == told["board"]["false_certificates"] == 0
    assert teaser["max_abs_error"] < 1e-8
    # The paper removes 61 of 256 on another network: 0.238.
    board = told["board"]
    assert board["removed_by_round"] == board["removed_by_round_on_the_grid"]
    assert 0.15 < board["recovery_rate"] < 0.35
    assert told["firing_patterns"]["mirrored"]["sparse"] == 0
    assert told["firing_patterns"]["independent"]["sparse"] > 50
    # Mirroring draws the p_j to 1/2 where the mean is flat, and only there.
    deviations = {
        name: of["mirrored"]["deviation"] / of["passive"]["deviation"]
        for name, of in told["firing_probabilities"]["data"].items()
    }
    flat = {name for name, ratio in deviations.items() if ratio < 0.5}
    assert flat == {"cifar10", "cifar100", "imagenet", "svhn"}
    # Seeds are the darker pictures.
    assert told["seeds"]["seeds"]["mean_m"] < told["seeds"]["typical"]["mean_m"] - 0.1
    # The paper's factor is 5.2.
    assert told["means"]["amplification"] == pytest.approx(5.2, abs=0.5)
    removed = told["peeling_graph"]["removed_by_round"]
    assert (len(removed), sum(removed)) == (3, 5)
