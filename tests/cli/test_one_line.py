from __future__ import annotations

import errno

import pytest
import typer

from gradpeel.cli.one_line import OneLineErrors
from gradpeel.errors import (
    ImpossibleModelError,
    InputError,
    ModelRefusedError,
    ModelSettingError,
)


def end(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stderr of a command that ends with `error`."""
    app = typer.Typer(cls=OneLineErrors, pretty_exceptions_enable=False)

    @app.callback()
    def group() -> None: ...

    @app.command()
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit) as stop:
        app(["fail"])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert isinstance(stop.value.code, int)
    return stop.value.code, captured.err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("batch_size=0: expected a positive integer"), "batch_size=0: expected a po"),
        (InputError("two\nlines and \x1b[2J"), r"two\nlines and \x1b[2J"),
        (PermissionError(errno.EACCES, "Permission denied", "/there"), "/there: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "[Errno 28] No space left on device"),
        (OSError(errno.EBUSY, "Busy", "from", None, "to"), "to: Busy"),
        (OSError("no number"), "no number"),
        (MemoryError("8 TiB"), "not enough memory: 8 TiB"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = end(error, capsys)
    assert code == 2
    assert err.startswith(f"error: {line}")
    assert err.count("\n") == 1


def test_an_option_that_is_wrong_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = end(typer.BadParameter("not so"), capsys)
    assert code == 2
    assert err.startswith("error: ")
    assert err.endswith("not so\n")
    assert err.count("\n") == 1


def test_a_refused_model_gets_a_line_for_each_reason(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = [ImpossibleModelError("no Linear"), ModelSettingError("dropout is active")]
    code, err = end(ModelRefusedError(reasons), capsys)
    assert code == 2
    assert err.splitlines() == [
        "error: the model cannot be audited: [this attack does not apply] no Linear",
        (
            "error: the model cannot be audited: [change this setting] dropout is active "
            "(this says nothing about other attacks)"
        ),
    ]


def test_an_interrupt_is_told_and_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert end(KeyboardInterrupt(), capsys) == (130, "interrupted\n")


def test_a_reader_that_left_is_not_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = end(BrokenPipeError(errno.EPIPE, "Broken pipe"), capsys)
    assert (code, err) == (1, "")


@pytest.mark.parametrize("fault", [ValueError("a fault"), AssertionError(), RuntimeError("gone")])
def test_a_fault_stays_visible(fault: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(type(fault)):
        end(fault, capsys)
