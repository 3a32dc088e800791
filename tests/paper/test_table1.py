"""The comparison with the paper's table, on rows that nobody measured."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gradpeel.datasets.standard import STANDARD
from gradpeel.designs import PAPER_METHODS
from gradpeel.errors import InputError
from gradpeel.paper import published_rates
from gradpeel.paper.table1 import BATCH_SIZES, Table1, Verdict, table1_plan
from gradpeel.paper.table1_files import to_csv, to_markdown, write_table1
from gradpeel.paper.table1_page import to_html
from gradpeel.paper.table1_terminal import table1_text
from gradpeel.sweeps import Finished, Results
from sweep_rows import failed, measured


def test_the_plan_is_the_papers() -> None:
    cells = table1_plan(seeds=1).cells()
    assert len(cells) == 672
    names = {(STANDARD[cell.dataset].title, cell.method, cell.batch_size) for cell in cells}
    assert names == set(published_rates())
    assert {(cell.neurons, cell.tail, cell.dtype, cell.noise) for cell in cells} == {
        (1000, (), "float64", 0.0)
    }
    assert {cell.shuffle for cell in cells} == {False}
    assert {cell.scale for cell in cells if cell.design == "trap-weights"} == {0.99}
    assert {cell.soliton for cell in cells if "soliton" in cell.design} == {(0.05, 0.4)}
    assert list(dict.fromkeys(cell.method for cell in cells)) == list(PAPER_METHODS)


def test_the_row_cascade_has_lines_of_its_own() -> None:
    cells = table1_plan(["mnist"], [64], seeds=1, rows=True).cells()
    plain, rows = cells[: len(cells) // 2], cells[len(cells) // 2 :]
    assert {cell.method for cell in cells} == {
        *PAPER_METHODS,
        *(f"{method}+Rows" for method in PAPER_METHODS),
    }
    assert len(plain) == len(rows)
    found = [measured(cell, recovered=64 if cell.effort else 6, reachable=6) for cell in cells]
    table = Table1.of(Results(found, [], {}, []))
    line = next(line for line in table.lines if line.method == "Passive+Rows")
    assert (line.cells[0].ours.mean, line.gap) == (1.0, None)


def test_tuned_designs_have_lines_of_their_own() -> None:
    cells = table1_plan(["mnist"], [64], seeds=1, tuned=True).cells()
    found = [measured(cell, recovered=64, reachable=64) for cell in cells]
    table = Table1.of(Results(found, [], {}, []))
    own = [line for line in table.lines if line.method not in PAPER_METHODS]
    assert {line.cells[0].published for line in own} == {None}
    expected = ["Tuned-Ind", "Tuned-Mir", "TunedFree-Ind", "TunedFree-Mir"]
    assert [line.method for line in own] == expected


def test_a_data_set_that_the_paper_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="datasets='digits': expected one of cifar10"):
        table1_plan(["digits"])


def rows(rates: dict[tuple[str, int], list[int]], dataset: str = "mnist") -> list[Finished]:
    """One row a seed, with so many samples of the batch recovered, by method and batch size."""
    plan = table1_plan([dataset], seeds=1)
    cells = {(cell.method, cell.batch_size): cell for cell in plan.cells()}
    return [
        measured(cells[key], seed, recovered=recovered, reachable=cells[key].batch_size)
        for key, values in rates.items()
        for seed, recovered in enumerate(values)
    ]


def table(rates: dict[tuple[str, int], list[int]], **notes: str) -> Table1:
    return Table1.of(Results(rows(rates), [], notes, []))


@pytest.mark.parametrize(
    ("recovered", "verdict"),
    [
        # Published for MNIST Passive: 0.484 at B=64, and 31 / 64 = 0.484375.
        ([31], None),  # one seed says nothing about others
        ([64], None),
        ([31, 31], Verdict.EQUAL),
        ([30, 30], Verdict.WORSE),
        ([32, 32], Verdict.BETTER),
        ([25, 31, 38], Verdict.EQUAL),
        ([24, 25, 24], Verdict.WORSE),
        ([35, 36, 35], Verdict.BETTER),
    ],
    ids=str,
)
def test_verdicts_follow_the_interval(recovered: list[int], verdict: Verdict | None) -> None:
    (cell,) = table({("Passive", 64): recovered}).cells
    assert cell.published == 0.484
    assert cell.verdict is verdict
    assert cell.gap == pytest.approx(sum(recovered) / len(recovered) / 64 - 0.484)


def test_a_batch_size_that_the_paper_does_not_have_is_not_judged() -> None:
    plan = table1_plan(["mnist"], batch_sizes=[100], seeds=1)
    (cell,) = Table1.of(Results([measured(plan.cells()[0])], [], {}, [])).cells
    assert (cell.published, cell.gap, cell.verdict) == (None, None, None)


RATES = {
    ("SD-Ind", 512): [500, 501],
    ("SD-Ind", 64): [64, 64],
    ("SF-Ind", 256): [100, 101],
    ("Passive", 64): [64, 63],
}


def test_findings_count_and_name_what_matters() -> None:
    found = "\n".join(table(RATES).findings())
    assert "audits: 8, cells: 4" in found
    assert "samples certified: 1457" in found
    assert "equal within the interval: 2 cells" in found
    assert "better: 1 cells" in found
    assert "worse: 1 cells" in found
    # 0.9775390625 - 0.978, 1 - 1, 0.392578125 - 0.916, 0.9921875 - 0.484
    assert "mean of ours - paper: -0.0039" in found
    assert (
        "lines whose mean is more than 0.05 below the paper's: 1\n  MNIST SF-Ind: -0.523" in found
    )
    assert "more than 0.01 below the peeling bound: 2 cells" in found


def test_wrong_certificates_are_counted() -> None:
    bad = replace(rows(RATES)[0].measurement, false_certificates=2, wrong_labels=3, repeats=1)  # type: ignore[type-var]
    some = [replace(rows(RATES)[0], measurement=bad), *rows(RATES)[1:]]
    totals = Table1.of(Results(some, [], {}, [])).totals()
    assert (totals["false certificates"], totals["wrong labels"], totals["repeats"]) == (2, 3, 1)


def test_one_seed_is_not_judged() -> None:
    single = table({("Passive", 64): [64]})
    assert not any("better" in finding for finding in single.findings())
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table1_text(single))
    assert "interval" not in console.export_text()


def test_failures_are_told() -> None:
    some = rows(RATES)
    bad = [failed(some[0].cell, 7)]
    for text in (to_markdown, to_html):
        told = text(Table1.of(Results(some, bad, {}, [])))
        assert "failed audits: 1" in told
        assert "ValueError: too bad" in told


def test_other_data_than_the_papers_is_refused() -> None:
    other = measured(replace(rows(RATES)[0].cell, dataset="digits"))
    with pytest.raises(InputError, match="dataset='digits': expected one of cifar10"):
        Table1.of(Results([other], [], {}, []))


def test_the_csv_holds_every_cell() -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(table(RATES, mnist="other, samples")))))
    assert len(lines) == 4
    first = lines[0]
    assert (first["dataset"], first["method"], first["batch_size"]) == ("MNIST", "SD-Ind", "512")
    assert (first["ours"], first["published"], first["seeds"]) == ("0.977539", "0.978", "2")
    assert first["verdict"] == "equal within the interval"
    assert {line["note"] for line in lines} == {"other, samples"}


NOTE = "<b>letters</b>"


def test_every_form_shows_rates_marks_and_footnotes(tmp_path: Path) -> None:
    made = table(RATES, mnist=NOTE)
    markdown, page = to_markdown(made), to_html(made)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table1_text(made))
    terminal = console.export_text()
    for text in (markdown, page, terminal):
        assert "MNIST [a]" in text
        for rate in ("0.978", "0.393", "0.916", "0.992", "0.484"):
            assert rate in text
    assert f"[a] MNIST here: {NOTE}" in markdown
    assert f"[a] MNIST here: {NOTE}" in terminal
    # Notes come from data: a page shows them as text.
    assert NOTE not in page
    assert "&lt;b&gt;letters&lt;/b&gt;" in page
    assert "http:" not in page
    assert "https:" not in page
    paths = write_table1(made, tmp_path)
    assert [path.name for path in paths] == ["table1.csv", "table1.md", "table1.html"]
    assert paths[2].read_text(encoding="utf-8") == page


def test_the_interval_is_printed_by_its_ends() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table1_text(table({("Passive", 64): [2, 60]})))
    text = console.export_text()
    # Two seeds that differ: the interval is all there is, and not 0.484 +- 5.757.
    assert "0.484" in text
    assert re.search(r"from\s+0\.000", text)
    assert re.search(r"to\s+1\.000", text)
    assert "+-" not in text


def test_the_whole_table_fits_eighty_columns() -> None:
    full = {(method, size): [size // 2, size] for method in PAPER_METHODS for size in BATCH_SIZES}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table1_text(table(full)))
    block = console.export_text().split("blue:")[0]
    assert "…" not in block
    assert all(f"{published_rates()['MNIST', 'SD-Mir', size]:.3f}" in block for size in BATCH_SIZES)
