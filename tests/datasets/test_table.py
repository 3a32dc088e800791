"""Tables of named columns: numbers are scaled, categories get a column each, units come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet, table

import gradpeel as gp
from gradpeel.datasets import Dataset, draw_batch, from_frame, load
from gradpeel.networks import mlp

PEOPLE = pd.DataFrame(
    {
        "age": [30, 50, 41, 22, 67, 35],
        "income": [1e5, 3.5e4, 7e4, 2e4, 6.1e4, 9e4],
        "job": ["nurse", "clerk", "nurse", "smith", "clerk", "nurse"],
        "member": [True, False, True, True, False, False],
        "label": [0, 1, 1, 0, 2, 1],
    }
)
FEATURES = ("age", "income", "job = clerk", "job = nurse", "job = smith", "member")


def test_numbers_are_standardised_and_categories_get_a_column_each() -> None:
    data = from_frame(PEOPLE)
    assert data.feature_names == FEATURES
    assert data.classes == 3
    assert data.y_train.tolist() == PEOPLE["label"].tolist()
    numbers = data.x_train[:, [0, 1, 5]]
    np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(numbers.std(axis=0), 1)
    assert data.x_train[:, 2:5].tolist()[0] == [0, 1, 0]
    assert len(data.x_test) == 0


@settings(max_examples=40)
@given(
    ages=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=6),
    scaling=st.sampled_from(["standard", "minmax"]),
    seed=st.integers(0, 9),
)
def test_units_give_back_what_was_measured(ages: list[float], scaling: str, seed: int) -> None:
    jobs = np.random.default_rng(seed).choice(["a", "b", "c"], len(ages))
    frame = pd.DataFrame({"age": ages, "job": jobs, "y": [0, 1] + [1] * (len(ages) - 2)})
    data = from_frame(frame, scaling=scaling)
    assert data.units is not None
    back = data.units.original(data.x_train)
    np.testing.assert_allclose(back[:, 0], ages, atol=1e-6)
    names = np.array([name for name in data.feature_names or () if name != "age"])
    assert [name.removeprefix("job = ") for name in names[back[:, 1:].argmax(1)]] == list(jobs)


def test_the_report_shows_original_units() -> None:
    data = from_frame(PEOPLE, name="people")
    batch = draw_batch(data, 6)
    model = mlp(6, 3, (300,), rng=np.random.default_rng(0))
    page = gp.report(gp.audit(model, batch.x, batch.y), data)
    assert page.payload.features == FEATURES
    assert page.payload.in_units
    shown = [sample.values[:2] for sample in page.payload.samples]
    np.testing.assert_allclose(shown, PEOPLE[["age", "income"]].to_numpy(dtype=float))


def test_other_records_are_encoded_by_the_same_numbers() -> None:
    data = from_frame(PEOPLE, test=PEOPLE.iloc[[4, 1]])
    np.testing.assert_array_equal(data.x_test, data.x_train[[4, 1]])
    assert data.y_test.tolist() == [2, 1]


def test_labels_of_text_and_of_other_numbers() -> None:
    words = PEOPLE.assign(label=["no", "yes", "yes", "no", "maybe", "no"])
    data = from_frame(words)
    assert data.class_names == ("maybe", "no", "yes")
    assert data.y_train.tolist() == [1, 2, 2, 1, 0, 1]
    signs = from_frame(PEOPLE.assign(label=[-1, 1, 1, -1, 1, -1]))
    assert (signs.class_names, signs.y_train.tolist()) == (("-1", "1"), [0, 1, 1, 0, 1, 0])
    kinds = pd.Categorical(words["label"], ["yes", "no", "maybe"])
    assert from_frame(PEOPLE.assign(label=kinds)).class_names == ("yes", "no", "maybe")


def test_files_hold_the_same(tmp_path: Path) -> None:
    PEOPLE.to_csv(tmp_path / "people.csv", index=False)
    PEOPLE.to_csv(tmp_path / "semicolons.CSV", index=False, sep=";", encoding="utf-8-sig")
    columns: dict[str, Any] = {name: PEOPLE[name].tolist() for name in PEOPLE}
    parquet.write_table(table(columns), tmp_path / "people.parquet")
    expected = from_frame(PEOPLE, scaling="minmax")
    for name in ("people.csv", "semicolons.CSV", "people.parquet"):
        data = load(tmp_path / name)
        assert data.name == Path(name).stem
        # A column of truth values is text in a CSV file.
        same = [i for i, one in enumerate(data.feature_names or ()) if one in FEATURES[:5]]
        np.testing.assert_array_equal(data.x_train[:, same], expected.x_train[:, :5])
        assert data.y_train.tolist() == expected.y_train.tolist()


def test_the_column_of_labels_can_be_chosen(tmp_path: Path) -> None:
    PEOPLE.rename(columns={"label": "outcome"}).to_csv(tmp_path / "people.csv", index=False)
    data = load(tmp_path / "people.csv", label_column="outcome")
    assert data.y_train.tolist() == PEOPLE["label"].tolist()


def written(folder: Path, text: str) -> Dataset:
    (folder / "a.csv").write_text(text, encoding="utf-8")
    return load(folder / "a.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,label\n", "no rows: expected a line of names and lines of values"),
        ("age,label\n1,0\n2\n", "row 2 has 1 values: expected 2, as the first line has"),
        ("age,label\n1,0\nNA,1\n", "column 'age': 1 of 2 values are missing: expected none"),
        ("age,label\n1,0\ninf,1\n", "x_train[1, 0]=inf: expected finite numbers"),
        ("age,size\n1,0\n2,1\n", "no column of labels: expected label_column, or a column called"),
        ("age,age,y\n1,0,1\n", "two columns are called 'age': expected different names"),
        ("y\n1\n0\n", "no column beside 'y': expected features"),
        (
            "age,y\n1,0.5\n2,1\n",
            "column 'y' holds 0.5: expected class labels, whole numbers or text",
        ),
        (
            "name,y\n" + "".join(f"n{i},{i % 2}\n" for i in range(65)),
            "column 'name' holds 65 different texts: expected numbers, or at most 64 categories",
        ),
        ('age,y\n"1,0\n', "cannot be read: unexpected end of data"),
        ("age,y\n1,0\n2,0\n", "classes=1: expected 2 to 65536"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(gp.InputError) as caught:
        written(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'a.csv'}: {message}")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (PEOPLE.iloc[:0], "table: a DataFrame without rows"),
        ([1], "frame of type list: expected a pandas DataFrame"),
        (PEOPLE.assign(age=pd.Timestamp(0)), "table: column 'age' of dtype datetime64"),
        (PEOPLE.assign(job=[None, *"abcab"]), "table: column 'job': 1 of 6 values are missing"),
        (PEOPLE.drop(columns="label"), "table: no column of labels: expected label_column, or a"),
    ],
)
def test_bad_frames(frame: Any, message: str) -> None:
    with pytest.raises(gp.InputError) as caught:
        from_frame(frame)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (PEOPLE.assign(job="cook"), "table, test: column 'job' holds 'cook': expected one of 'cl"),
        (PEOPLE.assign(job=3), "table, test: column 'job' holds numbers: expected text"),
        (PEOPLE[["age", "label"]], "table, test: columns 'age', 'label': expected 'age', 'income'"),
    ],
)
def test_records_that_do_not_fit(test: Any, message: str) -> None:
    with pytest.raises(gp.InputError) as caught:
        from_frame(PEOPLE, test=test)
    assert str(caught.value).startswith(message)


def test_a_parquet_column_of_another_type(tmp_path: Path) -> None:
    parquet.write_table(table({"when": [[1], [2]], "y": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(gp.InputError, match=r"column 'when' of type list<.*: expected numbers or"):
        load(tmp_path / "a.parquet")
    parquet.write_table(table({"age": [1, None], "y": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(gp.InputError, match="column 'age': 1 of 2 values are missing"):
        load(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(gp.InputError, match=r"a.parquet: cannot be read: "):
        load(tmp_path / "a.parquet")
