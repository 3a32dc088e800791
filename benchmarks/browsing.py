"""A browser for benchmarks of the report page: Debian's chromium, through Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

import gradpeel as gp
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.designs import SolitonData
from gradpeel.networks import mlp

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["CHROMIUM", "OPTIONS", "audited", "browser", "find_chromium"]

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str | None:
    """Where the browser is; None where there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 -- only those who browse have it

    found = find_chromium()
    if found is None:
        raise SystemExit(f"no browser: none of {', '.join(CHROMIUM)} is installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(OPTIONS))
        yield started
        started.close()


def audited(data: Dataset, batch_size: int, neurons: int) -> gp.Report:
    """The report of an audit with Soliton-Data, mirrored."""
    batch = draw_batch(data, batch_size)
    model = mlp(
        data.features,
        data.classes,
        (neurons,),
        rng=np.random.default_rng([0, 0]),
        sample_shape=data.sample_shape,
    )
    design = SolitonData(batch.auxiliary, "mirrored")
    return gp.report(gp.audit(model, batch.x, batch.y, attacker=gp.Attacker(design)), data)
