"""Break each guarantee of the decoder on purpose: a test must fail.

    python -m benchmarks.mutants

Every mutant patches the decoder while it runs, in a process of its own, and runs the tests that are
there to notice. The exit code is 1 if one survives.
"""

# ruff: noqa: ANN401 -- what is given to a function that is patched is handed on

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import pytest
import torch
from torch import Tensor

from gradpeel.decoder import candidates, certificate, finish, judge, prefilter
from gradpeel.decoder.cascade import Peeling
from gradpeel.decoder.evidence import equations
from gradpeel.decoder.evidence.alike import Alike, fire_alike
from gradpeel.decoder.evidence.equations import Equations
from gradpeel.decoder.evidence.structure import Structure
from gradpeel.decoder.known import KnownSamples
from gradpeel.decoder.limits import LIMITS
from gradpeel.decoder.recovery import BatchSize
from gradpeel.decoder.residual import Residual
from gradpeel.decoder.rows import Isolated
from gradpeel.decoder.share import Share
from gradpeel.decoder.state import State

__all__ = ["MUTANTS", "Mutant", "main"]

ROOT = Path(__file__).parents[1]
Broken = AbstractContextManager[object]


@dataclass(frozen=True)
class Mutant:
    """One guarantee, broken.

    Attributes:
        guarantee: its name in the docstring of `gradpeel.decoder.certificate`, or the loop's.
        broken: breaks it within a `with` block.
        tests: the tests that must notice, as pytest names them below `tests/decoder`.
    """

    guarantee: str
    broken: Callable[[], Broken]
    tests: tuple[str, ...]


@contextmanager
def limits(**values: float) -> Iterator[None]:
    """Set limits of the decoder, which are constants otherwise."""
    before = {name: getattr(LIMITS, name) for name in values}
    for name, value in values.items():
        object.__setattr__(LIMITS, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(LIMITS, name, value)


def _as_if_it_held(found: Equations) -> Equations:
    return replace(found, units=0 * found.units, mismatch=0 * found.mismatch)


def weight_of_a_sample() -> Broken:
    """Whatever the bias says."""
    original = equations._bias_equation  # noqa: SLF001

    def held(*given: Any) -> tuple[Equations, Tensor]:
        found, again = original(*given)
        return _as_if_it_held(found), again

    return patch.object(equations, "_bias_equation", held)


def only_at_its_own_neuron() -> Broken:
    """Neurons that hand out the same vector may say otherwise."""
    original = equations._bias_equation  # noqa: SLF001

    def once(found: candidates.Candidates, *given: Any) -> tuple[Equations, Tensor]:
        whole, again = original(found, *given)
        own = torch.arange(len(found)), found.neurons
        alone, _ = original(replace(found, pairs=own), *given)
        return replace(whole, units=alone.units, mismatch=alone.mismatch), again

    return patch.object(equations, "_bias_equation", once)


def any_row_is_its_own() -> Broken:
    """Whatever row a sample was read from."""

    def compare(_: Isolated, neurons: Tensor, __: object) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(neurons)).double(), torch.ones_like(neurons, dtype=torch.bool)

    return patch.object(Isolated, "compare", compare)


