"""`gradpeel audit`: simulate a training round on data you own, and report what it gives away."""

from __future__ import annotations

import webbrowser
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gradpeel.cli.audit_files import Finished, design_settings
from gradpeel.cli.command_line import command_line, is_given
from gradpeel.cli.data_options import (
    ROUND,
    ChannelsFirst,
    DataDir,
    DataName,
    ImageSize,
    LabelColumn,
    Scaling,
    ScalingName,
)
from gradpeel.cli.decoder_options import DataRange, Device, Effort, KnowsTail, LayerName
from gradpeel.cli.design_options import ATTACK, DesignChoice, Init, Scale, Soliton, Weights
from gradpeel.cli.loss_options import (
    LabelSmoothing,
    LossChoice,
    LossName,
    LossOptions,
    Reduction,
    ReductionName,
)
from gradpeel.cli.network_options import (
    NEW_NETWORK,
    CheckpointFile,
    CheckpointFiles,
    Dtype,
    DtypeName,
    ModelName,
    NetworkOptions,
    Neurons,
    TailWidths,
)
from gradpeel.cli.output import announce, private_directory, to_json
from gradpeel.cli.parsing import parse_pair, parse_sizes
from gradpeel.cli.training_options import (
    Defences,
    LocalBatchSize,
    LocalEpochs,
    LocalSteps,
    Lr,
    Momentum,
    Noise,
    WeightDecay,
)
from gradpeel.cli.variations import QUICK, SECONDS
from gradpeel.defences.options import NONE, parse
from gradpeel.designs.options import DesignName, DesignOptions
from gradpeel.errors import InputError

__all__ = ["audit_command"]

OUTPUT = "Output"
STOPPING_SECONDS = 120
"""As `gradpeel.stopping.SECONDS`, which torch would have to be imported for."""
MORE = 8
"""Times the batch that defences by larger numbers need."""


