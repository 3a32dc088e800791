"""What the canvas draws is the true state of each round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gradpeel import Audit, Report
from gradpeel.exposure import peel_grid
from gradpeel.reporting.matching import rounds_of
from opened_page import Opened

Open = Callable[..., Opened]


def true_state(audit: Audit, rounds: NDArray[np.int64], number: int) -> dict[str, object]:
    """The slow and obvious way: strike out columns, count marks; copies are one sample."""
    grid = audit.exposure.grid.numpy()
    live = [i for i in range(grid.shape[1]) if rounds[i] == 0 or rounds[i] > number]
    firsts = sorted({int(audit.exposure.copies[i]) for i in live})
    degrees = {str(n): int(sum(row[firsts])) for n, row in enumerate(grid)}
    return {
        "round": number,
        "live": live,
        "degrees": degrees,
        "singletons": [int(n) for n, degree in degrees.items() if degree == 1],
    }


def sorted_state(shown: Opened) -> dict[str, object]:
    state = shown.state()
    return state | {name: sorted(state[name]) for name in ("live", "singletons")}


@pytest.mark.parametrize("kind", ["whole", "part", "doubled", "records", "unlabelled"])
def test_every_round_is_drawn_as_it_was(
    kind: str, request: pytest.FixtureRequest, opened: Open, pages: dict[str, Report]
) -> None:
    audit: Audit = request.getfixturevalue(kind)
    rounds = rounds_of(audit)
    shown = opened(pages[kind])
    shown.page.focus("#round")
    for number in range(int(rounds.max()) + 1):
        assert sorted_state(shown) == true_state(audit, rounds, number)
        gone = int(((rounds > 0) & (rounds <= number)).sum())
        assert f"{gone} of {len(rounds)}" in shown.page.inner_text("#counts")
        assert shown.page.get_attribute("#grid", "data-round") == str(number)
        shown.page.keyboard.press("ArrowRight")
    assert shown.state()["round"] == rounds.max()


def test_peeling_the_grid_gives_the_same_rounds(
    whole: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    """A decoder that finds all that it can find in each round does what peeling the grid does."""
    rounds = peel_grid(whole.exposure.grid).numpy()
    shown = opened(pages["whole"])
    for number in range(int(rounds.max()) + 1):
        shown.page.fill("#round", str(number))
        assert sorted_state(shown) == true_state(whole, rounds, number)


def test_pixels_of_columns_that_are_gone_are_blank(
    part: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    """The picture itself, read back from the canvas: columns of 40 on a canvas of 1:1 pixels."""
    shown = opened(pages["part"], viewport={"width": 1200, "height": 900})
    falls, grid = pages["part"].payload.cascade.falls, part.exposure.grid.numpy()
    order = pages["part"].payload.cascade
    drawn = grid[list(order.neurons)][:, list(order.samples)]
    last = max(falls)
    shown.page.evaluate(f"gradpeel.cascade.show({last})")
    # Without the dots, which cover what is below them.
    pixels = shown.page.evaluate(
        """() => {
          const canvas = document.getElementById("grid"), { width, height } = canvas;
          const { neurons, samples } = gradpeel.page.cascade, context = canvas.getContext("2d");
          return neurons.map((_, row) => samples.map((_, column) => [...context.getImageData(
            ((column + 0.5) * width) / samples.length, ((row + 0.5) * height) / neurons.length, 1, 1
          ).data.slice(0, 3)].join()));
        }"""
    )
    gone, fires, silent = "227,229,232", "48,80,107", "255,255,255"
    right = 0
    for row in range(drawn.shape[0]):
        for column, fall in enumerate(falls):
            expected = gone if fall else fires if drawn[row, column] else silent
            right += pixels[row][column] == expected
    assert right > 0.98 * drawn.size


def test_play_runs_to_the_end_and_starts_again(opened: Open, pages: dict[str, Report]) -> None:
    last = len(pages["part"].payload.cascade.steps) - 1
    shown = opened(pages["part"])
    shown.page.clock.install()
    shown.page.reload()
    shown.page.focus("#play")
    shown.page.keyboard.press("Enter")
    assert shown.page.inner_text("#play") == "Pause"
    shown.page.clock.run_for(1200)
    assert shown.state()["round"] == 1
    shown.page.keyboard.press("Space")
    shown.page.clock.run_for(20_000)
    assert shown.state()["round"] == 1
    shown.page.keyboard.press("Space")
    shown.page.clock.run_for(20_000)
    assert shown.state()["round"] == last
    assert shown.page.inner_text("#play") == "Play"
    assert "Here it stops" in shown.page.inner_text("#told")
    shown.page.click("#play")
    assert shown.state()["round"] == 0


def test_buttons_step_and_end_where_the_cascade_does(
    opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["part"])
    last = len(pages["part"].payload.cascade.steps) - 1
    assert shown.page.is_disabled("#back")
    for number in range(1, last + 1):
        shown.page.click("#forth")
        assert shown.state()["round"] == number
    assert shown.page.is_disabled("#forth")
    shown.page.click("#back")
    assert shown.state()["round"] == last - 1


def test_where_nothing_falls_there_is_nothing_to_play(
    opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["nothing"])
    assert shown.page.is_disabled("#play")
    assert shown.page.is_disabled("#round")
    assert "Not recovered is not safe" in shown.page.inner_text("#told")


def test_the_mosaic_holds_what_has_fallen(
    part: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["part"])
    rounds = rounds_of(part)
    for number in range(int(rounds.max()) + 1):
        shown.page.fill("#round", str(number))
        fallen = int(((rounds > 0) & (rounds <= number)).sum())
        shown.page.wait_for_selector(f"#mosaic[data-drawn='{fallen}']")


def test_the_graph_follows_the_rounds(whole: Audit, opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["whole"])
    grid, rounds = whole.exposure.grid.numpy(), rounds_of(whole)
    sources = sorted(set(whole.recovery.sources.tolist()))
    for number in range(int(rounds.max()) + 1):
        shown.page.fill("#round", str(number))
        live = (rounds == 0) | (rounds > number)
        degrees = grid[:, live].sum(axis=1)
        counts = [
            len(shown.page.query_selector_all(f"#graph {of}"))
            for of in (".edge:not(.cut)", ".edge.reads", "rect.lit", "circle.out")
        ]
        alone = int((degrees[sources] == 1).sum())
        assert counts == [grid[sources][:, live].sum(), alone, alone, (~live).sum()]
