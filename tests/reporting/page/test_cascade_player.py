"""What the canvas draws is the true state of each round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from gradpeel import Audit, Report
from gradpeel.exposure import peel_grid
from gradpeel.reporting.matching import found_at, rounds_of
from gradpeel.reporting.tally import Way
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
        "left": live,
        "degrees": degrees,
        "singletons": [int(n) for n, degree in degrees.items() if degree == 1],
    }


def sorted_state(shown: Opened) -> dict[str, object]:
    state = shown.state()
    return state | {name: sorted(state[name]) for name in ("left", "singletons")}


@pytest.mark.parametrize("kind", ["whole", "part", "doubled", "records", "unlabelled"])
def test_every_round_is_drawn_as_it_was(
    kind: str, request: pytest.FixtureRequest, opened: Open, pages: dict[str, Report]
) -> None:
    audit: Audit = request.getfixturevalue(kind)
    rounds = rounds_of(audit)
    shown = opened(pages[kind])
    # It opens at its end.
    assert shown.state()["round"] == rounds.max()
    shown.page.focus("#round")
    shown.page.keyboard.press("Home")
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


def test_pixels_of_recovered_columns_have_the_colour_of_leakage(
    part: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    """The picture itself, read back from the canvas: columns of 40 on a canvas of 1:1 pixels."""
    shown = opened(pages["part"], viewport={"width": 1200, "height": 900})
    falls, grid = pages["part"].payload.cascade.rounds, part.exposure.grid.numpy()
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
    gone, spent, fires, silent = "241,236,232", "234,180,140", "48,80,107", "255,255,255"
    right = 0
    for row in range(drawn.shape[0]):
        for column, fall in enumerate(falls):
            fired, not_fired = (spent, gone) if fall else (fires, silent)
            expected = fired if drawn[row, column] else not_fired
            right += pixels[row][column] == expected
    assert right > 0.98 * drawn.size


def test_play_runs_to_the_end_and_starts_again(opened: Open, pages: dict[str, Report]) -> None:
    last = len(pages["part"].payload.cascade.steps) - 1
    shown = opened(pages["part"])
    # An installed clock runs on by itself, so a slow machine sees more turns, until it is paused.
    shown.page.clock.install(time=0)
    shown.page.reload()
    shown.page.clock.pause_at(3600)
    assert shown.page.inner_text("#play") == "Replay"
    shown.page.focus("#play")
    shown.page.keyboard.press("Enter")
    assert shown.state()["round"] == 0
    assert shown.page.inner_text("#play") == "Pause"
    shown.page.clock.run_for(1200)
    assert shown.state()["round"] == 1
    shown.page.keyboard.press("Space")
    shown.page.clock.run_for(20_000)
    assert shown.state()["round"] == 1
    assert shown.page.inner_text("#play") == "Play"
    shown.page.keyboard.press("Space")
    shown.page.clock.run_for(20_000)
    assert shown.state()["round"] == last
    assert shown.page.inner_text("#play") == "Replay"
    assert "The cascade stops here" in shown.page.inner_text("#state")
    shown.page.click("#play")
    assert shown.state()["round"] == 0


def test_buttons_step_and_end_where_the_cascade_does(
    opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["part"])
    last = len(pages["part"].payload.cascade.steps) - 1
    assert shown.page.is_disabled("#forth")
    for number in range(last - 1, -1, -1):
        shown.page.click("#back")
        assert shown.state()["round"] == number
    assert shown.page.is_disabled("#back")
    shown.page.click("#forth")
    assert shown.state()["round"] == 1
    assert len(shown.page.query_selector_all("#ticks span")) == last + 1


def test_where_nothing_is_recovered_there_is_nothing_to_replay(
    opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["nothing"])
    assert shown.page.is_disabled("#play")
    assert shown.page.is_disabled("#round")
    assert "Not recovered is not safe" in shown.page.inner_text("#state")


def test_the_mosaic_holds_what_was_recovered(
    part: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["part"])
    rounds = rounds_of(part)
    for number in range(int(rounds.max()) + 1):
        shown.page.fill("#round", str(number))
        fallen = int(((rounds > 0) & (rounds <= number)).sum())
        shown.page.wait_for_selector(f"#mosaic[data-drawn='{fallen}']")


def _chain(audit: Audit, sample: int) -> list[tuple[int, int, list[int]]]:
    """The slow and obvious way: who had to be subtracted where, back to the first round."""
    grid, rounds, places = audit.exposure.grid.numpy(), rounds_of(audit), found_at(audit)
    steps = []
    while True:
        neuron = int(audit.recovery.sources[places[sample]])
        others = [i for i in np.flatnonzero(grid[neuron]).tolist() if i != sample]
        assert all(0 < rounds[i] < rounds[sample] for i in others)
        steps.append((sample, neuron, others))
        if not others:
            return steps
        sample = max(others, key=lambda i: rounds[i])


def test_the_chain_leads_back_to_a_sample_that_is_read_directly(
    part: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["part"])
    rounds = rounds_of(part)
    # By default one of those that took longest.
    first = int(shown.page.input_value("#chain-sample"))
    assert rounds[first] == rounds.max()
    for sample in np.flatnonzero(rounds).tolist():
        shown.page.select_option("#chain-sample", str(sample))
        steps = _chain(part, sample)
        _, neuron, others = steps[0]
        text = shown.page.inner_text("#chain-text")
        assert text.startswith(f"Sample {sample} was recovered in round {rounds[sample]} from")
        assert f"neuron {neuron}" in text
        if others:
            assert text.split(". ")[1].startswith(f"{len(others)} other sample")
        assert len(shown.page.query_selector_all("#chain rect")) == rounds[sample] == len(steps)


def test_the_row_cascade_needs_no_chain(opened: Open, pages: dict[str, Report]) -> None:
    payload = pages["rows"].payload
    shown = opened(pages["rows"])
    sample = next(one.index for one in payload.samples if one.way == Way.ROWS)
    shown.page.select_option("#chain-sample", str(sample))
    assert "by the row cascade" in shown.page.inner_text("#chain-text")
    assert shown.page.query_selector("#chain svg") is None
    last = payload.cascade.steps[-1]
    assert last.by_rows
    assert f"{last.recovered} samples recovered by the row cascade" in shown.page.inner_text(
        "#state"
    )


def test_pointing_names_sample_neuron_and_round(
    part: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["part"], viewport={"width": 1400, "height": 1000})
    rounds = rounds_of(part)
    payload = pages["part"].payload
    box = shown.page.locator("#mosaic").bounding_box()
    assert box is not None
    assert payload.mosaic is not None
    sample = int(np.flatnonzero(rounds)[0])
    row, column = divmod(sample, payload.mosaic.columns)
    place = {
        "x": (column + 0.4) * box["width"] / payload.mosaic.columns,
        "y": (row + 0.4) * box["height"] / payload.mosaic.rows,
    }
    shown.page.hover("#mosaic", position=place)  # type: ignore[arg-type]
    text = shown.page.inner_text(".large .pointed")
    source = int(part.recovery.sources[found_at(part)[sample]])
    assert text.startswith(f"Sample {sample}, label {int(part.y[sample])}: ")
    assert text.endswith(f"in round {rounds[sample]}, neuron {source}")
    shown.page.click("#mosaic", position=place)  # type: ignore[arg-type]
    assert shown.page.input_value("#chain-sample") == str(sample)
    shown.page.hover("#grid", position={"x": 1, "y": 1})
    first, neuron = payload.cascade.samples[0], payload.cascade.neurons[0]
    text = shown.page.inner_text(".small .pointed")
    assert text.startswith(f"Sample {first} ")
    assert f"fire neuron {neuron}" in text.replace("fires", "fire")
