"""What the documentation quotes comes from the files that the commands wrote."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import runpy
from pathlib import Path
from statistics import fmean

import pytest

from gradpeel.paper import published_rates

DOCS = Path(__file__).resolve().parents[1] / "docs"
RUNS = ("first", "drawn")


def _lines(run: str, name: str) -> list[dict[str, str]]:
    with (DOCS / "reproduction" / run / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_reproduction_holds_the_whole_table() -> None:
    text = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    table = (DOCS / "reproduction/first/table1.md").read_text(encoding="utf-8")
    assert table[table.index("Each cell:") :] in text
    captions = json.loads((DOCS / "reproduction/captions.json").read_text(encoding="utf-8"))
    for name, figure in captions["figures"].items():
        assert f"![{figure['caption']}](images/paper/{name}.png)" in text
        assert (DOCS / f"images/paper/{name}.png").exists()


def test_one_page_lists_all_measurements() -> None:
    text = (DOCS / "measurements.md").read_text(encoding="utf-8")
    written = [*DOCS.glob("*-table.md"), *DOCS.glob("*.csv")]
    assert len(written) >= 10
    assert [path.name for path in written if f"]({path.name})" not in text] == []
    for command in re.findall(r"`(benchmarks(?:\.\w+)?)`", text):
        assert importlib.util.find_spec(command) is not None


def test_the_curve_over_training_is_the_measured_one() -> None:
    text = (DOCS / "own-model.md").read_text(encoding="utf-8")
    table = (DOCS / "training-table.md").read_text(encoding="utf-8")
    assert table[table.index("| Adam steps") :] in text


def test_the_glossary_is_in_order_and_has_each_term_once() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8").partition("```{glossary}\n")[2]
    terms = re.findall(r"^(\w.*)$", text, re.MULTILINE)
    assert len(terms) > 30
    assert terms == sorted(set(terms))


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_the_table_follows_from_the_audits(run: str) -> None:
    rates: dict[tuple[str, str, str], list[float]] = {}
    for audit in _lines(run, "results.csv"):
        assert audit["error"] == ""
        key = (audit["dataset"], audit["method"], audit["batch_size"])
        rates.setdefault(key, []).append(int(audit["recovered"]) / int(audit["batch_size"]))
    cells = _lines(run, "table1.csv")
    assert len(cells) == len(rates) == 672
    for cell, (key, seeds) in zip(cells, rates.items(), strict=True):
        assert (cell["method"], cell["batch_size"]) == key[1:]
        assert len(seeds) == int(cell["seeds"]) >= 3
        assert float(cell["ours"]) == pytest.approx(fmean(seeds), abs=1e-6)
        published = published_rates()[cell["dataset"], cell["method"], int(cell["batch_size"])]
        assert float(cell["published"]) == published


@pytest.mark.parametrize("run", RUNS)
def test_nothing_false_is_behind_it(run: str) -> None:
    audits = _lines(run, "results.csv")
    for fault in ("false_certificates", "repeats", "wrong_labels", "wrong_copies"):
        assert sum(int(audit[fault]) for audit in audits) == 0


@pytest.mark.parametrize("run", RUNS)
def test_the_gap_it_tells_is_the_one_there_is(run: str) -> None:
    gap = fmean(float(cell["ours_minus_published"]) for cell in _lines(run, "table1.csv"))
    text = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    told = re.search(r"mean over 672 cells of ours - paper \| (\S+) \| (\S+) \|", text)
    assert told is not None
    assert float(told[1 + RUNS.index(run)]) == pytest.approx(gap, abs=5e-5)
    assert gap >= -0.01


def test_every_tutorial_has_its_place() -> None:
    order = runpy.run_path(str(DOCS / "_extensions" / "tutorial_order.py"))["ORDER"]
    assert sorted(order) == sorted(path.stem for path in (DOCS.parent / "examples").glob("*.py"))
