from __future__ import annotations

import re

import pytest

from gradpeel.cli.parsing import parse_pair, parse_sizes
from gradpeel.errors import InputError


@pytest.mark.parametrize("text", ["", ",", "x", "256,x", "0", "256,0", "-1", "2.5", "256,", "1e3"])
def test_sizes_are_positive_integers(text: str) -> None:
    message = f"tail={text!r}: expected positive integers such as 256,128"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        parse_sizes("tail", text)


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "a,b", "1,", ",", "1;2"])
def test_a_pair_is_two_numbers(text: str) -> None:
    message = f"range={text!r}: expected two numbers such as 0,1"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        parse_pair("range", text, example="0,1")


def test_lists_are_read_in_order() -> None:
    assert parse_sizes("tail", "256, 128,1") == (256, 128, 1)
    assert parse_pair("range", "-1,1e3", example="0,1") == (-1.0, 1000.0)
