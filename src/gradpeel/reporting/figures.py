"""The figures of an audit as files."""

from __future__ import annotations

from pathlib import Path

from gradpeel.audit import Audit
from gradpeel.datasets import Dataset
from gradpeel.files import write_files
from gradpeel.reporting.board import activation_grid_rounds
from gradpeel.reporting.photo import rebuilt_photo
from gradpeel.reporting.samples import originals_and_recovered
from gradpeel.reporting.style import png, svg

__all__ = ["save_figures"]


def save_figures(audit: Audit, dataset: Dataset, out: Path, *, samples: bool = True) -> list[Path]:
    """Write the figures of an audit as PNG and SVG files that only the user can read.

    All are drawn before the first is written, so a failure leaves nothing behind.

    Args:
        audit: the simulated round.
        dataset: where its batch comes from.
        out: the directory; it is made if need be.
        samples: whether to draw figures that show samples.

    Returns:
        `samples` and `activation_grid`, each as `.png` and as `.svg`, and, for the embedded
        photographs, `photograph.png`.

    Raises:
        InputError: the directory cannot be written to.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from gradpeel import audit
        >>> from gradpeel.datasets import draw_batch, load
        >>> from gradpeel.networks import mlp
        >>> data = load("breast_cancer")
        >>> batch = draw_batch(data, 4)
        >>> found = audit(mlp(30, 2, (200,), rng=np.random.default_rng(0)), batch.x, batch.y)
        >>> with tempfile.TemporaryDirectory() as out:
        ...     print([path.name for path in save_figures(found, data, Path(out))])
        ['samples.png', 'samples.svg', 'activation_grid.png', 'activation_grid.svg']
    """
    files: dict[str, bytes] = {}
    if samples:
        pairs = originals_and_recovered(audit, dataset)
        files |= {"samples.png": png(pairs), "samples.svg": svg(pairs, dpi=150)}
    grid = activation_grid_rounds(audit)
    files |= {
        "activation_grid.png": png(grid),
        "activation_grid.svg": svg(grid, dpi=150),
    }
    if samples and dataset.name == "photos" and audit.recovery.space == "input":
        # At this resolution both photographs begin on a whole pixel: they can be compared pixel by
        # pixel, and the second costs PNG next to nothing.
        files["photograph.png"] = png(rebuilt_photo(audit, dataset), dpi=120)
    return write_files(out, files)
