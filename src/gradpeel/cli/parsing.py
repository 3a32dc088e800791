"""Options that are lists."""

from __future__ import annotations

from gradpeel.errors import InputError

__all__ = ["parse_names", "parse_pair", "parse_sizes"]


def parse_sizes(name: str, text: str) -> tuple[int, ...]:
    """Read positive integers with commas between them.

    Raises:
        InputError: the text is not such a list.

    Example:
        >>> parse_sizes("tail", "256,128")
        (256, 128)
    """
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = (0,)
    if min(sizes) < 1:
        raise InputError(f"{name}={text!r}: expected positive integers such as 256,128")
    return sizes


def parse_pair(name: str, text: str, example: str) -> tuple[float, float]:
    """Read two numbers with a comma between them.

    Raises:
        InputError: the text is not such a pair.

    Example:
        >>> parse_pair("soliton", "0.05,0.4", example="0.05,0.4")
        (0.05, 0.4)
    """
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{name}={text!r}: expected two numbers such as {example}") from None
    return first, second


def parse_names(name: str, text: str) -> tuple[str, ...]:
    """Read names with commas between them.

    Raises:
        InputError: a name is empty.

    Example:
        >>> parse_names("datasets", "cifar10, mnist")
        ('cifar10', 'mnist')
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise InputError(f"{name}={text!r}: expected names with commas between")
    return names
