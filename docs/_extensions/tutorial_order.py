"""The order of the tutorials: from the first question to the later ones, not by the alphabet."""

from __future__ import annotations

import os
from pathlib import Path

ORDER = (
    "audit_my_model",
    "fedavg_round",
    "my_cnn",
    "recorded_update",
    "before_sending",
    "compare_servers",
)


class TutorialOrder:
    """What sphinx-gallery sorts by; a tutorial that is not listed comes last."""

    def __init__(self, src_dir: os.PathLike[str] | str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: os.PathLike[str] | str) -> tuple[int, str]:
        """The place of a tutorial."""
        name = Path(filename).stem
        return (ORDER.index(name) if name in ORDER else len(ORDER), name)

    def __repr__(self) -> str:
        """Without an address: a value that changes would build the whole site again."""
        return type(self).__name__
