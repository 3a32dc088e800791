"""A cascade to watch: how many samples are recovered so far, on a terminal and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

if TYPE_CHECKING:
    from gradpeel.decoder import Round
    from gradpeel.decoder.recovery import RowCount

__all__ = ["Watcher", "watch"]


class Watcher(NamedTuple):
    """Functions to call while a cascade runs.

    Attributes:
        on_round: after each round.
        on_rows: whenever the row cascade has found rows, or has not.
    """

    on_round: Callable[[Round], None]
    on_rows: Callable[[RowCount], None]

    def then(self, go_on: Callable[[object], None]) -> Watcher:
        """The same, with a function that is called afterwards and may raise to end the cascade."""

        def round_(seen: Round) -> None:
            self.on_round(seen)
            go_on(seen)

        def rows(seen: RowCount) -> None:
            self.on_rows(seen)
            go_on(seen)

        return Watcher(round_, rows)


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
        yield Watcher(lambda _: None, lambda _: None)
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

        yield Watcher(show, show_rows)
