"""A cache of its own for every test, so that none sees or changes the user's."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where downloaded data sets go; not there yet."""
    place = tmp_path_factory.mktemp("cache") / "gradpeel"
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: place)
    return place / "datasets"
