"""A network of one's own, named by where it is: `--model mymodule:make_model`.

The module is the user's own code and is run, as `python -c "import mymodule"` would; nothing else
that gradpeel reads ever is.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gradpeel.errors import InputError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["import_model"]


def import_model(name: str) -> nn.Module | Callable[[], nn.Module]:
    """Import a network, or what makes one: a function or a class without arguments.

    Args:
        name: module and name in it, such as "mymodule:make_model" or "package.module:Net". The
            module is looked up in the current directory first.

    Raises:
        InputError: there is no such module or name, importing it fails, or it is neither a network
            nor something to call.
    """
    from torch import nn  # noqa: PLC0415 - slow to import

    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise InputError(f"model={name!r}: expected MODULE:NAME such as mymodule:make_model")
    here = str(Path.cwd())
    # At the front, so that a file beside the user wins over an installed package of its name.
    sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            rule = "expected one in the current directory, or installed"
            raise InputError(f"model={name!r}: no module {missing!r}: {rule}") from None
        raise InputError(f"model={name!r}: {module_name} imports {missing!r}: not found") from None
    except Exception as error:  # noqa: BLE001 - somebody's module may raise anything
        raise InputError(f"model={name!r}: importing {module_name} raised {told(error)}") from None
    finally:
        sys.path.remove(here)
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(f"model={name!r}: {module_name} has no {path!r}")
        found = getattr(found, part)
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        rule = "expected a torch.nn.Module, or a function without arguments that makes one"
        raise InputError(f"model={name!r}: of type {type(found).__name__}: {rule}")
    return _checked(name, found)


def _checked(name: str, make: Callable[[], object]) -> Callable[[], nn.Module]:
    """The same function, whose faults are reported in one line."""
    from torch import nn  # noqa: PLC0415

    def checked() -> nn.Module:
        try:
            made = make()
        except Exception as error:  # noqa: BLE001 - somebody's function may raise anything
            raise InputError(f"model={name!r}: calling it raised {told(error)}") from None
        if not isinstance(made, nn.Module):
            kind = type(made).__name__
            raise InputError(f"model={name!r}: returned a {kind}: expected a torch.nn.Module")
        return made

    return checked


def told(error: Exception) -> str:
    """An error in one line: its type, and the first line of its message.

    Example:
        >>> told(TypeError("make() missing 1 required positional argument: 'width'"))
        "TypeError: make() missing 1 required positional argument: 'width'"
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
