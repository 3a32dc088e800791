"""How the results of a sweep came about: versions, plan, data, the class of machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping

from gradpeel._version import __version__
from gradpeel.sweeps.plan import Plan

__all__ = ["manifest"]

PACKAGES = ("torch", "numpy", "scipy")


def manifest(
    plan: Plan, *, engine: str, data: Mapping[str, Mapping[str, object]], cells: Mapping[str, int]
) -> dict[str, object]:
    """Everything but the rows, as plain values; nothing in it but paths in the plan is private.

    Args:
        plan: what was asked for.
        engine: where it ran last.
        data: by name, what is known of each data set.
        cells: how many there are, were measured, and failed.
    """
    return {
        "gradpeel": __version__,
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in PACKAGES},
        },
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
        },
        "engine": engine,
        "plan": plan.as_dict(),
        "data": dict(data),
        "cells": dict(cells),
    }
