from __future__ import annotations

import importlib
import pkgutil
import webbrowser
from pathlib import Path
from typing import Any

import pytest

import gradpeel as gp
from gradpeel import Audit, Report
from gradpeel.datasets import Dataset
from gradpeel.reporting.sentences import verdict


def test_saved_pages_can_be_read_by_their_owner_only(
    pages: dict[str, Report], tmp_path: Path
) -> None:
    path = pages["whole"].save(tmp_path / "new" / "page.html")
    assert path.read_text(encoding="utf-8") == pages["whole"].html
    assert path.stat().st_mode & 0o077 == 0


def test_open_shows_a_private_file(
    pages: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", asked.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = pages["whole"].open()
    assert asked == [path.as_uri()]
    assert path.read_text(encoding="utf-8") == pages["whole"].html
    assert path.parent.stat().st_mode & 0o077 == 0
    assert pages["whole"].open(tmp_path / "here.html") == tmp_path / "here.html"


def test_the_function_and_the_class_are_of_the_package(whole: Audit, digits: Dataset) -> None:
    assert isinstance(gp.report(whole), gp.Report)
    assert gp.report(whole, digits) == gp.Report.of(whole, digits)
    assert repr(gp.report(whole)) == f"Report({verdict(whole)})"
    assert gp.report(whole).payload.data == "own data"


def test_no_name_hides_a_package() -> None:
    packages = [found.name for found in pkgutil.iter_modules(gp.__path__) if found.ispkg]
    assert "reporting" in packages
    for name in packages:
        assert importlib.import_module(f"gradpeel.{name}") is getattr(gp, name)


def test_the_same_audit_gives_the_same_page(whole: Audit, digits: Dataset) -> None:
    assert gp.report(whole, digits).html == gp.report(whole, digits).html


@pytest.mark.parametrize("audit", [None, "audit", Audit])
def test_only_audits_are_reported(audit: Any) -> None:
    kind = type(audit).__name__
    with pytest.raises(gp.InputError, match=f"^audit of type {kind}: expected a gradpeel.Audit$"):
        gp.report(audit)


def test_commands_in_sentences_are_set_as_code_and_escaped() -> None:
    from gradpeel.reporting.page.shell import _coded

    assert _coded("run `a <b>` & c") == "run <code>a &lt;b&gt;</code> &amp; c"
    assert _coded("a ` b") == "a ` b"


def test_the_advice_names_commands_as_code(whole: Audit, digits: Dataset) -> None:
    page = gp.report(whole, digits).html
    assert "<code>gradpeel.exposure(model, x)</code> lists the samples" in page
    assert "<code>gradpeel audit --design soliton-data</code>." in page
