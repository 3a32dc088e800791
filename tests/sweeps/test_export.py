from __future__ import annotations

import csv
import io
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from gradpeel.sweeps import Cell, Finished, Measurement
from gradpeel.sweeps.export import timings_csv, to_csv, to_parquet
from sweep_rows import CELL, failed, measured

ODD = replace(
    CELL, dataset='a,"b"\n', design="soliton-free", tail=(64, 32), soliton=(0.1, 0.5), noise=1e-6
)


def test_every_setting_and_every_number_has_a_column() -> None:
    (line,) = csv.DictReader(io.StringIO(to_csv([measured(ODD, recovered=25)]).decode()))
    names = {item.name for item in (*fields(Cell), *fields(Measurement))}
    assert names | {"method", "recovery_rate", "peeling_bound", "error"} == set(line)
    assert line["dataset"] == ODD.dataset
    assert line["tail"] == "64 32"
    assert line["soliton"] == "0.1 0.5"
    assert line["recovery_rate"] == "0.25"
    assert line["error"] == ""


def test_a_failed_cell_has_its_error_and_no_numbers() -> None:
    (line,) = csv.DictReader(io.StringIO(to_csv([failed(CELL)]).decode()))
    assert line["error"] == "ValueError: too bad"
    assert line["recovered"] == line["recovery_rate"] == ""


def test_seconds_are_kept_apart() -> None:
    row = measured(CELL)
    slower = Finished(row.cell, row.measurement, None, 99.0)
    assert to_csv([row]) == to_csv([slower])
    assert timings_csv([row]) != timings_csv([slower])
    assert CELL.key in timings_csv([row]).decode()


rows = st.lists(
    st.builds(
        lambda seed, recovered, tail: measured(replace(CELL, tail=tail), seed, recovered=recovered),
        st.integers(0, 9),
        st.integers(0, 100),
        st.lists(st.integers(1, 9), max_size=2).map(tuple),
    )
    | st.just(failed(ODD)),
    max_size=5,
)


@given(rows)
@pytest.mark.slow
def test_parquet_holds_the_same_as_csv(given_: list[Finished]) -> None:
    table = parquet.read_table(io.BytesIO(to_parquet(given_)))
    lines = list(csv.DictReader(io.StringIO(to_csv(given_).decode())))
    assert table.num_rows == len(lines)
    for mine, line in zip(table.to_pylist(), lines, strict=True):
        assert list(mine) == list(line)
        for name, value in mine.items():
            spelt = " ".join(map(str, value)) if isinstance(value, list) else value
            assert line[name] == ("" if spelt is None else str(spelt))
