"""The table of broken guarantees fits the decoder it is about, and its tests."""

from __future__ import annotations

import pytest

from benchmarks.mutants import MUTANTS, ROOT, Mutant, limits
from gradpeel.decoder import certificate
from gradpeel.decoder.limits import LIMITS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.guarantee)
def test_every_mutant_can_be_made_and_has_its_tests(mutant: Mutant) -> None:
    # What is patched exists: else `patch` raises.
    with mutant.broken():
        pass
    assert mutant.tests
    for name in mutant.tests:
        file, _, test = name.partition("::")
        source = (ROOT / "tests" / "decoder" / file).read_text()
        assert f"def {test.partition('[')[0]}" in source


def test_limits_are_put_back() -> None:
    before = LIMITS.chance
    with limits(chance=1.0):
        assert LIMITS.chance == 1.0
    assert LIMITS.chance == before
    with pytest.raises(AttributeError), limits(no_such_limit=1.0):
        pass


def test_every_guarantee_of_the_certificate_is_broken_once() -> None:
    lines = (certificate.__doc__ or "").splitlines()
    bullets = {line[2:].split(".")[0] for line in lines if line.startswith("- ")}
    assert len(bullets) >= 9
    assert bullets <= {mutant.guarantee.split(",")[0] for mutant in MUTANTS}
