from __future__ import annotations

from pathlib import Path

import pytest

from gradpeel.errors import InputError
from gradpeel.sweeps import Store
from gradpeel.sweeps.store import FILE, LOCK
from sweep_rows import CELL, failed, measured


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [measured(CELL, seed=seed, recovered=seed) for seed in range(5)]
    rows.append(failed(CELL, seed=9))
    with Store(tmp_path) as store:
        for row in rows:
            store.record(row)
    with Store(tmp_path) as store:
        assert sorted(store.finished(), key=lambda row: row.cell.seed) == rows
        assert store.keys() == {row.cell.key for row in rows}
        assert store.failed_keys() == {rows[-1].cell.key}


def test_no_cell_is_held_twice(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.record(failed(CELL))
        store.record(measured(CELL, recovered=3))
        assert store.finished() == [measured(CELL, recovered=3)]
        assert store.failed_keys() == set()


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with Store(tmp_path), pytest.raises(InputError, match="another sweep is writing to it"):
        Store(tmp_path)
    Store(tmp_path).close()


def test_all_rows_come_from_the_same_data_and_version(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.agree({"gradpeel": "1", "data digits": "abc"})
        store.record(measured(CELL))
        store.agree({"gradpeel": "1", "data mnist": "def"})
    with Store(tmp_path) as store:
        with pytest.raises(InputError, match="data digits is xyz: data digits was abc"):
            store.agree({"data svhn": "new", "data digits": "xyz"})
        with pytest.raises(InputError, match=r"gradpeel is 2: gradpeel was 1 .* another directory"):
            store.agree({"gradpeel": "2"})
        store.agree({"data svhn": "other"})  # the refusal above noted nothing


@pytest.mark.parametrize("name", [FILE, LOCK])
def test_a_file_that_is_no_store_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match="cannot be used"):
        Store(tmp_path)
    assert (tmp_path / name).read_bytes() == b"not a database" * 100


@pytest.mark.parametrize("name", [FILE, LOCK])
def test_a_store_that_cannot_be_opened_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=f"{name}: cannot be used: "):
        Store(tmp_path)
    with pytest.raises(InputError, match="cannot be written: "):
        Store(tmp_path / "nowhere")


def test_facts_bind_nobody_before_there_are_rows(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.agree({"data digits": "abc"})
        store.agree({"data digits": "xyz"})
        store.record(measured(CELL))
        with pytest.raises(InputError, match="data digits was xyz"):
            store.agree({"data digits": "abc"})


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    Store(tmp_path).close()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_store_of_other_columns_is_refused(tmp_path: Path) -> None:
    import sqlite3

    with Store(tmp_path) as store:
        store.record(measured(CELL))
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("UPDATE cells SET measurement = '{\"strange\": 1}'")
    other.close()
    with Store(tmp_path) as store, pytest.raises(InputError, match="cannot be used as a store"):
        store.finished()
