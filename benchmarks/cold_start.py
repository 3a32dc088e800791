"""How long a command takes from a cold start, in units of `import torch`.

    python -m benchmarks.cold_start

Every command runs in a process of its own; commands and the import take turns, because machines are
noisy, and the median counts. Times are CPU seconds of the process, user and system, so that other
work on the machine does not count.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.cells import markdown_table

__all__ = ["COMMANDS", "Command", "main", "measure", "table"]

IMPORT_TORCH = (sys.executable, "-c", "import torch")


@dataclass(frozen=True)
class Command:
    """A command and the most it should take.

    Attributes:
        words: its arguments after `gradpeel`; none for `import gradpeel`.
        goal: in units of `import torch`; None if there is no goal.
    """

    words: tuple[str, ...]
    goal: float | None = None

    @property
    def name(self) -> str:
        """As one types it."""
        return f"gradpeel {' '.join(self.words)}" if self.words else 'python -c "import gradpeel"'

    @property
    def argv(self) -> tuple[str, ...]:
        """For a new process."""
        if self.words:
            return (sys.executable, "-m", "gradpeel", *self.words)
        return (sys.executable, "-c", "import gradpeel")


AUDIT = ("audit", "--data", "digits", "--batch-size", "64")
COMMANDS = (
    Command(()),
    Command(("--help",), goal=0.5),
    Command((*AUDIT, "--scale", "2")),
    Command(AUDIT, goal=2.0),
    Command((*AUDIT, "--tail", "256,128")),
)


def measure(commands: Sequence[Command], repeat: int) -> tuple[float, Mapping[Command, float]]:
    """Median CPU seconds of `import torch`, and of each command.

    Args:
        commands: what to run.
        repeat: how often, at least 1; once more before that, uncounted, to fill caches of files.
    """
    argvs = [IMPORT_TORCH, *(command.argv for command in commands)]
    rounds = [[_seconds(argv) for argv in argvs] for _ in range(1 + repeat)][1:]
    torch, *each = (median(seconds) for seconds in zip(*rounds, strict=True))
    return torch, dict(zip(commands, each, strict=True))


def _seconds(argv: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode not in (0, 2):  # 2 is an error that the user can correct, one of the cases
        raise SystemExit(f"{' '.join(argv)}: failed\n{done.stderr.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def table(torch: float, seconds: Mapping[Command, float]) -> str:
    """One line per command.

    Example:
        >>> print(table(1.0, {Command(("--help",), goal=0.5): 0.15}), end="")
        | command | CPU seconds | in units of `import torch` | goal |
        | --- | --- | --- | --- |
        | `python -c "import torch"` | 1.00 | 1 |  |
        | `gradpeel --help` | 0.15 | 0.15 | at most 0.5 |
    """
    lines = [['`python -c "import torch"`', f"{torch:.2f}", "1", ""]]
    for command, taken in seconds.items():
        goal = "" if command.goal is None else f"at most {command.goal:g}"
        lines.append([f"`{command.name}`", f"{taken:.2f}", f"{taken / torch:.2f}", goal])
    return markdown_table(["command", "CPU seconds", "in units of `import torch`", "goal"], lines)


def main() -> None:
    """Measure and print a table; exit with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cold_start",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    if given.repeat < 1:
        parser.error(f"--repeat {given.repeat}: expected a positive integer")
    torch, seconds = measure(COMMANDS, given.repeat)
    print(table(torch, seconds), end="")
    if any(c.goal is not None and taken > c.goal * torch for c, taken in seconds.items()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
