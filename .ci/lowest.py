"""Print the oldest releases that pyproject.toml admits, as constraints for pip."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[a-z,]+\])?>=(?P<version>[0-9][0-9.]*)")


def main() -> None:
    """Print a line for every requirement of the package, its extras and its build."""
    whole = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    project = whole["project"]
    required = project["dependencies"] + whole["build-system"]["requires"]
    for extra in project["optional-dependencies"].values():
        required += [one for one in extra if not one.startswith(f"{project['name']}[")]
    for one in required:
        found = REQUIREMENT.fullmatch(one)
        if found is None:
            raise SystemExit(f"{PROJECT.name}: {one!r}: expected a name, >= and a version")
        sys.stdout.write(f"{found['name']}=={found['version']}\n")


if __name__ == "__main__":
    main()
