from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from gradpeel.reporting.sweep_summary import sweep_summary
from gradpeel.sweeps import Results
from sweep_rows import CELL, failed, measured


def _shown(results: Results) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(sweep_summary(results))
    return console.export_text()


def test_every_batch_size_has_its_line_in_eighty_columns() -> None:
    sizes = [64, 128, 256, 300, 350, 400, 512, 600, 700, 800, 900, 1024]
    rows = [
        measured(replace(CELL, batch_size=size), seed, recovered=size // 2 + seed, reachable=size)
        for size in sizes
        for seed in range(2)
    ]
    shown = _shown(Results(rows, [], {}, []))
    assert "…" not in shown
    for size in sizes:
        assert re.search(rf" {size:,} +50\.\d %", shown)
    assert "24 audits measured, 0 false certificates" in shown


def test_local_training_is_told_in_eighty_columns() -> None:
    trained = replace(CELL, lr=0.1, local_steps=5, local_batch_size=16, momentum=0.9)
    shown = _shown(Results([measured(CELL), measured(trained)], [], {}, []))
    assert "…" not in shown
    assert "MNIST, 1,000 neurons\n" in shown
    words = " ".join(shown.split())
    assert "MNIST, 1,000 neurons, learning rate 0.1, 5 local steps, minibatches of 16," in words


def test_the_interval_stays_between_nothing_and_all() -> None:
    rows = [measured(CELL, seed, recovered=found) for seed, found in enumerate([100, 100, 90])]
    # mean 0.967, deviation 0.0577, t = 4.303: 0.143 to either side
    assert "96.7 %  82.3 % to 100 %" in _shown(Results(rows, [], {}, []))


def test_methods_are_spelled_out_as_on_the_page() -> None:
    server = replace(CELL, design="soliton-data", weights="mirrored", effort=1.0)
    shown = _shown(Results([measured(CELL), measured(server)], [], {}, []))
    words = " ".join(shown.split())
    assert "passive server" in words
    assert "…" not in shown
    assert "SD-Mir" not in shown


def test_names_and_errors_are_shown_as_text() -> None:
    odd = replace(CELL, dataset="[/red]\x1b[2J")
    shown = _shown(Results([measured(odd)], [failed(odd, 3)], {"mnist": "other"}, []))
    assert "\x1b" not in shown
    assert "[/red]" in shown
    assert "1 audit failed:" in shown
    assert "ValueError: too bad" in shown
    assert "mnist: other" in shown
