"""Break each guarantee of the certificate on purpose: a test must fail.

    python -m benchmarks.mutants

Every mutant changes one line of a copy of the decoder and runs the tests that are there to notice.
The exit code is 1 if one survives.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MUTANTS", "Mutant", "main"]

ROOT = Path(__file__).parents[1]
DECODER = Path("src/gradpeel/decoder")


@dataclass(frozen=True)
class Mutant:
    """One guarantee, broken.

    Attributes:
        guarantee: its name in the docstring of `gradpeel.decoder.certificate`, or the loop's.
        file: the module of the decoder to change.
        before: a text that occurs once in it.
        after: what to put in its place.
        tests: the test files that must notice.
    """

    guarantee: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Change a copy of the project."""
        path = root / DECODER / self.file
        source = path.read_text()
        if source.count(self.before) != 1:
            raise SystemExit(
                f"{self.file}: {self.before!r} occurs {source.count(self.before)} times"
            )
        path.write_text(source.replace(self.before, self.after))


CERTIFICATE = ("certificate", "verdicts")
MUTANTS = (
    Mutant(
        "Firing",
        "candidates.py",
        "    neurons = neurons[residual.own_pre_activations(neurons) > 0]\n",
        "",
        ("candidates", "certificate"),
    ),
    Mutant("Bias equation", "certificate.py", "units <= SLACK", "units >= 0", CERTIFICATE),
    Mutant(
        "Bias equation, at every neuron",
        "certificate.py",
        'none.scatter_reduce(0, row, gap / error, "amax")',
        'none.scatter_reduce(0, row, gap / error, "amin")',
        CERTIFICATE,
    ),
    Mutant(
        "Next layer",
        "certificate.py",
        "return _Test(units, mismatch, luck.prod(1)",
        "return _Test(0 * units, 0 * mismatch, luck.prod(1)",
        CERTIFICATE,
    ),
    Mutant(
        "Support",
        "certificate.py",
        "    explained &= ~trespassers(residual, c * ~doubt)\n",
        "",
        CERTIFICATE,
    ),
    Mutant(
        "Weight of evidence",
        "certificate.py",
        "    accepted = sound & (chance <= CHANCE)\n\n    v, unmasked, off",
        "    accepted = sound\n\n    v, unmasked, off",
        CERTIFICATE,
    ),
    Mutant(
        "Weight of evidence, parallel gradients",
        "certificate.py",
        "torch.maximum(again, parallel)",
        "again",
        CERTIFICATE,
    ),
    Mutant(
        "Response",
        "certificate.py",
        "    chance = chance / simulated.response.clamp(torch.finfo(z.dtype).tiny, 1.0)\n",
        "",
        CERTIFICATE,
    ),
    Mutant(
        "Structure",
        "certificate.py",
        "    chance = structure.chance(distance, equations)\n",
        "    chance = 0 * distance\n",
        CERTIFICATE,
    ),
    Mutant(
        "Structure, where patterns differ",
        "structure.py",
        "luck.clamp(min=self._alike)",
        "luck",
        ("certificate", "structure"),
    ),
    Mutant(
        "Structure, of one update",
        "structure.py",
        "float(self.distance(self._sent.bias[None])[0]) > _ALIEN",
        "False",
        ("structure", "certificate", "unknown_tail"),
    ),
    Mutant(
        "Structure, of samples that do not fire alike",
        "judging.py",
        "verdicts.accepted[seen] & ~alike.new",
        "verdicts.accepted[seen]",
        ("alike",),
    ),
    Mutant(
        "Exactness",
        "certificate.py",
        "(mismatch <= LOOSEST) & (error <= EXACT)\n    equations",
        "(mismatch <= LOOSEST)\n    equations",
        CERTIFICATE,
    ),
    Mutant(
        "Relativity",
        "residual.py",
        "unit * torch.maximum(bias.abs(), size / self.scale)",
        "unit * torch.ones_like(bias)",
        ("certificate", "residual"),
    ),
    Mutant(
        "Nobody twice",
        "peeling.py",
        "        chosen = chosen[~ledger.knows(coordinates[chosen], trusted[chosen])]\n",
        "",
        ("peeling", "cascade"),
    ),
    Mutant(
        "Nobody outside the range",
        "peeling.py",
        "            chosen = chosen[self._within(self._range, rows, candidates.error[chosen])]\n",
        "",
        ("peeling",),
    ),
    Mutant(
        "Numbers are those it was certified by",
        "closing.py",
        "_agrees(ledger, residual) & (ledger",
        "(ledger",
        ("peeling", "closing", "cascade"),
    ),
    Mutant(
        "Trials",
        "peeling.py",
        "        kept = ledger.chances <= CHANCE\n",
        "        kept = ledger.chances <= 1\n",
        ("speculation",),
    ),
    Mutant(
        "Trials are taken back",
        "peeling.py",
        "        ledger.revert(self._trusted)\n",
        "",
        ("speculation",),
    ),
    Mutant(
        "Kinks are not guessed",
        "kinks.py",
        "told = stays != turns",
        "told = stays | turns",
        ("kinks",),
    ),
    Mutant(
        "Kinks are unknown",
        "certificate.py",
        "    doubt = z.abs() <= KINK * error[:, None] * residual.spread\n",
        "    doubt = torch.zeros_like(fires)\n",
        ("certificate", "verdicts", "cascade"),
    ),
)
"""At least one for every guarantee."""


def passes(names: Iterable[str], mutant: Mutant | None = None) -> bool:
    """Whether tests pass in a copy of the project, changed by a mutant if one is given."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        ignored = shutil.ignore_patterns(".*", "docs", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignored)
        if mutant is not None:
            mutant.apply(copy)
        tests = [f"tests/decoder/test_{name}.py" for name in names]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
            cwd=copy,
            capture_output=True,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{mutant or 'unchanged'}: pytest failed:\n{done.stdout.decode()}")
    return done.returncode == 0


def main() -> None:
    """Try them all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    if not passes(sorted({name for mutant in MUTANTS for name in mutant.tests})):
        raise SystemExit("the tests fail without any mutant: nothing can be told")
    alive = []
    for mutant in MUTANTS:
        if passes(mutant.tests, mutant):
            alive.append(mutant)
        print(f"{'SURVIVES' if mutant in alive else 'noticed':8}  {mutant.guarantee}", flush=True)
    print(f"{len(MUTANTS) - len(alive)} of {len(MUTANTS)} broken guarantees are noticed by a test")
    sys.exit(bool(alive))


if __name__ == "__main__":
    main()
