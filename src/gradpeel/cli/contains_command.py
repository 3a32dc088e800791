"""`gradpeel contains`: which of these records took part in a recorded update?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gradpeel.cli.decoder_options import LayerName
from gradpeel.cli.model_files import load_records
from gradpeel.cli.output import AsJson, to_json
from gradpeel.cli.update_files import Sent, takes_update

if TYPE_CHECKING:
    from gradpeel.membership import Membership

__all__ = ["contains_command"]


@takes_update
def contains_command(
    *,
    records: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The records to look for, one per row of an array in an .npz file, as they enter "
            "the network. Pixels of type uint8 are divided by 255.",
        ),
    ],
    sent: Sent,
    layer: LayerName = None,
    non_members: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Records of the same kind that certainly did not take part, to calibrate the "
            "false-positive rate on.",
            show_default="none: the rate is estimated from the update",
        ),
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the array in these files.",
            show_default="the only one, or records, samples or x",
        ),
    ] = None,
    max_false_positive_rate: Annotated[
        float,
        typer.Option(help="Largest acceptable share of non-members that are reported as in."),
    ] = 1e-3,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Write one line per record to this new file.",
            show_default="write nothing",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find out which records took part in an update, without decoding it.

    Each record gets a distance from the update, the error of that distance, and a
    verdict: in, out, or unknown where the update cannot tell. The update may be
    the gradient of one batch (UPDATE and --model), or what any number of local
    steps changed (--before and --after).

    For auditing systems that you own or are permitted to test.

    \b
    gradpeel audit --data digits --out audit
    gradpeel contains audit/update.safetensors --model audit/model.safetensors \\
        --records canaries.npz
    gradpeel contains --before sent.safetensors --after returned.safetensors \\
        --lr 0.1 --local-steps 20 --records canaries.npz
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    from gradpeel.errors import InputError  # noqa: PLC0415
    from gradpeel.membership import contains  # noqa: PLC0415

    if out is not None and out.exists():
        raise InputError(f"{out}: exists: expected a new file")
    network, update = sent.load()
    asked = load_records(records, field)
    others = None if non_members is None else load_records(non_members, field)
    started = time.perf_counter()
    found = contains(
        network,
        update,
        asked.flatten(1) if asked.ndim > 2 else asked,
        non_members=others.flatten(1) if others is not None and others.ndim > 2 else others,
        max_false_positive_rate=max_false_positive_rate,
        layer=layer,
    )
    seconds = time.perf_counter() - started
    if out is not None:
        _write(out, found)
    if as_json:
        each = {
            "verdicts": list(found.verdicts),
            "distances": found.distances.tolist(),
            "errors": found.errors.tolist(),
        }
        typer.echo(to_json({**found.as_dict(), **each, "seconds": seconds}))
    else:
        from gradpeel.reporting.membership_summary import membership_summary  # noqa: PLC0415

        Console().print(membership_summary(found))
    if out is not None:
        typer.echo(f"wrote {out}: one line per record", err=True)


def _write(path: Path, found: Membership) -> None:
    import csv  # noqa: PLC0415

    from gradpeel.files import replacing  # noqa: PLC0415

    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["record", "verdict", "distance", "error", "reason"])
        for place, verdict in enumerate(found.verdicts):
            distance, error = float(found.distances[place]), float(found.errors[place])
            writer.writerow([place, verdict, distance, error, found.reasons[place] or ""])
