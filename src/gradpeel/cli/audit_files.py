"""What `gradpeel audit` shows and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradpeel.cli.output import to_json
from gradpeel.cli.variations import described

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gradpeel.audit import Audit
    from gradpeel.audits import Audits, TrainingCurve
    from gradpeel.datasets import Dataset
    from gradpeel.designs import Design
    from gradpeel.inversion import Inversion
    from gradpeel.reporting.page import Document, Report
    from gradpeel.stopping import Stopping

__all__ = ["WORST", "Finished", "design_settings"]

WORST = "worst"
"""Of several audits, the folder of the one that read most."""


@dataclass(frozen=True, eq=False)
class Finished:
    """One audit, or several.

    Attributes:
        result: the audit; of several, the one that read most.
        repeated: all of them, where there are several.
        dataset: where the batches come from.
        compared: the same audit with one thing changed, by the name of the change; None for one
            that was not finished.
        setting: options that an audit itself does not know.
        command: the command that repeats it.
        samples: whether to show samples.
        weights: where the network's weights come from.
        stopping: defences that were tried, if that was asked for.
        inversion: inputs that were reconstructed from feature vectors of the result, if asked for.
    """

    result: Audit
    repeated: Audits | TrainingCurve | None
    dataset: Dataset
    compared: Mapping[str, Audit | None]
    setting: Mapping[str, object]
    command: str
    samples: bool
    weights: str
    inversion: Inversion | None = None
    stopping: Stopping | None = None

    @property
    def numbers(self) -> dict[str, object]:
        """What `--json` prints."""
        return self._numbers(self.repeated or self.result)

    @property
    def summary(self) -> RenderableType:
        """What a person reads in the terminal."""
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        from gradpeel.reporting import spread_summary, stopping_summary, summary  # noqa: PLC0415

        if self.repeated is not None:
            return spread_summary(self.repeated, data=self.dataset.name)
        found = summary(self.result, data=self.dataset.name, inversion=self.inversion)
        more: list[RenderableType] = [Text(described(self.compared))] if self.compared else []
        if self.stopping is not None:
            more.append(stopping_summary(self.stopping))
        return Group(found, *more) if more else found

    def page(self, *, beside: str = "") -> Document:
        """What the browser shows.

        Args:
            beside: of several audits, where the report of the one that read most is.
        """
        from gradpeel.reporting.page import SpreadReport  # noqa: PLC0415

        if self.repeated is None:
            return self._report()
        return SpreadReport(self.repeated, self.dataset.name, self.command, beside)

    def write(self, folder: Path) -> None:
        """Write the page, the numbers, the update, the weights and figures."""
        from gradpeel.files import write_files  # noqa: PLC0415
        from gradpeel.reporting.page import PAGE  # noqa: PLC0415

        if self.repeated is None:
            self._write_audit(folder)
            return
        inside = folder / WORST
        inside.mkdir(mode=0o700)
        self._write_audit(inside)
        _write_numbers(folder, self.numbers)
        write_files(folder, {PAGE: self.page(beside=f"{WORST}/{PAGE}").html.encode()})

    def _report(self) -> Report:
        from gradpeel.reporting.page import report  # noqa: PLC0415

        return report(
            self.result,
            self.dataset,
            samples=self.samples,
            command=self.command,
            compared=self.compared,
            inversion=self.inversion,
            weights=self.weights,
            stopping=self.stopping or (),
        )

    def _write_audit(self, folder: Path) -> None:
        """All that belongs to one audit.

        `gradpeel peel` reads the update and the weights back, `gradpeel report` regenerates the
        page.
        """
        from safetensors.torch import save  # noqa: PLC0415

        from gradpeel.files import write_files  # noqa: PLC0415
        from gradpeel.reporting import save_figures  # noqa: PLC0415
        from gradpeel.update import save_update  # noqa: PLC0415

        _write_numbers(folder, self._numbers(self.result))
        save_update(self.result.update, folder / "update.safetensors")
        stored = self.result.model.state_dict()
        # Copies, because a file of tensors does not hold parameters that are one and the same.
        state = {name: value.clone().contiguous() for name, value in stored.items()}
        (folder / "model.safetensors").write_bytes(save(state))
        save_figures(self.result, self.dataset, folder, samples=self.samples)
        write_files(folder, self._report().files())

    def _numbers(self, found: Audit | Audits | TrainingCurve) -> dict[str, object]:
        return {"data": self.dataset.name, **found.as_dict(), **self.setting}


def design_settings(design: Design) -> dict[str, object]:
    """The settings that only some designs have; null for the others."""
    soliton = getattr(design, "soliton", None)
    return {
        "scale": getattr(design, "scale", None),
        "soliton": None if soliton is None else [soliton.c, soliton.delta],
    }


def _write_numbers(folder: Path, numbers: Mapping[str, object]) -> None:
    (folder / "result.json").write_text(to_json(numbers, indent=2) + "\n", encoding="utf-8")
