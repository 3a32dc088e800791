"""The table of broken guarantees fits the decoder it is about."""

from __future__ import annotations

import pytest

from benchmarks.mutants import DECODER, MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.guarantee)
def test_every_mutant_can_be_made_and_has_its_tests(mutant: Mutant) -> None:
    source = (ROOT / DECODER / mutant.file).read_text()
    assert source.count(mutant.before) == 1
    assert mutant.before != mutant.after
    for name in mutant.tests:
        assert (ROOT / "tests" / "decoder" / f"test_{name}.py").is_file()


def test_every_guarantee_of_the_certificate_is_broken_once() -> None:
    text = (ROOT / DECODER / "certificate.py").read_text()
    bullets = [line[2:].split(".")[0] for line in text.splitlines() if line.startswith("- ")]
    assert len(bullets) >= 9
    broken = {mutant.guarantee.split(",")[0] for mutant in MUTANTS}
    assert set(bullets) <= broken
