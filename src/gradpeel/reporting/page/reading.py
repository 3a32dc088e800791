"""Read the payload of a page back from a file, which anybody may have written.

Formal guarantees, for a payload that is returned:

- Every value has the type its field says, every number is finite, and nothing was executed: JSON
  holds values only.
- Every place it points at exists: pictures, rows, columns, rounds, features.
- Every picture is a data URI of a PNG file and nothing else, so that a page cannot be made to ask
  for anything elsewhere.
- Every sample is counted once.
- The file was at most `LARGEST` bytes.

What the texts say is not checked: they are shown as they are, escaped, on a page that runs no
script but its own.
"""

from __future__ import annotations

import json
import math
import re
import types
from dataclasses import astuple, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from gradpeel.errors import InputError
from gradpeel.files import check_path
from gradpeel.membership import Verdict
from gradpeel.reporting.page.cascade import unpacked
from gradpeel.reporting.page.payload import VERSION, Payload, Reconstructions
from gradpeel.reporting.tally import Way

__all__ = ["LARGEST", "payload_from", "read_payload"]

LARGEST = 64 * 1024 * 1024
"""Bytes that a file may have."""

LARGEST_INTEGER = 2**53
"""Beyond it the numbers of JavaScript are no longer whole."""
LARGEST_VALUE = 1e15
"""Of atypicality, and of neurons that a design aims at."""

_PICTURE = re.compile(r"data:image/png;base64,iVBORw0KGgo[A-Za-z0-9+/]*={0,2}")


