"""Data that kills the process which loads it; workers import it from here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gradpeel.datasets import Dataset
from gradpeel.errors import InputError
from gradpeel.sweeps.data import DataSource


@dataclass(frozen=True)
class DeadlySource(DataSource):
    """`deadly` always kills, `once` only the first time, `gone` is not there, others are digits."""

    traces: Path = Path()

    def load(self, name: str) -> Dataset:
        if name == "gone":
            raise InputError("gone: no such data set")
        trace = self.traces / name
        if name == "deadly" or (name == "once" and not trace.exists()):
            with trace.open("a") as file:
                file.write(f"{os.getpid()}\n")
            os._exit(9)
        return super().load("digits")
