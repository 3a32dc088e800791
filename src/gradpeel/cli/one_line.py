"""Errors that the user can correct take one line; any other is a bug and keeps its traceback."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperGroup

from gradpeel.errors import GradpeelError, ModelRefusedError

__all__ = ["OneLineErrors"]

REFUSED = 2
INTERRUPTED = 130
LONGEST, HEAD = 300, 80


class OneLineErrors(TyperGroup):
    """The group of all commands; turns their errors into lines on stderr and an exit code.

    - `GradpeelError`, an option's wrong value, a file that cannot be read or written: `error: ...`
      and exit code 2. A refused model gets a line for each reason.
    - Ctrl-C: `interrupted` and exit code 130.
    """

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401 -- typer moved this type between versions
        """Run the command that `ctx` names."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader left, as `head` does: nothing to tell, typer ends it
            raise
        except ModelRefusedError as error:
            lines = [f"{error.refused}: [{why.kind}] {why}" for why in error.reasons]
            lines[-1] += f" ({error.caution})"
        except typer.BadParameter as error:
            lines = [error.format_message()]
        except OSError as error:
            # Two names where a file is moved; the second is the one the user asked for.
            name = error.filename2 or error.filename
            lines = [f"{name}: {error.strerror}" if name and error.strerror else str(error)]
        except MemoryError as error:
            lines = [f"not enough memory: {error}"]
        except GradpeelError as error:
            lines = [str(error)]
        for line in lines:
            typer.echo(f"error: {_printable(line)}", err=True)
        raise typer.Exit(REFUSED)


def _printable(text: str) -> str:
    r"""Names come from files: no line breaks, no escape sequences, and none that fills the screen.

    Example:
        >>> len(_printable(f"{5000 * 'x'}: no such file"))
        176
        >>> _printable("a\n\x1b[2J é")
        'a\\n\\x1b[2J é'
    """
    visible = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )
    return re.sub(
        rf"\S{{{LONGEST},}}", lambda name: f"{name[0][:HEAD]}...{name[0][-HEAD:]}", visible
    )
