"""`gradpeel check`: does what an update gives away stay within a budget, batch after batch?

The exit code is the answer: 0 if the budget holds, 1 if more leaks, 2 if that could not be checked,
for whatever reason.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gradpeel.cli.command_line import is_given
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
from gradpeel.cli.decoder_options import LayerName
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
    Dtype,
    DtypeName,
    ModelName,
    NetworkOptions,
    Neurons,
    TailWidths,
)
from gradpeel.cli.one_line import REFUSED
from gradpeel.cli.output import to_json
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
from gradpeel.defences.options import NONE, parse
from gradpeel.designs.options import DesignName, DesignOptions
from gradpeel.errors import GradpeelError, InputError

if TYPE_CHECKING:
    from torch import Tensor

    from gradpeel.checking import Budget, Check, Checks
    from gradpeel.datasets import Dataset

__all__ = ["check_command"]

GATE = "The gate"
DECODED = 3
"""Batches that are decoded if nothing else is said."""


class FormatName(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"


def check_command(
    *,
    context: typer.Context,
    data: DataName,
    data_dir: DataDir = None,
    label_column: LabelColumn = None,
    image_size: ImageSize = None,
    scaling: Scaling = ScalingName.MINMAX,
    channels_first: ChannelsFirst = False,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Records in each update.", rich_help_panel=ROUND)
    ] = 64,
    batches: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of batches to check; each has to keep to the budget.",
            show_default="3; with --quick all complete ones of the data set",
            rich_help_panel=ROUND,
        ),
    ] = None,
    model: ModelName = None,
    checkpoint: CheckpointFile = None,
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
    layer: LayerName = None,
    seed: Annotated[
        int,
        typer.Option(min=0, help="Seed of network, design and noise.", rich_help_panel=ATTACK),
    ] = 0,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Do not decode: predict what peeling reads, in one forward pass per batch. That "
            "can show that a budget does not hold; that it holds only where there is no room for "
            "the row cascade.",
            rich_help_panel=GATE,
        ),
    ] = False,
    max_readable: Annotated[
        float | None,
        typer.Option(
            help="Largest share of a batch's records that may be readable, from 0 to 1 (data "
            "reconstruction).",
            show_default="report only",
            rich_help_panel=GATE,
        ),
    ] = None,
    max_members: Annotated[
        float | None,
        typer.Option(
            help="Largest share of records that may be shown to have taken part, from 0 to 1 "
            "(membership inference).",
            show_default="not checked",
            rich_help_panel=GATE,
        ),
    ] = None,
    sarif: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the findings as SARIF 2.1.0.", rich_help_panel=GATE
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write them as JUnit XML.", rich_help_panel=GATE),
    ] = None,
    output: Annotated[
        FormatName, typer.Option("--format", help="How to print the result.", rich_help_panel=GATE)
    ] = FormatName.TABLE,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=GATE)
    ] = False,
) -> None:
    """Check what updates give away, and fail where it is more than a budget allows.

    Batches are taken from the data set in its order. Each is decoded by peeling
    and by the row cascade, and its records are counted that can be read, with
    or without proof. The network is a new perceptron unless you give one.

    \b
    Exit code 0: every batch keeps to the budget (or there is none).
              1: more leaks.
              2: it could not be checked: the network was refused, there was
                 nothing to check, or an option is wrong.

    A budget that holds does not mean that the data is safe: it limits what
    these attacks read of these batches.

    \b
    gradpeel check --data digits --batch-size 64 --max-readable 0.05
    gradpeel check --data digits --batches 5 --model mymodule:make_model
    gradpeel check --data mine.npz --max-readable 0 --max-members 0 \\
        --sarif out.sarif --junit out.xml
    """  # noqa: D301 -- typer's mark for lines that stay as they are
    gate = _Gate(max_readable, max_members, sarif, junit, _place(model, checkpoint))
    with gate.reporting():
        pair = None if soliton is None else parse_pair("soliton", soliton, example="0.05,0.4")
        options = DesignOptions(design, weights, init, scale, pair)
        minimised = LossOptions(loss, label_smoothing)
        widths = (neurons, *(() if tail is None else parse_sizes("tail", tail)))
        stated = {name: context.params[name] for name in NEW_NETWORK if is_given(context, name)}
        network = NetworkOptions(model, checkpoint, None, widths, options.network_init, stated)
        computes_in = dtype or (None if network.is_own else DtypeName.FLOAT64)

        # torch takes a second to import; --help and a wrong option need not wait.
        import numpy as np  # noqa: PLC0415
        import torch  # noqa: PLC0415

        from gradpeel.attacker import Attacker  # noqa: PLC0415
        from gradpeel.checking import check_batches  # noqa: PLC0415
        from gradpeel.client import Client  # noqa: PLC0415
        from gradpeel.datasets import draw_batch, load  # noqa: PLC0415
        from gradpeel.repeats import make_network  # noqa: PLC0415

        _ = gate.budget  # a share that is none is reported before anything takes its time
        dataset = load(
            data,
            scaling.value,
            data_dir=data_dir,
            image_size=image_size,
            label_column=label_column,
            channels_first=channels_first,
        )
        count = _count(dataset, batch_size, batches, quick=quick)
        made = make_network(network.make(dataset, np.random.default_rng([seed, 0])), seed)
        auxiliary = draw_batch(dataset, batch_size).auxiliary
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
        attacker = Attacker(options.build(auxiliary, keep=network.is_own), layer=layer)

        def parts() -> Iterator[tuple[Tensor, Tensor]]:
            for start in range(0, count * batch_size, batch_size):
                chosen = slice(start, start + batch_size)
                x = torch.from_numpy(dataset.x_train[chosen])
                y = torch.from_numpy(dataset.y_train[chosen])
                yield x, minimised.targets(y, dataset.classes)

        with _watch(count, quiet=quiet) as on_check:
            checks = check_batches(
                made,
                parts(),
                on_check=on_check,
                client=client,
                attacker=attacker,
                decode=not quick,
                members=max_members is not None,
                seed=seed,
            )
        code = gate.close(checks)
        if output is FormatName.JSON:
            budget = {"max_readable": max_readable, "max_members": max_members}
            said = {"exit_code": code, "breaches": checks.breaches(gate.budget), "budget": budget}
            typer.echo(to_json({**said, **checks.as_dict()}))
        else:
            from gradpeel.reporting.check_summary import check_summary  # noqa: PLC0415

            Console().print(check_summary(checks, gate.budget))
    raise typer.Exit(code)


def _count(dataset: Dataset, batch_size: int, batches: int | None, *, quick: bool) -> int:
    there = len(dataset.x_train) // batch_size
    if there == 0:
        rule = f"data has {len(dataset.x_train)} samples"
        raise InputError(f"batch_size={batch_size}: nothing to check: {rule}")
    if batches is not None and batches > there:
        raise InputError(f"batches={batches}: data has {there} of {batch_size} samples")
    return batches or (there if quick else min(there, DECODED))


def _place(model: str | None, checkpoint: Path | None) -> PurePath:
    """Where the network comes from, for a code host: a file of the repository if there is one."""
    module = "" if model is None else model.partition(":")[0].replace(".", "/")
    for path in (f"{module}.py", f"{module}/__init__.py"):
        if module and Path(path).is_file():
            return PurePath(path)
    return PurePath("gradpeel" if checkpoint is None else checkpoint.name)


@dataclass(frozen=True)
class _Gate:
    """The budget, if there is one, and the files that tell of it."""

    max_readable: float | None
    max_members: float | None
    sarif: Path | None
    junit: Path | None
    place: PurePath

    @property
    def budget(self) -> Budget:
        from gradpeel.checking.budget import Budget  # noqa: PLC0415 - it loads torch

        return Budget(1.0 if self.max_readable is None else self.max_readable, self.max_members)

    def close(self, checks: Checks) -> int:
        """Write the files; the exit code."""
        self._write(checks, None)
        return int(checks.verdict(self.budget))

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Have the files tell of it, too, if nothing could be checked.

        An exit code of 1 says that a model leaks, so whatever goes wrong has another one.
        """
        try:
            yield
        except GradpeelError as error:
            self._write(None, str(error))
            raise
        except (OSError, MemoryError, typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of gradpeel or of the user's own network
            traceback.print_exc()
            self._write(None, f"{type(error).__name__}: {error}")
            raise typer.Exit(REFUSED) from None

    def _write(self, checks: Checks | None, error: str | None) -> None:
        if self.sarif is None and self.junit is None:
            return
        from gradpeel.checking.junit import to_junit  # noqa: PLC0415
        from gradpeel.checking.sarif import to_sarif  # noqa: PLC0415
        from gradpeel.files import replacing  # noqa: PLC0415

        try:
            budget = self.budget
        except GradpeelError:
            from gradpeel.checking.budget import Budget  # noqa: PLC0415

            budget = Budget()
        log = to_sarif(checks, budget, place=self.place, error=error)
        texts = {
            self.sarif: json.dumps(log, indent=2).encode(),
            self.junit: to_junit(checks, budget, error=error),
        }
        for path, text in texts.items():
            if path is not None:
                with replacing(path) as partial:
                    partial.write_bytes(text)


@contextmanager
def _watch(count: int, *, quiet: bool) -> Iterator[Callable[[Check], None]]:
    """Show a line that counts batches."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    done = 0
    with console.status(f"checking batch 1 of {count}") as status:

        def show(check: Check) -> None:
            nonlocal done
            done += 1
            read = f"{check.readable} of {check.records} records were readable in the last one"
            status.update(f"checking batch {min(done + 1, count)} of {count}; {read}")

        yield show
