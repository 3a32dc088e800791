from __future__ import annotations

from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from gradpeel.reporting.style import new_figure, place_axes, svg


def drawing(title: str = "a title -- of a file") -> Figure:
    figure = new_figure(2, 2)
    axes = place_axes(figure, 0.2, 0.2, 1.5, 1.5)
    axes.imshow(np.eye(9), interpolation="nearest")
    axes.plot([0, 8], [8, 0])
    axes.set_title(title, parse_math=False)
    return figure


def test_the_same_drawing_gives_the_same_well_formed_svg() -> None:
    first = svg(drawing())
    assert first == svg(drawing())
    assert first != svg(drawing("another"))
    root = ET.fromstring(first)  # noqa: S314
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert b"<dc:date>" not in first


def test_letters_are_outlines_and_pictures_stay_pictures() -> None:
    root = ET.fromstring(svg(drawing()))  # noqa: S314
    kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert "text" not in kinds
    assert kinds.count("image") == 1


def test_pictures_in_it_have_the_resolution_asked_for() -> None:
    assert len(svg(drawing(), dpi=300)) > len(svg(drawing(), dpi=30))


@pytest.mark.parametrize("title", ["名前", "<&>", "-->"])
def test_titles_from_files_cannot_break_the_file(title: str) -> None:
    ET.fromstring(svg(drawing(title)))  # noqa: S314


def test_the_users_settings_are_left_alone() -> None:
    before = mpl.rcParams["svg.hashsalt"], mpl.rcParams["svg.fonttype"]
    svg(drawing())
    assert (mpl.rcParams["svg.hashsalt"], mpl.rcParams["svg.fonttype"]) == before
