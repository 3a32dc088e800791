r"""Read a plan from a TOML file; errors name the line.

Example:
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "plan.toml"
    ...     _ = path.write_text("datasets = ['digits']\ndesigns = ['passive']\nbatch_sizes = [8]")
    ...     [str(cell) for cell in read_plan(path).cells()]
    ['digits Passive B=8 N=1000 seed 0']
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

from gradpeel.errors import InputError
from gradpeel.files import check_path
from gradpeel.sweeps.plan import Plan

__all__ = ["PlanText", "read_plan"]

MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class PlanText:
    r"""A plan as it was written, to find the line of a key; the parser forgets them.

    Example:
        >>> text = PlanText(Path("plan.toml"), "seeds = 3\nbatch_sizes = [\n  64,\n  0,\n]\n")
        >>> text.place("batch_sizes", 0), text.place("batch_sizes", 7), text.place("neurons", 1)
        ('plan.toml, line 4: ', 'plan.toml, line 2: ', 'plan.toml: ')
    """

    path: Path
    text: str

    def place(self, key: str, value: object) -> str:
        """Where the value of a key stands, or else the key, or else the file."""
        lines = self.text.split("\n")
        starts = [at for at, line in enumerate(lines) if _key_of(line) is not None]
        first = next((at for at in starts if _key_of(lines[at]) == key), None)
        if first is None:
            return f"{self.path}: "
        last = next((at for at in starts if at > first), len(lines))
        spelt = re.escape(value if isinstance(value, str) else str(value))
        token = re.compile(rf"(?<![\w.-]){spelt}(?![\w.-])")
        values = [lines[first].partition("=")[2], *lines[first + 1 : last]]
        found = next((at for at, line in enumerate(values) if token.search(line)), 0)
        return f"{self.path}, line {first + found + 1}: "


def _key_of(line: str) -> str | None:
    """The key that a line assigns, or the table that it opens, if it does either."""
    dotted = r"(?:\s*\.[^=\]]*)?"
    assigned = rf"""\s*(["']?)([\w -]+?)\1{dotted}\s*="""
    opened = rf"\s*\[+\s*([A-Za-z_][\w-]*){dotted}\s*\]"
    match = re.match(f"{assigned}|{opened}", line)
    return match and (match[2] or match[3])


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Args:
        path: the TOML file.

    Returns:
        The plan; paths of data in it are relative to the file's folder.

    Raises:
        InputError: the file cannot be read, is not TOML, or its plan breaks a rule; the message
            names the file, the line and the key.
    """
    check_path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise InputError(f"{path}: more than {MAX_BYTES} bytes: expected a plan")
    try:
        text = raw.decode("utf-8-sig")
        given = tomllib.loads(text)
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text: expected a plan in TOML") from None
    except RecursionError:
        raise InputError(f"{path}: not TOML: lists in lists without end") from None
    except ValueError as error:  # TOMLDecodeError, and numbers of thousands of digits
        raise InputError(f"{path}: not TOML: {error}") from None
    source = PlanText(path, text)
    known = {item.name: item for item in fields(Plan) if item.name != "source"}
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
            raise InputError(f"{source.place(key, None)}{key}: unknown key: {hint}")
    for name, item in known.items():
        if item.default is MISSING and name not in given:
            raise InputError(f"{path}: {name} missing: expected a list")
    return Plan(**given, source=source)
