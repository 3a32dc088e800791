"""A report.json that somebody else wrote: every way to break it, and one line for each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradpeel import Report
from gradpeel.errors import InputError
from gradpeel.reporting.page import reading
from gradpeel.reporting.page.reading import payload_from, read_payload

Values = dict[str, Any]


def at(*path: str | int, to: object) -> Callable[[Values], None]:
    """Change one value."""

    def change(values: Any) -> None:
        for step in path[:-1]:
            values = values[step]
        values[path[-1]] = to

    return change


def drop(*path: str | int) -> Callable[[Values], None]:
    def change(values: Any) -> None:
        for step in path[:-1]:
            values = values[step]
        del values[path[-1]]

    return change


TABLE = [
    (at("version", to=1), "version=1: expected 5, the"),
    (drop("version"), "version=None: expected 5"),
    (drop("story"), "page.story: missing"),
    (drop("story", "verdict"), "page.story.verdict: missing"),
    (at("extra", to=1), "page.'extra': unknown"),
    (at("data", to=7), "page.data: expected text"),
    (at("story", to=[]), "page.story: expected an object"),
    (at("story", "advice", to="x"), "page.story.advice: expected a list"),
    (at("story", "advice", 0, to=None), "page.story.advice[0]: expected text"),
    (at("story", "comparison", 0, "number", to=41), "page.story.comparison: expected numbers in"),
    (at("batch_size", to=True), "page.batch_size: expected a whole number"),
    (at("batch_size", to=2.0), "page.batch_size: expected a whole number"),
    (at("batch_size", to=10**30), "page.batch_size: expected a whole number"),
    (at("batch_size", to=0), "page.batch_size: expected at least 1"),
    (at("batch_size", to=41), "page.cascade.samples: expected a column for each sample"),
    (at("tally", "missed", to=41), "page.tally: expected every sample counted once"),
    (
        at("variations", to=[{"name": "float32", "read": 9, "batch_size": 8}]),
        "page.variations[0]: expected 0 to all samples of a batch",
    ),
    (
        at("variations", to=[{"name": "float32", "read": 0, "batch_size": 0}]),
        "page.variations[0]: expected 0 to all samples of a batch",
    ),
    (
        at("variations", to=[{"name": "float32", "read": None, "batch_size": 8}]),
        "page.variations[0]: expected 0 to all samples of a batch",
    ),
    (at("tally", "rows", to=-1), "page.tally: expected counts"),
    (at("samples", 0, "way", to="somehow"), "page.samples[0].way: expected one of read directly"),
    (
        at("samples", 0, "membership", to="perhaps"),
        "page.samples[0].membership: expected one of in, out, unknown",
    ),
    (at("with_samples", to=1), "page.with_samples: expected true or false"),
    (at("cascade", "bits", to="????"), "page.cascade.bits: expected base64"),
    (at("cascade", "bits", to="AAAA"), "page.cascade.bits: expected base64"),
    (at("cascade", "neurons", to=[]), "page.cascade.neurons: expected a row at least"),
    (at("cascade", "neurons", 0, to=200), "page.cascade.neurons: expected numbers in 0..199"),
    (at("cascade", "samples", 0, to=-1), "page.cascade.samples: expected numbers in 0..39"),
    (at("cascade", "samples", to=[0]), "page.cascade.samples: expected a column for each"),
    (at("cascade", "rounds", 0, to=99), "page.cascade.rounds: expected numbers in 0.."),
    (at("cascade", "rounds", to=[]), "page.cascade.rounds: expected 40 entries"),
    (at("cascade", "copies", to=[]), "page.cascade.copies: expected 40 entries"),
    (at("cascade", "sources", 0, to=-2), "page.cascade.sources: expected numbers in -1..199"),
    (at("cascade", "steps", to=[]), "page.cascade.steps: expected the start at least"),
    (at("risk", "rounds", 0, to=99), "page.risk.rounds: expected numbers in 0.."),
    (at("risk", "degrees", to=[1]), "page.risk.degrees: expected 41 entries"),
    (at("risk", "degrees", 0, to=10**9), "page.risk.degrees: expected numbers in 0..200"),
    (at("risk", "target", to=[1.0]), "page.risk.target: expected 0 or 40 entries"),
    (at("risk", "atypicality", 0, to=-1), "page.risk.atypicality: expected numbers from 0"),
    (at("risk", "atypicality", 0, to=10**400), "page.risk.atypicality[0]: expected a finite"),
    (at("samples", 0, "index", to=40), "page.samples[0].index or .risk: expected numbers in"),
    (at("samples", 0, "round", to=99), "page.samples[0].round: expected numbers in"),
    (at("samples", 0, "original", to=99), "page.samples[0].original or .recovered: expected"),
    (at("samples", 0, "values", to=[1.0]), "page.samples[0].values or .found: expected a number"),
    (at("samples", 0, "error", to="0"), "page.samples[0].error: expected a finite number"),
    (at("pictures", 0, to="https://example.org/a.png"), "page.pictures[0]: expected a PNG file"),
    (at("pictures", 0, to="data:text/html;base64,aGk="), "page.pictures[0]: expected a PNG file"),
    (at("pictures", 0, to="data:image/png;base64,PHN2Zz4="), "page.pictures[0]: expected a PNG"),
    (at("mosaic", "places", to=[]), "page.mosaic: expected a place for each sample"),
    (at("mosaic", "places", 0, to=10**6), "page.mosaic: expected numbers in 0.."),
    (at("mosaic", "columns", to=10**6), "page.mosaic: expected numbers in 1.."),
]


@pytest.mark.parametrize(("change", "line"), TABLE, ids=[line for _, line in TABLE])
def test_what_breaks_a_rule_is_told(
    change: Callable[[Values], None], line: str, pages: dict[str, Report]
) -> None:
    values = json.loads(pages["part"].payload.to_json())
    assert payload_from(values) == pages["part"].payload
    change(values)
    with pytest.raises(InputError, match=f"^{re.escape(line)}"):
        payload_from(values)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "not JSON: expected what an audit wrote"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "page: expected an object"),
        (b"null", "page: expected an object"),
        (b'{"version": NaN}', "version=nan: expected 5"),
        (b"9" * 5000, "not JSON"),
    ],
)
def test_what_is_no_payload_is_told(content: bytes, line: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"^{re.escape(f'{file}: {line}')}"):
        read_payload(file)


def test_a_file_that_is_not_there_or_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.json"
    with pytest.raises(InputError, match=r"report\.json: cannot be read: "):
        read_payload(file)
    file.write_bytes(b" " * 100)
    monkeypatch.setattr(reading, "LARGEST", 99)
    with pytest.raises(InputError, match=r"report\.json: 100 bytes: expected at most 99$"):
        read_payload(file)


def test_a_page_is_made_anew(pages: dict[str, Report], tmp_path: Path) -> None:
    for name, page in pages.items():
        file = tmp_path / f"{name}.json"
        file.write_bytes(page.files()["report.json"])
        assert Report.read(file).html == page.html


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.lists(st.integers()),
    st.sampled_from([0, -1, 1, 10**15, 1e-320, 1e300, "</script>", {}, []]),
)


@given(data=st.data())
@pytest.mark.slow
def test_whatever_is_accepted_can_be_shown(data: st.DataObject, pages: dict[str, Report]) -> None:
    """One value of a good file is replaced by something else: it is refused, or there is a page."""
    values = json.loads(pages[data.draw(st.sampled_from(sorted(pages)))].payload.to_json())
    place: Any = values
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans())):
            break
        place = place[key]
    place[key] = data.draw(JUNK)
    try:
        payload = payload_from(values)
    except InputError:
        return
    assert Report(payload).html.count("<script") == 2