@contextmanager
def next_layer_holds() -> Iterator[None]:
    """Whatever the next layer says."""
    original = equations._whole_next_layer  # noqa: SLF001

    def held(*given: Any) -> Equations:
        return _as_if_it_held(original(*given))

    def passed(_: Tensor, error: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
        return 0 * error, 0 * error

    with (
        patch.object(equations, "_whole_next_layer", held),
        patch.object(prefilter, "next_layer", passed),
    ):
        yield


def parallel_gradients_count() -> Broken:
    """Every neuron that hands out the same vector is evidence of its own."""
    original = equations._bias_equation  # noqa: SLF001

    def several(*given: Any) -> tuple[Equations, Tensor]:
        found, again = original(*given)
        return replace(found, chance=found.chance * again), torch.ones_like(again)

    return patch.object(equations, "_bias_equation", several)


def certain_predictions_count() -> Broken:
    """Equations prove something although the loss gradient responds to nothing."""
    original = equations.tail_equations

    def responding(found: Any, residual: Any, backward: Any, simulated: Any, *given: Any) -> Any:
        moved = replace(simulated, response=torch.ones_like(simulated.response))
        return original(found, residual, backward, moved, *given)

    return patch.object(certificate, "tail_equations", responding)


def absolute_errors() -> Broken:
    """Tolerances that do not follow the size of the update."""

    def absolute(rounding: Tensor, _: float) -> Tensor:
        return torch.full_like(rounding, 1e-9)

    return patch("gradpeel.decoder.residual._hypot", absolute)


def alike_is_no_obstacle() -> Broken:
    """Mixtures of samples that fire alike are not looked for."""

    def nobody(*given: Any) -> Alike:
        found = fire_alike(*given)
        return replace(found, new=torch.zeros_like(found.new), known=torch.zeros_like(found.known))

    return patch.object(judge, "fire_alike", nobody)


def every_trial_holds() -> Broken:
    """What was subtracted on trial stays, whatever follows."""
    original = State.confirm

    def confirmed(self: State, *, refined: bool) -> Tensor:
        original(self, refined=refined)
        self.known.confirm(torch.zeros_like(self.known.chances))
        return torch.ones_like(self.known.chances, dtype=torch.bool)

    return patch.object(State, "confirm", confirmed)


def any_size_is_proven() -> Broken:
    """As many as were found, stated or not, whole or not."""

    def proven(*, least: int, **given: Any) -> BatchSize:
        return BatchSize(**{**given, "least": least, "proven": least or None})

    return patch.object(finish, "BatchSize", proven)


def only_rounds_that_certify(name: str) -> Broken:
    """Looks that certify nobody are forgotten."""
    if name == "trace":
        log = State.log

        def logged(self: State, look: Any, chosen: Tensor, stage: Any) -> None:
            if len(chosen):
                log(self, look, chosen, stage)

        return patch.object(State, "log", logged)
    judged = judge.Judge.judge

    def counted(self: judge.Judge, *given: Any) -> Any:
        before = self.tried
        found = judged(self, *given)
        if not bool(found[1].accepted.any()):
            self.tried = before
        return found

    return patch.object(judge.Judge, "judge", counted)


def _always(value: Callable[..., Any], target: object, name: str) -> Broken:
    return patch.object(target, name, value)


def _none(_: Any, rows: Tensor, *__: Any) -> Tensor:
    return torch.zeros(len(rows), dtype=torch.bool, device=rows.device)


MUTANTS = (
    Mutant(
        "Firing",
        partial(
            _always,
            lambda _, neurons: torch.ones(len(neurons), dtype=torch.float64),
            Residual,
            "own_pre_activations",
        ),
        ("test_guarantees.py",),
    ),
    Mutant("Weight", weight_of_a_sample, ("test_guarantees.py",)),
    Mutant("Weight, at every neuron", only_at_its_own_neuron, ("test_guarantees.py",)),
    Mutant(
        "Weight, of what cannot be a group",
        partial(limits, anchor=float("inf"), apart=float("inf")),
        ("test_unproven.py", "test_one_kind.py"),
    ),
    Mutant(
        "Weight, not guessed",
        lambda: patch.object(Peeling, "_certifies", PropertyMock(return_value=True)),
        ("test_unproven.py",),
    ),
    Mutant(
        "Groups",
        partial(limits, copies=float("inf"), apart=float("inf")),
        ("test_unproven.py", "test_one_kind.py"),
    ),
    Mutant("Next layer", next_layer_holds, ("test_peeling.py", "test_unproven.py")),
    Mutant(
        "Support",
        partial(_always, _none, certificate, "trespassers"),
        ("test_guarantees.py",),
    ),
    Mutant("Enough evidence", partial(limits, chance=1.0), ("test_guarantees.py",)),
    Mutant("Enough evidence, parallel gradients", parallel_gradients_count, ("test_unproven.py",)),
    Mutant("Enough evidence, response", certain_predictions_count, ("test_guarantees.py",)),
    Mutant(
        "Structure",
        partial(
            _always,
            lambda _, distance, __: torch.zeros_like(distance),
            Structure,
            "chance",
        ),
        ("test_unknown_tail.py", "test_unproven.py"),
    ),
    Mutant(
        "Structure, where patterns differ",
        partial(
            _always,
            lambda self, _: setattr(self, "_alike", 0.0),
            Structure,
            "watch",
        ),
        ("test_unknown_tail.py",),
    ),
    Mutant(
        "Structure, of one update",
        partial(limits, alien_bias=float("inf")),
        ("test_guarantees.py",),
    ),
    Mutant(
        "Structure, of samples that do not fire alike", alike_is_no_obstacle, ("test_alike.py",)
    ),
    Mutant("Exactness", partial(limits, exact=float("inf")), ("test_guarantees.py",)),
    Mutant(
        "Weight, against a stated size",
        partial(_always, lambda _, __: 1, Share, "weighs"),
        ("test_one_kind.py",),
    ),
    Mutant("Relativity", absolute_errors, ("test_batch_size.py",)),
    Mutant("Nobody twice", partial(_always, _none, KnownSamples, "knows"), ("test_guarantees.py",)),
    Mutant(
        "Nobody outside the range",
        partial(
            _always,
            lambda _, __, rows, ___: torch.ones(len(rows), dtype=torch.bool),
            Peeling,
            "_within",
        ),
        ("test_peeling.py",),
    ),
    Mutant("Row", any_row_is_its_own, ("test_rows.py",)),
    Mutant("Trials", every_trial_holds, ("test_guarantees.py",)),
    Mutant("Batch size", any_size_is_proven, ("test_batch_size.py",)),
    Mutant(
        "Every look in the trace", partial(only_rounds_that_certify, "trace"), ("test_recovery.py",)
    ),
    Mutant("Every look counted", partial(only_rounds_that_certify, "tried"), ("test_recovery.py",)),
)
"""At least one for every guarantee."""


def run_tests(names: tuple[str, ...]) -> int:
    """Run tests of the decoder in this process; returns what pytest says."""
    tests = [str(ROOT / "tests" / "decoder" / name) for name in names]
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    options += ["-c", str(ROOT / "pyproject.toml")]
    fast = int(pytest.main([*options, "-m", "not slow", *tests]))
    if fast:
        return fast
    slow = int(pytest.main([*options, "-m", "slow", *tests]))
    return 0 if slow == pytest.ExitCode.NO_TESTS_COLLECTED else slow


def survives(number: int) -> bool:
    """Whether the tests of a mutant pass although it breaks what they test."""
    code = f"from benchmarks.mutants import *; import benchmarks.mutants as m; m.run({number})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False, text=True
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{MUTANTS[number].guarantee}: pytest failed:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def run(number: int) -> None:
    """Run the tests of a mutant in this process, broken as it is, and exit as pytest does."""
    mutant = MUTANTS[number]
    with mutant.broken():
        code = run_tests(mutant.tests)
    sys.exit(code)


def main() -> None:
    """Try them all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    alive = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, survived in zip(MUTANTS, pool.map(survives, range(len(MUTANTS))), strict=True):
            if survived:
                alive.append(mutant)
            print(f"{'SURVIVES' if survived else 'noticed':8}  {mutant.guarantee}", flush=True)
    print(f"{len(MUTANTS) - len(alive)} of {len(MUTANTS)} broken guarantees are noticed by a test")
    sys.exit(bool(alive))


if __name__ == "__main__":
    main()
