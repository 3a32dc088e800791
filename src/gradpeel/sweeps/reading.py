"""Read back what a sweep left in its directory."""

from __future__ import annotations

import json
from pathlib import Path

from gradpeel.errors import InputError
from gradpeel.files import is_file
from gradpeel.sweeps.running import MANIFEST, Results
from gradpeel.sweeps.store import FILE, Store

__all__ = ["is_sweep", "read_results"]

MAX_BYTES = 1 << 20


def is_sweep(folder: Path) -> bool:
    """Does a directory hold the results of a sweep?

    Raises:
        InputError: it cannot be determined, for example because the path is too long.
    """
    return is_file(folder / FILE)


def read_results(folder: Path) -> Results:
    """All rows in a sweep's directory, of whatever plan, one data set after the other.

    Raises:
        InputError: another sweep writes to it, or it holds no results.
    """
    if not is_sweep(folder):
        raise InputError(f"{folder}: no {FILE}: expected a directory that a sweep wrote")
    with Store(folder) as store:
        found = sorted(store.finished(), key=lambda one: (one.cell.dataset, str(one.cell)))
    return Results(
        rows=[one for one in found if one.error is None],
        failures=[one for one in found if one.error is not None],
        notes=_notes(folder / MANIFEST),
        files=[],
    )


def _notes(path: Path) -> dict[str, str]:
    """How data sets differ from the paper's, as the manifest states; nothing where it does not."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: more than {MAX_BYTES} bytes: expected a manifest")
        told = json.loads(path.read_text(encoding="utf-8"))["data"]
        notes = {name: known["note"] for name, known in told.items() if known["note"]}
    except FileNotFoundError:  # killed before it was written
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path}: expected the manifest that a sweep wrote") from None
    return {str(name): str(note) for name, note in notes.items()}
