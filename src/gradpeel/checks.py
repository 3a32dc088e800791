"""Rules that several parts share; whoever breaks one gets an `InputError` that names it.

Example:
    >>> is_plain_name("fc1"), is_plain_name('a"); print("hello"); ("')
    (True, False)
"""

from __future__ import annotations

import keyword

__all__ = ["is_plain_name"]


def is_plain_name(name: str) -> bool:
    r"""Whether a part of a module's or parameter's path can stand in a line of code.

    torch.fx writes the forward pass down as Python source and runs it. It puts names between
    quotation marks as they are, so a name that holds some would be run too; and names come from
    files.

    Example:
        >>> [is_plain_name(name) for name in ("0", "layer-1", "class", "a\n", "\\")]
        [True, True, False, False, False]
    """
    return name.isprintable() and not set(name) & set("\"'\\") and not keyword.iskeyword(name)
