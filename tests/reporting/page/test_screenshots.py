"""Every kind of page at every width, in light and dark: nothing overflows, axe finds nothing.

The findings of an audit fit one sheet of paper.

A screenshot of each is left in pytest's temporary directory, or in $GRADPEEL_ARTEFACTS, to be
looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import gradpeel as gp
from gradpeel import Aggregation, Attacker, Audit, Client, Report, audit, report
from gradpeel.datasets import Dataset, draw_batch, load
from gradpeel.networks import mlp
from gradpeel.paper.table1 import Table1
from gradpeel.paper.table1_page import to_html
from gradpeel.reporting.page import Document
from gradpeel.reporting.page.sweep_page import sweep_html
from gradpeel.stopping import LADDERS, Stopping, Trial
from gradpeel.sweeps import Results
from opened_page import Opened
from sweep_rows import CELL, failed, measured

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTHS = (360, 390, 768, 1440, 1920)
SHOT_AT = (360, 1440)
PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""A picture taken earlier may lack what has just moved."""
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
KINDS = (
    "everything",
    "part",
    "nothing",
    "rows",
    "copies",
    "without-labels",
    "tiles",
    "table",
    "features",
    "feature-vectors",
    "inversion",
    "tokens",
    "local-training",
    "clients",
    "without-samples",
    "compared",
    "stopped",
    "spread",
    "curve",
    "sweep",
    "sweep-clients",
    "table1",
)
SOLITON = replace(CELL, design="soliton-data", weights="mirrored", soliton=(0.05, 0.4))


@dataclass(frozen=True)
class Audits:
    """Audits that other tests look at too, and their data."""

    whole: Audit
    part: Audit
    nothing: Audit
    by_rows: Audit
    doubled: Audit
    unlabelled: Audit
    records: Audit
    digits: Dataset
    patients: Dataset


@pytest.fixture(scope="session")
def audits(
    *,
    whole: Audit,
    part: Audit,
    nothing: Audit,
    by_rows: Audit,
    doubled: Audit,
    unlabelled: Audit,
    records: Audit,
    digits: Dataset,
    patients: Dataset,
) -> Audits:
    return Audits(whole, part, nothing, by_rows, doubled, unlabelled, records, digits, patients)


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("GRADPEEL_ARTEFACTS")
    folder = Path(named) / "pages" if named else tmp_path_factory.mktemp("pages")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _audited(
    data: Dataset,
    batch_size: int,
    neurons: int,
    client: Client = Client(),  # noqa: B008 - immutable
    clients: int = 1,
) -> Audit:
    batch = draw_batch(data, batch_size)
    rng = np.random.default_rng(0)
    shape = data.sample_shape
    model = mlp(data.features, data.classes, (neurons,), rng=rng, sample_shape=shape)
    return audit(
        model,
        batch.x,
        batch.y,
        client=client,
        attacker=Attacker(effort=0.0),
        aggregation=Aggregation(clients),
    )


def _feature_vectors() -> Report:
    """A convolution stands in front of the layer."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 400),
        nn.ReLU(),
        nn.Linear(400, 10),
    )
    data = load("digits")
    batch = draw_batch(data, 16)
    found = audit(model, batch.x, batch.y, attacker=Attacker(effort=0.0))
    assert found.recovery.space == "features"
    return report(found, data)


def _inversion() -> Report:
    """Pictures behind a convolution, reconstructed from their feature vectors."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 4), nn.ReLU(), nn.Flatten(), nn.Linear(200, 200), nn.ReLU(),
        nn.Linear(200, 10),
    )  # fmt: skip
    data = load("digits")
    batch = draw_batch(data, 6)
    found = audit(model, batch.x.float()[:, None], batch.y, attacker=Attacker(effort=0.0))
    return report(found, data, inversion=found.invert(data_range=(0.0, 1.0)))


def _tokens() -> Report:
    """Tokens behind an embedding, which its gradient names."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(20, 5), nn.Flatten(), nn.Linear(15, 100), nn.ReLU(), nn.Linear(100, 2)
    )
    found = audit(model, torch.randint(20, (4, 3)), torch.tensor([0, 1, 0, 1]))
    return report(found, inversion=found.invert())


def _features() -> Dataset:
    """As many unnamed features as HARUS has."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 561)), np.arange(40) % 6
    return Dataset("sensors", x[:20], y[:20], x[20:], y[20:], classes=6)


def _stopping() -> Stopping:
    """As many defences as are tried, with the longest words."""
    dp = "keeps > 99.9 % of the update; epsilon 504,000 for one update (delta 1e-05)"
    kept = "keeps 99.3 % of the update"
    tried = [
        Trial(words, settings[-1], stops=True, readable=0, samples=8, members=0, cost=kept)
        for words, settings in LADDERS.values()
    ]
    tried[1] = replace(tried[1], stops=False, readable=3, members=8)
    tried[2] = replace(tried[2], stops=None, readable=None, members=None, cost="unknown")
    tried[7] = replace(tried[7], cost=dp)
    return Stopping((*tried, replace(tried[1], defence="Secure aggregation", setting="8 clients")))


