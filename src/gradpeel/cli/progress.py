"""A cascade to watch: how many samples are recovered so far, on a terminal and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

if TYPE_CHECKING:
    from gradpeel.audit import Audit
    from gradpeel.decoder import Round
    from gradpeel.decoder.recovery import RowCount

__all__ = ["Watcher", "watch", "watch_audits"]


class Watcher(NamedTuple):
    """Functions to call while a cascade runs.

    Attributes:
        on_round: after each round.
        on_rows: whenever the row cascade has found rows, or has not.
        on_inputs: with the number of inputs that were reconstructed, and of all.
        on_search: with the generations of a design's search that are done, and of all.
    """

    on_round: Callable[[Round], None]
    on_rows: Callable[[RowCount], None]
    on_inputs: Callable[[int, int], None]
    on_search: Callable[[int, int], None]

    def then(self, go_on: Callable[[object], None]) -> Watcher:
        """The same, with a function that is called afterwards and may raise to end the cascade."""

        def round_(seen: Round) -> None:
            self.on_round(seen)
            go_on(seen)

        def rows(seen: RowCount) -> None:
            self.on_rows(seen)
            go_on(seen)

        return Watcher(round_, rows, self.on_inputs, self.on_search)


@contextmanager
def watch(batch_size: int | None, *, quiet: bool = False, title: str = "") -> Iterator[Watcher]:
    """Show a line that follows the cascade; give the functions to call on its way.

    The line goes to stderr, so that stdout holds the result alone, and is gone when the block ends.

    Args:
        batch_size: number of samples there are to recover, if that is known.
        quiet: show nothing.
        title: which audit this is, where several run one after another.
    """
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield Watcher(lambda _: None, lambda _: None, lambda *_: None, lambda *_: None)
        return
    found, of = 0, "" if batch_size is None else f" of {batch_size}"
    named = f"with {title}: " if title else ""
    with console.status(f"{named}peeling") as status:

        def show(round_: Round) -> None:
            nonlocal found
            found += round_.certified
            status.update(f"{named}peeling: round {round_.number}, {found}{of} samples")

        def show_rows(rows: RowCount) -> None:
            status.update(f"{named}row cascade: {rows.found} of {rows.unknown} rows")

        def show_inputs(done: int, total: int) -> None:
            status.update(f"reconstructing: {done} of {total} inputs")

        def show_search(done: int, total: int) -> None:
            status.update(f"{named}tuning the design: {done} of {total} generations")

        yield Watcher(show, show_rows, show_inputs, show_search)


@contextmanager
def watch_audits(number: int, *, quiet: bool = False) -> Iterator[Callable[[Audit], None]]:
    """Show a line that counts audits; give the function to call after each of them.

    Args:
        number: how many there will be.
        quiet: show nothing.
    """
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    done = 0
    with console.status(f"audit 1 of {number}") as status:

        def show(audit: Audit) -> None:
            nonlocal done
            done += 1
            read = f"{audit.score.read} of {audit.score.batch_size} {audit.recovery.noun}s"
            next_one = min(done + 1, number)
            status.update(f"audit {next_one} of {number}; in the last one {read} were readable")

        yield show