def read_payload(path: Path) -> Payload:
    """Read a payload from a JSON file.

    Raises:
        InputError: the file cannot be read, is too large, or breaks a rule; one line says which.
    """
    check_path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise InputError(f"{path}: {size} bytes: expected at most {LARGEST}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8: expected what an audit wrote") from None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{path}: not JSON: expected what an audit wrote") from None
    try:
        return payload_from(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def payload_from(values: object) -> Payload:
    """Check plain values and make the payload they are.

    Raises:
        InputError: a value breaks a rule; the line names its place.

    Example:
        >>> payload_from({"version": 1})
        Traceback (most recent call last):
        gradpeel.errors.InputError: version=1: expected 5, the version that this gradpeel reads
    """
    if isinstance(values, dict) and values.get("version") != VERSION:
        found = repr(values.get("version"))[:40]
        raise InputError(
            f"version={found}: expected {VERSION}, the version that this gradpeel reads"
        )
    payload = _made(Payload, values, "page")
    assert isinstance(payload, Payload)  # noqa: S101 -- for the type checker
    _check(payload)
    return payload


def _made(kind: Any, value: object, where: str) -> Any:  # noqa: ANN401 -- any annotation
    """The value as its annotation says, or an error."""
    if is_dataclass(kind):
        return _record(kind, value, where)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _made(get_args(kind)[0], value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise InputError(f"{where}: expected a list")
        inner = get_args(kind)[0]
        return tuple(_made(inner, one, f"{where}[{place}]") for place, one in enumerate(value))
    return _plain(kind, value, where)


def _record(kind: Any, value: object, where: str) -> object:  # noqa: ANN401 -- any dataclass
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected an object")
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    for name in names:
        if name not in value:
            raise InputError(f"{where}.{name}: missing")
    for name in value:
        if name not in names:
            raise InputError(f"{where}.{name[:40]!r}: unknown")
    return kind(**{name: _made(hints[name], value[name], f"{where}.{name}") for name in names})


def _plain(kind: type, value: object, where: str) -> object:
    if kind is float and type(value) in (int, float):
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    # Not isinstance: to Python True is an int.
    elif type(value) is kind and not (isinstance(value, int) and abs(value) > LARGEST_INTEGER):
        return value
    words = {float: "a finite number", int: "a whole number", str: "text", bool: "true or false"}
    raise InputError(f"{where}: expected {words[kind]}")


def _check(payload: Payload) -> None:
    """Every place that is pointed at exists."""
    cascade, risk = payload.cascade, payload.risk
    columns, steps = len(cascade.samples), len(cascade.steps)
    _expect(payload.space in {"input", "features"}, "page.space", "input or features")
    _expect(payload.batch_size >= 1, "page.batch_size", "at least 1")
    _expect(columns == payload.batch_size, "page.cascade.samples", "a column for each sample")
    _expect(steps >= 1, "page.cascade.steps", "the start at least")
    _expect(len(cascade.neurons) >= 1, "page.cascade.neurons", "a row at least")
    _within(cascade.samples, columns, "page.cascade.samples")
    _within(cascade.neurons, payload.all_neurons, "page.cascade.neurons")
    _within(cascade.rounds, steps, "page.cascade.rounds")
    _within(cascade.sources, len(cascade.neurons), "page.cascade.sources", first=-1)
    for name, held in (
        ("cascade.rounds", cascade.rounds),
        ("cascade.copies", cascade.copies),
        ("cascade.sources", cascade.sources),
        ("risk.atypicality", risk.atypicality),
        ("risk.rounds", risk.rounds),
    ):
        _expect(len(held) == columns, f"page.{name}", f"{columns} entries")
    try:
        unpacked(cascade.bits, len(cascade.neurons), columns)
    except ValueError:
        raise InputError("page.cascade.bits: expected base64, one bit per cell") from None
    _within(risk.rounds, steps, "page.risk.rounds")
    _within(risk.degrees, payload.all_neurons + 1, "page.risk.degrees")
    _expect(len(risk.degrees) == columns + 1, "page.risk.degrees", f"{columns + 1} entries")
    _expect(len(risk.target) in (0, columns), "page.risk.target", f"0 or {columns} entries")
    for name, values in (("atypicality", risk.atypicality), ("target", risk.target)):
        in_range = all(0 <= value <= LARGEST_VALUE for value in values)
        _expect(in_range, f"page.risk.{name}", f"numbers from 0 to {LARGEST_VALUE:g}")
    _within([one.number for one in payload.story.comparison], columns + 1, "page.story.comparison")
    counts = astuple(payload.tally)
    _expect(min(counts) >= 0, "page.tally", "counts")
    for place, other in enumerate(payload.variations):
        read, size = other.read, other.batch_size
        if read is None or size is None:
            is_share = read is size is None
        else:
            is_share = 0 <= read <= size and size >= 1
        _expect(is_share, f"page.variations[{place}]", "0 to all samples of a batch")
    for place, remedy in enumerate(payload.remedies):
        known = [] if remedy.members is None else [remedy.members]
        _within(known, LARGEST_INTEGER, f"page.remedies[{place}].members")
    _expect(sum(counts) == payload.batch_size, "page.tally", "every sample counted once")
    _check_pictures(payload.pictures, "page.pictures")
    _check_samples(payload)
    for place, table in enumerate(payload.leaked):
        counted = 0 <= len(table.tokens) <= table.number
        _expect(counted, f"page.leaked[{place}]", "at most as many tokens as their number")
    if payload.reconstructions is not None:
        _check_reconstructions(payload.reconstructions, payload.batch_size)


def _check_pictures(pictures: tuple[str, ...], where: str) -> None:
    for place, picture in enumerate(pictures):
        matches = _PICTURE.fullmatch(picture) is not None
        _expect(matches, f"{where}[{place}]", "a PNG file as a data URI")


def _check_reconstructions(rebuilt: Reconstructions, batch_size: int) -> None:
    where = "page.reconstructions"
    _check_pictures(rebuilt.pictures, f"{where}.pictures")
    _expect(len(rebuilt.rows) <= rebuilt.all_rows, f"{where}.all_rows", "a row for each at most")
    for place, row in enumerate(rebuilt.rows):
        _within([row.sample], batch_size, f"{where}.rows[{place}].sample")
        pointed = [held for held in (row.original, row.found) if held is not None]
        _within(pointed, len(rebuilt.pictures), f"{where}.rows[{place}].original or .found")
        _expect(row.residual >= 0, f"{where}.rows[{place}].residual", "a number of at least 0")


def _check_samples(payload: Payload) -> None:
    for place, sample in enumerate(payload.samples):
        where = f"page.samples[{place}]"
        _within([sample.index, sample.risk], payload.batch_size, f"{where}.index or .risk")
        _within([sample.round], len(payload.cascade.steps), f"{where}.round")
        _expect(sample.way in list(Way), f"{where}.way", f"one of {', '.join(Way)}")
        verdicts = get_args(Verdict)
        _expect(
            sample.membership in verdicts, f"{where}.membership", f"one of {', '.join(verdicts)}"
        )
        pointed = [held for held in (sample.original, sample.recovered) if held is not None]
        _within(pointed, len(payload.pictures), f"{where}.original or .recovered")
        for values in (sample.values, sample.found):
            fits = len(values) in (0, len(payload.features))
            _expect(fits, f"{where}.values or .found", "a number for each feature")
    mosaic = payload.mosaic
    if mosaic is not None:
        where = "page.mosaic"
        _within([mosaic.columns, mosaic.rows], payload.batch_size + 300, where, first=1)
        _expect(len(mosaic.places) == len(payload.samples), where, "a place for each sample")
        _within(mosaic.places, mosaic.columns * mosaic.rows, where)


def _expect(held: bool, where: str, rule: str) -> None:
    if not held:
        raise InputError(f"{where}: expected {rule}")


def _within(places: Any, end: int, where: str, *, first: int = 0) -> None:  # noqa: ANN401
    _expect(all(first <= place < end for place in places), where, f"numbers in {first}..{end - 1}")
