"""`gradpeel peel`: decode a recorded update, without any ground truth."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gradpeel.cli.decoder_options import DataRange, Device, Effort, KnowsTail, LayerName
from gradpeel.cli.loss_options import LossOptions, ReductionName
from gradpeel.cli.output import AsJson, private_directory, to_json
from gradpeel.cli.parsing import parse_pair, parse_sizes
from gradpeel.cli.progress import watch
from gradpeel.cli.update_files import Sent, hint, takes_update
from gradpeel.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gradpeel.decoder import Recovery
    from gradpeel.update import Update

__all__ = ["peel_command"]


@takes_update
def peel_command(
    *,
    sent: Sent,
    layer: LayerName = None,
    reduction: Annotated[
        ReductionName | None,
        typer.Option(
            help="Whether the client's loss was a mean or a sum.",
            show_default="what the file says, or mean",
        ),
    ] = None,
    label_smoothing: Annotated[
        float, typer.Option(help="Label smoothing of the client's cross-entropy.")
    ] = 0.0,
    knows_tail: KnowsTail = True,
    data_range: DataRange = None,
    effort: Effort = 1.0,
    device: Device = "cpu",
    samples: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the samples, as samples.npz, or the feature vectors, as features.npz, into "
            "this new or empty directory, which only you can read.",
            show_default="write nothing",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Shape of one sample in that file, such as 32,32,3.",
            show_default="flat",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decode an update: report how many samples it gives away, with labels and certificates.

    An update is the gradient of one batch (UPDATE and --model), or what local
    training changed (--before and --after). After one local step it is decoded
    like a gradient; after several, samples are read from the first layer alone.

    Recovered samples are personal data. They are counted but not shown, and
    written only with --samples.

    For auditing systems that you own or are permitted to test.

    \b
    gradpeel audit --data digits --out audit
    gradpeel peel audit/update.safetensors --model audit/model.safetensors
    gradpeel peel --before sent.safetensors --after returned.safetensors \\
        --lr 0.1 --local-steps 5
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    limits = None if data_range is None else parse_pair("data-range", data_range, example="0,1")
    sample_shape = None if shape is None else parse_sizes("shape", shape)
    if sample_shape is not None and samples is None:
        raise InputError(f"shape={shape}: only the file that --samples writes has a shape")
    if label_smoothing and not knows_tail:
        raise InputError(
            f"label_smoothing={label_smoothing}: with --unknown-tail there are no labels to smooth"
        )

    with nullcontext() if samples is None else private_directory(samples) as folder:
        # torch takes a second to import; --help and a wrong option need not wait for it.
        from gradpeel.decoder import peel  # noqa: PLC0415
        from gradpeel.target import split  # noqa: PLC0415

        network, update = sent.load(reduction=None if reduction is None else reduction.value)
        target = split(network, layer=layer, share=True)
        classes = _classes(network)
        if sample_shape is not None and target.front.space == "features":
            raise InputError(
                f"shape={shape}: what is recovered are feature vectors that enter layer "
                f"{target.layer!r}, which have no shape"
            )
        if sample_shape is not None and math.prod(sample_shape) != target.features:
            size = target.features
            raise InputError(f"shape={shape}: expected {size} values in all, as the model has")
        loss = LossOptions(label_smoothing=label_smoothing).build()
        started = time.perf_counter()
        with watch(update.batch_size) as watcher:
            recovery = peel(
                network,
                update,
                loss=loss,
                knows_tail=knows_tail,
                data_range=limits,
                effort=effort,
                layer=target.layer,
                device=device,
                on_round=watcher.on_round,
                on_rows=watcher.on_rows,
            )
        seconds = time.perf_counter() - started
        kind = "samples" if recovery.space == "input" else "features"
        if folder is not None:
            _write(folder, kind, recovery, sample_shape or (target.features,))

    advice = None if recovery.found else hint(update.training)
    if as_json:
        numbers = _numbers(update, recovery, classes=classes)
        typer.echo(to_json({**numbers, "hint": advice, "seconds": seconds}))
    else:
        from gradpeel.reporting import peel_summary  # noqa: PLC0415

        Console().print(peel_summary(recovery, classes=classes, hint=advice))
    if samples is not None:
        note = f"recovered {recovery.noun}s are personal data, and only you can read them"
        typer.echo(f"wrote {samples / kind}.npz: {note}", err=True)


def _classes(model: nn.Sequential) -> int:
    """The number of the network's classes."""
    *_, last_bias = model.parameters()
    return last_bias.shape[0]


def _write(folder: Path, kind: str, recovery: Recovery, sample_shape: tuple[int, ...]) -> None:
    import numpy as np  # noqa: PLC0415

    rows = recovery.samples.reshape(len(recovery), *sample_shape).numpy()
    np.savez(
        folder / f"{kind}.npz",
        **{kind: rows},  # type: ignore[arg-type]  # not an option
        labels=recovery.labels.numpy(),
        multiplicities=recovery.multiplicities.numpy(),
        errors=recovery.errors.numpy(),
        rounds=recovery.rounds.numpy(),
        residuals=recovery.residuals.numpy(),
    )


def _numbers(update: Update, recovery: Recovery, *, classes: int) -> dict[str, object]:
    """What was decoded as plain values; samples are not among them."""
    labelled = bool((recovery.labels >= 0).any())
    return {
        "reduction": update.reduction,
        "dtype": str(update.dtype).removeprefix("torch."),
        "recovered": recovery.found,
        "recovered_by_class": recovery.count_labels(classes).tolist() if labelled else None,
        **recovery.as_dict(),
        "max_residual": _largest(recovery.residuals),
        "min_score": float(recovery.scores.min()) if len(recovery) else None,
        "max_error": _largest(recovery.errors),
    }


def _largest(values: Tensor) -> float | None:
    return float(values.max()) if len(values) else None