def _results() -> Results:
    cells = ((CELL, 0.4), (SOLITON, 1.0), (replace(CELL, effort=1.0), 1.0))
    rows = [
        measured(
            replace(cell, batch_size=size, noise=noise),
            seed,
            recovered=round(share * size) - (seed if share < 1 else 0),
            reachable=size,
        )
        for cell, share in cells
        for size in (64, 128, 512, 1024)
        for noise in (0.0, 1e-4)
        for seed in range(3)
    ]
    return Results(rows, [failed(CELL)], {"mnist": "26 classes instead of 62"}, [])


def _results_of_clients() -> Results:
    """Secure aggregation and local training."""
    rows = [
        measured(
            replace(CELL, batch_size=32, clients=clients, lr=lr, local_steps=steps),
            seed,
            recovered=round(32 * clients / (1 + seed + 8 * lr)),
            reachable=32 * clients,
        )
        for clients in (1, 4, 16)
        for lr in (0.01, 0.1)
        for steps in (1, 5)
        for seed in range(2)
    ]
    return Results(rows, [], {}, [])


def _table1() -> str:
    results = _results()
    noiseless = [row for row in results.rows if row.cell.noise == 0]
    return to_html(Table1.of(replace(results, rows=noiseless)))


def _page(kind: str, held: Audits) -> str:
    makers: Mapping[str, Callable[[], Document | str]] = {
        "everything": lambda: report(held.whole, held.digits),
        "part": lambda: report(held.part, held.digits, command="gradpeel audit --data digits"),
        "nothing": lambda: report(held.nothing, held.digits),
        "rows": lambda: report(held.by_rows, held.digits),
        "copies": lambda: report(held.doubled, held.digits),
        "without-labels": lambda: report(held.unlabelled, held.digits),
        "tiles": lambda: report(
            _audited(load("photos"), 260, 600),
            load("photos"),
            command="gradpeel audit --data photos --batch-size 260 --neurons 600 --effort 0",
            compared={"float32": held.part, "noise of 0.001": held.nothing, "batch of 520": None},
            weights="newly initialised",
        ),
        "table": lambda: report(held.records, held.patients),
        "features": lambda: report(_audited(_features(), 12, 400), _features()),
        "feature-vectors": _feature_vectors,
        "inversion": _inversion,
        "tokens": _tokens,
        "clients": lambda: report(_audited(held.digits, 24, 400, clients=4), held.digits),
        "local-training": lambda: report(
            _audited(held.digits, 12, 400, Client(lr=0.02, local_steps=3)), held.digits
        ),
        "without-samples": lambda: report(held.part, held.digits, samples=False),
        "compared": lambda: report(
            held.whole, held.digits, compared={"batch of 40": held.part, "float32": None}
        ),
        "stopped": lambda: report(held.whole, held.digits, stopping=_stopping()),
        "spread": lambda: report(gp.Audits((held.whole, held.part), ("batches",)), held.digits),
        "curve": lambda: report(
            gp.TrainingCurve(
                (0, 250),
                (gp.Audits((held.whole, held.part), ()), gp.Audits((held.part, held.nothing), ())),
            ),
            held.digits,
            command="gradpeel audit --data digits --checkpoints 'run/step-*.safetensors'",
        ),
        "sweep": lambda: sweep_html(_results()),
        "sweep-clients": lambda: sweep_html(_results_of_clients()),
        "table1": _table1,
    }
    assert set(makers) == set(KINDS)
    made = makers[kind]()
    return made if isinstance(made, str) else made.html


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_page_fits_every_screen(
    browser: Browser, audits: Audits, artefacts: Path, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text(_page(kind, audits), encoding="utf-8")
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce")
    shown = Opened(context.new_page(), file)
    for scheme in SCHEMES:
        shown.page.emulate_media(color_scheme=scheme)
        shown.page.reload()
        for width in WIDTHS:
            shown.page.set_viewport_size({"width": width, "height": 900})
            assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
            if width in SHOT_AT:
                shown.page.evaluate(PAINTED)
                path = artefacts / f"{kind}-{width}-{scheme}.png"
                shown.page.screenshot(path=path, full_page=True)
                with Image.open(path) as picture:
                    assert picture.width == width
                    assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 50
        shown.open_details()
        assert shown.violations() == [], scheme
    assert shown.complaints == []
    if shown.page.query_selector("body.one-page"):
        assert shown.pages_on_paper() == (2 if kind == "stopped" else 1)
    context.close()
