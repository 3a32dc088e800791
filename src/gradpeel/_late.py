"""Names of a package that are imported when they are first used.

torch takes a second to import, matplotlib and SciPy half a second each. A package that lists its
names here is itself imported in no time, and each name loads only the module that defines it. For
type checkers, editors and the documentation the same names are imported under `TYPE_CHECKING`.

    # in a package's __init__.py
    if TYPE_CHECKING:
        from package.module import name
    else:
        load_late(__name__, {"package.module": ("name",)})
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType

__all__ = ["load_late"]


class _LatePackage(ModuleType):
    """A package whose names are looked up in their modules on first use."""

    _homes: Mapping[str, str]

    def __getattr__(self, name: str) -> object:
        homes: Mapping[str, str] = self.__dict__["_homes"]
        if name not in homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module = import_module(homes[name])
        is_module = homes[name] == f"{self.__name__}.{name}" and not hasattr(module, name)
        value = module if is_module else getattr(module, name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # The import system stores every submodule in its package. Where a function has the name of
        # the module it lives in, as `gradpeel.audit` has, the name stays the function's.
        is_submodule = isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"
        if not (is_submodule and name in self.__dict__["_homes"]):
            super().__setattr__(name, value)

    def __dir__(self) -> Iterable[str]:
        return sorted({*super().__dir__(), *self.__dict__["_homes"]})


def load_late(package: str, names: Mapping[str, Iterable[str]]) -> None:
    """Have names of a package imported on first use.

    Args:
        package: the package's `__name__`.
        names: the names by the module that defines them. A module that defines no such name and
            is called the same is meant itself: `{"gradpeel.designs": ("designs",)}`.
    """
    module = sys.modules[package]
    module.__dict__["_homes"] = {name: home for home, some in names.items() for name in some}
    module.__class__ = _LatePackage
