"""`gradpeel check`: the exit code says whether a budget holds, leaks more, or is not known."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner, Result

from gradpeel.cli import main
from gradpeel.datasets import load

SMALL = "check --data digits --batch-size 16 --batches 1 --neurons 200"
OPEN = (
    "check --data breast_cancer --scaling standard --init torch --quick --batch-size 30 "
    "--batches 1 --neurons 400 --max-readable 0.9"
)
DEFENDED = f"{SMALL} --noise 10"
REFUSED = """
from torch import nn
def make(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
def fault(): return Faulty()
class Faulty(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, 50), nn.Linear(50, 10)
        self.calls = 0
    def forward(self, x):
        return self.two(self.one(x.flatten(1)).relu())
"""


def run(command: str) -> Result:
    return CliRunner().invoke(main, command.split())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "networks_of_check.py").write_text(REFUSED, encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (SMALL, 0),
        (f"{SMALL} --max-readable 0.05", 1),
        (f"{SMALL} --max-readable 1", 0),
        (f"{SMALL} --max-readable 1 --max-members 0", 1),
        (f"{DEFENDED} --max-readable 0 --max-members 0", 0),
        (f"{SMALL} --quick --max-readable 0.05", 1),
        (OPEN, 2),
        (f"{SMALL} --max-readable 5", 2),
        (f"{SMALL} --quick --max-members 0", 2),
        ("check --data digits --batch-size 5000", 2),
        ("check --data digits --batch-size 64 --batches 100", 2),
        ("check --data digits --model networks_of_check:make --max-readable 1", 2),
        ("check --data digits --no-such-option", 2),
    ],
)
def test_the_exit_code_is_the_answer(command: str, code: int) -> None:
    finished = run(command)
    assert finished.exit_code == code, finished.output
    assert "Traceback" not in finished.output


@pytest.mark.slow
def test_the_network_of_an_audit_leaks_digits() -> None:
    assert run("check --data digits --batch-size 64 --max-readable 0.05").exit_code == 1


@pytest.mark.slow
def test_a_guarded_update_passes_and_nothing_is_listed_as_read() -> None:
    said = run(f"{SMALL} --max-readable 0 --max-members 0 --defences guard")
    assert said.exit_code == 0
    assert "The budget holds. 0 of 16 records" in said.stdout
    assert "What peeling reads" not in said.stdout
    assert "What peeling reads of batch 1" in run(SMALL).stdout
    assert "The budget" not in run(SMALL).stdout


def test_a_fault_inside_is_not_taken_for_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("gradpeel.checking.check_batches", fail)
    finished = run(f"{SMALL} --junit out.xml")
    assert finished.exit_code == 2
    assert "out of order" in finished.output
    (error,) = ET.parse("out.xml").getroot().iter("error")  # noqa: S314 - our own file
    assert error.get("message") == "RuntimeError: out of order"


def test_the_result_as_json() -> None:
    finished = run(f"{SMALL} --max-readable 0.05 --format json")
    found = json.loads(finished.stdout)
    assert (found["exit_code"], found["readable"], found["records"]) == (1, 16, 16)
    assert found["breaches"] == [
        "batch 1: 16 of 16 records can be read: max_readable=0.05 allows 0"
    ]
    (one,) = found["checks"]
    assert [each["record"] for each in one["each"]] == list(range(16))
    assert all(each["round"] >= 1 and each["neurons"] for each in one["each"])


def test_quick_checks_every_batch_of_the_data() -> None:
    finished = run("check --data digits --batch-size 128 --quick --format json")
    samples = len(load("digits").x_train)
    assert json.loads(finished.stdout)["batches"] == samples // 128 > 5


def test_the_files_tell_of_each_batch() -> None:
    command = "check --data digits --batch-size 8 --batches 2 --neurons 200 --max-readable 0"
    assert run(f"{command} --max-members 1 --sarif out.sarif --junit out.xml").exit_code == 1
    log = json.loads(Path("out.sarif").read_text(encoding="utf-8"))
    assert log["version"] == "2.1.0"
    (one,) = log["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["GP001", "GP002"]
    assert len(one["results"]) == 2
    for number, result in enumerate(one["results"], start=1):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "GP001"
        assert (result["kind"], result["level"]) == ("fail", "error")
        assert result["message"]["text"].startswith(f"batch {number}, layer 1: 8 of 8 records")
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"]
    (suite,) = ET.parse("out.xml").getroot()  # noqa: S314
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "0")
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["batch 1: data reconstruction", "batch 2: data reconstruction"]


def test_a_question_left_open_is_an_error_and_no_failure() -> None:
    assert run(f"{OPEN} --sarif out.sarif --junit out.xml").exit_code == 2
    (one,) = json.loads(Path("out.sarif").read_text(encoding="utf-8"))["runs"]
    assert [result["kind"] for result in one["results"]] == ["open"]
    (suite,) = ET.parse("out.xml").getroot()  # noqa: S314
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")


def test_the_files_tell_of_a_refusal_and_of_where_the_network_is() -> None:
    command = "check --data digits --model networks_of_check:make --max-readable 1"
    assert run(f"{command} --sarif out.sarif --junit out.xml").exit_code == 2
    (one,) = json.loads(Path("out.sarif").read_text(encoding="utf-8"))["runs"]
    (invocation,) = one["invocations"]
    assert not invocation["executionSuccessful"]
    assert "cannot be audited" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    (suite,) = ET.parse("out.xml").getroot()  # noqa: S314
    assert suite.get("errors") == "1"
    command = "check --data digits --batch-size 8 --batches 1 --model networks_of_check:fault"
    assert run(f"{command} --max-readable 0 --sarif out.sarif").exit_code == 1
    (one,) = json.loads(Path("out.sarif").read_text(encoding="utf-8"))["runs"]
    (place,) = one["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "networks_of_check.py"


def test_the_action_names_options_that_exist() -> None:
    action = (Path(__file__).resolve().parents[2] / "action.yml").read_text(encoding="utf-8")
    script = action[action.index("read -r -a") :]
    used = {word for word in re.sub("[()]", " ", script).split() if word.startswith("--")}
    known = {opt for command in _commands() for opt in command.opts}
    assert used
    assert used <= known


def _commands() -> list[Any]:
    import typer

    group: Any = typer.main.get_command(main)
    return list(group.commands["check"].params)
