from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradpeel.errors import InputError
from gradpeel.sweeps import Store, is_sweep, read_results
from sweep_rows import CELL, failed, measured


def _fill(folder: Path, manifest: str | None) -> None:
    with Store(folder) as store:
        store.record(measured(CELL, 0, recovered=5))
        store.record(failed(CELL, 1))
    if manifest is not None:
        (folder / "manifest.json").write_text(manifest)


def test_rows_failures_and_notes_come_back(tmp_path: Path) -> None:
    told = {"data": {"mnist": {"note": "other"}, "svhn": {"note": None}}}
    _fill(tmp_path, json.dumps(told))
    assert is_sweep(tmp_path)
    results = read_results(tmp_path)
    assert list(results.rows) == [measured(CELL, 0, recovered=5)]
    assert list(results.failures) == [failed(CELL, 1)]
    assert results.notes == {"mnist": "other"}


def test_a_sweep_that_was_killed_has_no_manifest_yet(tmp_path: Path) -> None:
    _fill(tmp_path, None)
    assert read_results(tmp_path).notes == {}


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"data": 3}', '{"data": {"a": 1}}'])
def test_a_manifest_of_another_kind_is_refused(manifest: str, tmp_path: Path) -> None:
    _fill(tmp_path, manifest)
    with pytest.raises(InputError, match=r"manifest.json: expected the manifest"):
        read_results(tmp_path)


def test_a_directory_without_results_is_refused(tmp_path: Path) -> None:
    assert not is_sweep(tmp_path)
    with pytest.raises(InputError, match=r"no results.sqlite: expected a directory"):
        read_results(tmp_path)
    assert list(tmp_path.iterdir()) == []