def audit_command(
    *,
    context: typer.Context,
    data: DataName,
    data_dir: DataDir = None,
    label_column: LabelColumn = None,
    image_size: ImageSize = None,
    batch_size: Annotated[
        int,
        typer.Option(
            help="Samples in the client's batch, or in that of each client.", rich_help_panel=ROUND
        ),
    ] = 128,
    clients: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of clients whose updates are added up before the server sees them (secure "
            "aggregation).",
            rich_help_panel=ROUND,
        ),
    ] = 1,
    shuffle: Annotated[
        bool,
        typer.Option(
            "--shuffle/--no-shuffle",
            help="Draw the batch at random, from the seed; otherwise take the first samples.",
            rich_help_panel=ROUND,
        ),
    ] = False,
    repeats: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of audits, each on a batch drawn at random and, unless weights are given, "
            "on a newly initialised network. The spread is reported, because a single draw may be "
            "an exception.",
            rich_help_panel=ROUND,
        ),
    ] = 1,
    scaling: Scaling = ScalingName.MINMAX,
    channels_first: ChannelsFirst = False,
    model: ModelName = None,
    checkpoint: CheckpointFile = None,
    checkpoints: CheckpointFiles = None,
    neurons: Neurons = 1000,
    tail: TailWidths = None,
    dtype: Dtype = None,
    noise: Noise = 0.0,
    defences: Defences = NONE,
    loss: LossChoice = LossName.CROSS_ENTROPY,
    label_smoothing: LabelSmoothing = 0.0,
    reduction: Reduction = ReductionName.MEAN,
    lr: Lr = None,
    local_steps: LocalSteps = None,
    local_epochs: LocalEpochs = None,
    local_batch_size: LocalBatchSize = None,
    momentum: Momentum = 0.0,
    weight_decay: WeightDecay = 0.0,
    design: DesignChoice = DesignName.PASSIVE,
    init: Init = None,
    weights: Weights = None,
    scale: Scale = None,
    soliton: Soliton = None,
    knows_batch_size: Annotated[
        bool,
        typer.Option(
            "--knows-batch-size/--unknown-batch-size",
            help="Whether the decoder knows the batch size; otherwise it finds it in the update.",
            rich_help_panel=ATTACK,
        ),
    ] = True,
    knows_tail: KnowsTail = True,
    data_range: DataRange = None,
    effort: Effort = 1.0,
    layer: LayerName = None,
    invert: Annotated[
        bool,
        typer.Option(
            "--invert",
            help="Where feature vectors come back, reconstruct inputs from them and compare these "
            "with the real ones. This takes about a second per picture.",
            rich_help_panel=ATTACK,
        ),
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed of network, design, noise, local minibatches and --shuffle.",
            rich_help_panel=ATTACK,
        ),
    ] = 0,
    device: Device = "cpu",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write report.html, result.json, the update, the weights and figures into this "
            "new or empty directory, which only you can read.",
            show_default="write nothing",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    samples: Annotated[
        bool,
        typer.Option(
            "--samples/--no-samples",
            help="Show samples and labels in the report and in figures.",
            rich_help_panel=OUTPUT,
        ),
    ] = True,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object and nothing else.", rich_help_panel=OUTPUT
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            help="Show no progress and no list of files, only the result.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    with_others: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="Also audit another precision, more noise and twice the batch, and show the "
            "shares side by side.",
            show_default=f"only for a report, and if decoding took less than {QUICK:g} seconds; "
            f"ends after about {SECONDS:g} seconds",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    stops: Annotated[
        bool,
        typer.Option(
            "--what-stops",
            help="Also audit under one defence after the other, and show the weakest setting of "
            f"each that ends recovery; gives up after {STOPPING_SECONDS:g} seconds.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    show: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Show the report in the web browser; without --out from a temporary directory.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
) -> None:
    """Simulate a training round on data you own and report what its update gives away.

    A client computes the gradient of a network on one batch, or with --lr trains
    the network locally. The network is a new perceptron unless you give one.
    The decoder sees only the network and the update; what it recovers is then
    compared with the batch and with the peeling bound.

    For auditing systems that you own or are permitted to test; active designs
    run in simulation only.

    \b
    gradpeel audit --data digits --init torch --dtype float32
    gradpeel audit --data digits --noise 1e-6 --unknown-batch-size --unknown-tail
    gradpeel audit --data photos --batch-size 260 --neurons 2000 --out photos
    gradpeel audit --data mine.npz --design soliton-data --weights mirrored
    gradpeel audit --data mnist --data-dir downloads --batch-size 64
    gradpeel audit --data digits --lr 0.01 --local-steps 5 --local-batch-size 16
    gradpeel audit --data digits --clients 4 --batch-size 32
    gradpeel audit --data digits --defence guard --design soliton-data
    gradpeel audit --data people.csv --model mymodule:make_model --repeats 10
    gradpeel audit --data mnist --checkpoints 'run/step-*.safetensors'
    gradpeel audit --data digits --batch-size 16 --tail 400 --layer 3 --invert
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    pair = None if soliton is None else parse_pair("soliton", soliton, example="0.05,0.4")
    options = DesignOptions(design, weights, init, scale, pair)
    minimised = LossOptions(loss, label_smoothing)
    widths = (neurons, *(() if tail is None else parse_sizes("tail", tail)))
    limits = None if data_range is None else parse_pair("data-range", data_range, example="0,1")
    stated = {name: context.params[name] for name in NEW_NETWORK if is_given(context, name)}
    network = NetworkOptions(model, checkpoint, checkpoints, widths, options.network_init, stated)
    several = repeats > 1 or checkpoints is not None
    _check_single(several, compared=bool(with_others), stopped=stops)
    computes_in = dtype or (None if network.is_own else DtypeName.FLOAT64)
    if several or (out is None and not show):
        with_others = bool(with_others)

    with nullcontext() if out is None else private_directory(out) as folder:
        # torch takes a second to import; --help, a wrong option and wrong data need not wait.
        import numpy as np  # noqa: PLC0415

        from gradpeel.cli.audit_run import AuditRun  # noqa: PLC0415
        from gradpeel.datasets import STANDARD, draw_batch, load  # noqa: PLC0415

        # Unshuffled, the batch is the first samples: no need to unpack thousands of photographs.
        is_prefix = data in STANDARD and not shuffle and batch_size > 0 and repeats == 1
        # Before the line of progress, because a download shows its own.
        dataset = load(
            data,
            scaling.value,
            data_dir=data_dir,
            image_size=image_size,
            limit=_most(stops, with_others) * clients * batch_size if is_prefix else None,
            label_column=label_column,
            channels_first=channels_first,
        )
        batch = draw_batch(
            dataset, clients * batch_size, shuffle=shuffle, rng=np.random.default_rng([seed, 1])
        )
        import torch  # noqa: PLC0415

        from gradpeel.attacker import Attacker  # noqa: PLC0415
        from gradpeel.client import Client  # noqa: PLC0415

        client = Client(
            loss=minimised.build(),
            reduction=reduction.value,
            dtype=None if computes_in is None else getattr(torch, computes_in),
            noise=noise,
            defences=parse(defences),
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            local_steps=local_steps,
            local_epochs=local_epochs,
            local_batch_size=local_batch_size,
        )
        attacker = Attacker(
            options.build(batch.auxiliary, keep=network.is_own),
            knows_batch_size=knows_batch_size,
            knows_tail=knows_tail,
            data_range=limits,
            effort=effort,
            layer=layer,
        )
        run = AuditRun(
            dataset,
            network,
            options,
            minimised,
            client,
            attacker,
            clients=clients,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            device=device,
            quiet=quiet,
        )
        if invert:
            run.check_can_invert()
        repeated = run.repeated(repeats) if several else None
        result, compared = (
            run.single(compared=with_others) if repeated is None else (repeated.worst, {})
        )
        stopping = run.what_stops(result) if stops else None
        inversion = None
        # Recovered samples are inputs already.
        if invert and result.recovery.space == "features":
            known = dataset.is_image or scaling is ScalingName.MINMAX
            inversion = run.invert(result, data_range=(0.0, 1.0) if known else None)
        setting = {
            "model": model,
            "tail": None if network.is_own else list(widths[1:]),
            "scaling": scaling.value,
            "shuffle": shuffle or repeats > 1,
            "label_smoothing": label_smoothing,
            "inversion": None if inversion is None else inversion.as_dict(),
            **design_settings(result.design),
        }
        finished = Finished(
            result,
            repeated,
            dataset,
            compared,
            setting,
            command_line(context),
            samples,
            network.origin,
            inversion,
            stopping,
        )
        if folder is not None:
            finished.write(folder)

    if as_json:
        typer.echo(to_json(finished.numbers))
    else:
        Console().print(finished.summary)
    if out is not None and not quiet:
        announce(out / "report.html", out.iterdir())
    if show and out is not None:
        webbrowser.open((out / "report.html").absolute().as_uri())
    elif show:
        finished.page().open()


def _check_single(several: bool, *, compared: bool, stopped: bool) -> None:
    """Refuse what is done with a single audit alone."""
    rule = "expected neither repeats nor checkpoints"
    if several and compared:
        raise InputError(f"compare: only a single audit is compared: {rule}")
    if several and stopped:
        raise InputError(f"what_stops: defences are tried on a single audit: {rule}")


def _most(stopped: bool, compared: bool | None) -> int:
    """How many times the samples of the batch may be needed."""
    if stopped:
        return MORE
    return 1 if compared is False else 2
