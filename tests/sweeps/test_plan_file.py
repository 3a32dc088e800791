from __future__ import annotations

from pathlib import Path

import pytest

from gradpeel.errors import InputError
from gradpeel.sweeps import Plan, read_plan

GOOD = """\
# what to run
datasets = ["digits", "breast_cancer"]
designs = [
  "passive",
  "soliton-data",
]
batch_sizes = [16,
  64]
seeds = [0, 5]
tails = [[], [256, 128]]
soliton = [0.1, 0.5]
"""


def test_a_file_makes_the_plan_it_spells(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(GOOD)
    assert read_plan(path) == Plan(
        datasets=["digits", "breast_cancer"],
        designs=["passive", "soliton-data"],
        batch_sizes=[16, 64],
        seeds=[0, 5],
        tails=[[], [256, 128]],
        soliton=[0.1, 0.5],
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch_sizes", "batchsizes", "line 7: batchsizes: unknown key: did you mean batch_sizes?"),
        ("seeds", "colour", "line 9: colour: unknown key: expected one of datasets, designs"),
        ('"soliton-data"', '"soliton"', "line 5: designs='soliton': expected one of passive"),
        ('"passive",', '"passiv",', "line 4: designs='passiv': expected one of passive"),
        ("  64]", "  0]", "line 8: batch_sizes=0: expected positive integers"),
        ("  64]", "  16]", "line 7: batch_sizes=16: expected each only once"),
        ('["digits", "breast_cancer"]', "[]", "line 2: datasets=[]: expected at least one"),
        ("[0, 5]", "0", "line 9: seeds=0: expected a list (integers"),
        ("[256, 128]", "[256, 0]", "line 10: tails=[256, 0]: expected lists of positive"),
        ("[0.1, 0.5]", "[0.1, 7]", "line 11: soliton=(0.1, 7): delta=7: expected"),
        ("seeds = [0, 5]", "seeds = [0, 5", "not TOML: "),
        ("seeds = [0, 5]", "[seeds]", "line 9: seeds={"),
        ("seeds = [0, 5]", "[seeds.x]", "line 9: seeds={"),
        ("seeds = [0, 5]", "seeds.x = 1", "line 9: seeds={"),
        ("seeds = [0, 5]", '"see ds" = 1', "line 9: see ds: unknown key: did you mean seeds?"),
        ("[0, 5]", "9" * 5000, "not TOML: "),
        ("[0, 5]", "[" * 5000, "not TOML: "),
        ('datasets = ["digits", "breast_cancer"]\n', "", "datasets missing: expected a list"),
        ("seeds = [0, 5]", "seeds = 1\nseeds = 2", "not TOML: "),
    ],
)
def test_what_is_wrong_is_told_with_line_and_key(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.toml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(InputError) as error:
        read_plan(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_odd_line_breaks_in_a_comment_do_not_shift_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(GOOD.replace("to run", "to \u2028 run").replace("seeds", "sedes"), "utf-8-sig")
    with pytest.raises(InputError, match="line 9: sedes: unknown key"):
        read_plan(path)


def test_files_that_are_no_plans(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: "):
        read_plan(tmp_path / "none.toml")
    with pytest.raises(InputError, match="cannot be read: "):
        read_plan(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_plan(tmp_path / "bytes.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(InputError, match="more than 1048576 bytes"):
        read_plan(tmp_path / "large.toml")
