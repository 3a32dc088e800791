"""The page of a sweep, held against the rows it is made of."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gradpeel.paper import published_rates
from gradpeel.reporting.page.sweep_charts import curves, heat_maps, line_panels
from gradpeel.reporting.page.sweep_page import sweep_html
from gradpeel.reporting.page.sweep_words import lead
from gradpeel.sweeps import Cell, Finished, Results
from gradpeel.sweeps.summary import over_seeds
from opened_page import Opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize
from sweep_rows import CELL, failed, measured

SIZES = (64, 128, 256)
SOLITON = replace(CELL, design="soliton-data", weights="mirrored", soliton=(0.05, 0.4))


def _rows(cell: Cell, share: float, **change: float) -> list[Finished]:
    return [
        measured(
            replace(cell, batch_size=size, **change),  # type: ignore[arg-type]
            seed,
            recovered=round(share * size) - seed,
            reachable=size,
        )
        for size in SIZES
        for seed in range(2)
    ]


ROWS = [*_rows(CELL, 0.5), *_rows(SOLITON, 1.0)]


def test_lines_stand_where_the_rates_are() -> None:
    (panel,) = line_panels(over_seeds(ROWS))
    assert panel.title == "MNIST, 1,000 neurons"
    assert [name for _, name in panel.ticks] == ["64", "128", "256"]
    assert [line.method for line in panel.lines] == ["passive server", "Soliton-Data, mirrored"]
    for line, share in zip(panel.lines, (0.5, 1.0), strict=True):
        for mark, size in zip(line.marks, SIZES, strict=True):
            rate = share - 0.5 / size
            assert mark.ours.mean == pytest.approx(rate)
            assert mark.y == pytest.approx(200 * (1 - rate), abs=0.01)
            assert mark.high <= mark.y <= mark.low
            label = "SD-Mir" if line.is_mirrored else "Passive"
            assert mark.published == published_rates()["MNIST", label, size]
            # A dot for each seed, at its own rate.
            rates = sorted(200 * (1 - (round(share * size) - seed) / size) for seed in range(2))
            assert sorted(y for _, y in mark.seeds) == pytest.approx(rates, abs=0.01)


@pytest.mark.parametrize(
    "other",
    [
        {"neurons": 500},
        {"dtype": "float32"},
        {"noise": 1e-6},
        {"tail": (8,)},
        {"dataset": "digits"},
        {"soliton": (0.1, 0.5)},
        {"lr": 0.1},
        {"clients": 4},
        {"defence": "sign"},
    ],
    ids=str,
)
def test_only_the_papers_own_cells_have_its_rate(other: dict[str, object]) -> None:
    changed = replace(SOLITON, batch_size=64, **other)  # type: ignore[arg-type]
    (panel,) = line_panels(over_seeds([measured(changed)]))
    assert panel.lines[0].marks[0].published is None
    assert not panel.has_published


def test_noise_gets_charts_of_its_own() -> None:
    assert curves(over_seeds(ROWS)) == []
    noisy = [*ROWS, *_rows(CELL, 0.25, noise=1e-4)]
    (by_noise,) = curves(over_seeds(noisy))
    assert (by_noise.place, by_noise.name) == ("by-noise", "noise")
    panels = by_noise.panels
    assert [panel.title for panel in panels] == [
        f"MNIST, batch of {size}, 1,000 neurons" for size in SIZES
    ]
    passive = panels[0].lines[0]
    assert [mark.name for mark in passive.marks] == ["0", "0.0001"]
    assert passive.marks[0].y < passive.marks[1].y


DEFENCES = ("relative-noise:0.001+top-k:0.1", "none", "sign", "guard", "dp:1,0.5")


def test_defences_stand_side_by_side_as_the_plan_has_them() -> None:
    methods = (CELL, replace(CELL, effort=1.0))
    groups = over_seeds(
        [
            row
            for method in methods
            for at, defence in enumerate(DEFENCES)
            for row in _rows(replace(method, defence=defence), 0.5 / (at + 1))
        ]
    )
    (by_defence,) = curves(groups)
    assert (by_defence.place, by_defence.name) == ("by-defence", "defence")
    panel = by_defence.panels[0]
    assert panel.title == "MNIST, batch of 64, 1,000 neurons"
    assert tuple(name for _, name in panel.ticks) == DEFENCES
    places = [x for x, _ in panel.ticks]
    assert places == sorted(places)
    peeling, rows = panel.lines
    for place, one, other in zip(places, peeling.marks, rows.marks, strict=True):
        assert one.x < place < other.x
        assert one.y == other.y
    # No line leads from one defence to the next.
    for line in panel.lines:
        assert len(line.ours) == len(line.bound) == len(DEFENCES)
        for drawn, mark in zip(line.ours, line.marks, strict=True):
            (left, top), (right, bottom) = (map(float, end.split(",")) for end in drawn.split())
            assert left < mark.x < right
            assert top == bottom == mark.y
    # Long names are turned, and have room.
    assert panel.slant
    assert panel.drop > 0
    assert panel.margin > 62
    numbers = line_panels(groups)[0]
    assert (numbers.slant, numbers.drop, numbers.margin) == (0, 0, 62)
    assert [len(line.ours) for line in numbers.lines] == [1, 1]


def test_local_training_gets_charts_of_its_own() -> None:
    trained = [
        row
        for lr in (0.01, 0.1)
        for steps in (1, 5, 20)
        for row in _rows(CELL, 0.5 / steps, lr=lr, local_steps=steps)
    ]
    # The gradient of one batch has neither steps nor a learning rate.
    by_steps, by_lr = curves(over_seeds([*ROWS, *trained]))
    assert (by_steps.place, by_steps.name) == ("by-local-steps", "local steps")
    assert (by_lr.place, by_lr.name) == ("by-lr", "learning rate")
    assert by_steps.panels[0].title == "MNIST, batch of 64, 1,000 neurons, learning rate 0.01"
    assert by_lr.panels[0].title == "MNIST, batch of 64, 1,000 neurons, 1 local step"
    (line,) = by_steps.panels[0].lines
    assert [mark.name for mark in line.marks] == ["1", "5", "20"]
    assert line.marks[0].y < line.marks[1].y < line.marks[2].y
    assert [mark.name for mark in by_lr.panels[0].lines[0].marks] == ["0.01", "0.1"]
    assert all(mark.published is None for mark in line.marks)
    html = sweep_html(Results([*ROWS, *trained], [], {}, []))
    assert '<section id="by-local-steps"' in html
    assert "Recovery by learning rate" in html
    assert "audits of one training round each" in html


def test_numbers_of_clients_are_not_mixed() -> None:
    groups = over_seeds([row for many in (1, 4) for row in _rows(CELL, 0.5 / many, clients=many)])
    alone, joined = line_panels(groups)
    assert [alone.title, joined.title] == [
        "MNIST, 1,000 neurons",
        "MNIST, 1,000 neurons, 4 clients",
    ]
    assert [len(panel.lines[0].marks) for panel in (alone, joined)] == [3, 3]
    (by_clients,) = curves(groups)
    assert by_clients.panels[0].title == "MNIST, batch of 64, 1,000 neurons"
    assert [mark.name for mark in by_clients.panels[0].lines[0].marks] == ["1", "4"]


def test_one_batch_size_gets_no_chart_where_something_else_varies() -> None:
    one = [measured(replace(CELL, batch_size=64, clients=many)) for many in (1, 4)]
    html = sweep_html(Results(one, [], {}, []))
    assert "Recovery by batch size" not in html
    assert "Recovery by number of clients" in html
    assert "Overview" not in html
    assert "Recovery by batch size" in sweep_html(Results(one[:1], [], {}, []))


def test_a_failure_is_spelled_out() -> None:
    html = sweep_html(Results(ROWS, [failed(replace(CELL, clients=4, batch_size=2048))], {}, []))
    said = "MNIST, passive server, batch of 2,048, 1,000 neurons, 4 clients, seed 0"
    assert f"{said}: ValueError: too bad" in html


def test_the_heat_map_holds_every_mean() -> None:
    (shown,) = heat_maps(over_seeds(ROWS))
    assert shown.columns == ("64", "128", "256")
    assert [name for name, _ in shown.rows] == ["passive server", "Soliton-Data, mirrored"]
    assert [cell and cell[0] for cell in shown.rows[0][1]] == ["49.2 %", "49.6 %", "49.8 %"]


def _whole(cell: Cell, *sizes: int) -> list[Finished]:
    """Everything recovered up to some sizes, in two seeds, and all but one sample beyond."""
    return [
        measured(replace(cell, batch_size=size), seed, recovered=size - (size not in sizes) * seed)
        for size in SIZES
        for seed in range(2)
    ]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "No audit was measured."),
        (
            _whole(CELL),
            (
                "No attacker recovered a whole batch in every audit. The highest mean share is "
                "99.8 % (passive server, MNIST, 1,000 neurons, batch of 256)."
            ),
        ),
        (
            _whole(CELL, 64, 256),  # 128 breaks the row: not "up to 256"
            "A passive server recovers every sample of batches of up to 64 (MNIST, 1,000 neurons).",
        ),
        (
            [*_whole(CELL, 64), *_whole(SOLITON, 64, 128)],
            (
                "A passive server recovers every sample of batches of up to 64 (MNIST, 1,000 "
                "neurons); an active server does so for batches of up to 128 (MNIST, 1,000 "
                "neurons; Soliton-Data, mirrored)."
            ),
        ),
        (
            [*_whole(CELL), *_whole(SOLITON, 64)],
            (
                "An active server recovers every sample of batches of up to 64 (MNIST, 1,000 "
                "neurons; Soliton-Data, mirrored)."
            ),
        ),
    ],
    ids=["nothing", "none whole", "a gap", "both", "active only"],
)
def test_the_lead_says_what_was_found(rows: list[Finished], sentence: str) -> None:
    assert lead(over_seeds(rows)) == sentence


def test_the_row_cascade_is_a_method_of_its_own() -> None:
    rows = [*_whole(CELL, 64), *_whole(replace(CELL, effort=1.0), 64, 128)]
    groups = over_seeds(rows)
    assert lead(groups) == (
        "A passive server with the row cascade recovers every sample of batches of up to 128 "
        "(MNIST, 1,000 neurons)."
    )
    (panel,) = line_panels(groups)
    assert [line.method for line in panel.lines] == [
        "passive server",
        "passive server with the row cascade",
    ]
    assert [line.has_rows for line in panel.lines] == [False, True]
    said = "the row cascade was not run"
    assert said not in sweep_html(Results(rows, [], {}, []))
    assert said in sweep_html(Results(_whole(CELL), [], {}, []))


ODD = "<script>alert(1)</script>"


def test_every_text_is_escaped() -> None:
    odd = replace(CELL, dataset=ODD)
    page = sweep_html(Results([measured(odd)], [failed(odd)], {ODD: ODD}, []))
    assert ODD not in page
    assert "&lt;script&gt;alert(1)" in page
    assert re.search(r"\b(src|href)=\"(?!#)", page) is None


PHONE, WIDE = {"width": 360, "height": 740}, {"width": 1600, "height": 900}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    noisy = [*ROWS, *_rows(CELL, 0.25, noise=1e-4)]
    for defence in DEFENCES[2:]:
        noisy += _rows(replace(CELL, defence=defence), 0.1)
    noisy += _rows(replace(CELL, defence=DEFENCES[0]), 0.2)
    page = sweep_html(Results(noisy, [failed(CELL)], {"mnist": "26 classes instead of 62"}, []))
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.mark.parametrize("size", [PHONE, WIDE], ids=["phone", "wide"])
def test_it_is_sound_in_a_browser(browser: Browser, file: Path, size: ViewportSize) -> None:
    context = browser.new_context(viewport=size, color_scheme="light", bypass_csp=True)
    shown = Opened(context.new_page(), file)
    assert "No attacker recovered a whole batch" in shown.page.inner_text("h1")
    assert "42 audits of one gradient each" in shown.page.inner_text("header")
    assert "share of the batch recovered" in shown.page.inner_text("#by-size")
    for details in shown.page.query_selector_all("summary"):
        details.click()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert shown.violations() == []
    shown.page.emulate_media(color_scheme="dark")
    assert shown.violations(only="color-contrast") == []
    assert shown.complaints == []
    assert shown.elsewhere == []
    assert "ValueError: too bad" in shown.page.inner_text("main")
    context.close()


def test_its_policy_does_not_stop_its_own_style(browser: Browser, file: Path) -> None:
    context = browser.new_context()
    shown = Opened(context.new_page(), file)
    ruled = "getComputedStyle(document.querySelector('.panels')).display"
    assert shown.page.evaluate(ruled) == "grid"
    assert shown.complaints == []
    context.close()
