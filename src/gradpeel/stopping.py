"""What would stop this? The weakest setting of each defence that ends recovery in an audit.

The audit is run again under one defence after the other, with the same model, batch and attacker.
"Stopped" means: at this setting this attack read no sample of this batch. A stronger attack,
another model or another batch may read some; it never means that the client is safe.

Example:
    >>> import torch
    >>> from torch import nn
    >>> import gradpeel as gp
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 2))
    >>> found = gp.audit(model, torch.rand(8, 30), torch.arange(8) % 2)
    >>> for trial in what_stops(found, tried=("float16", "guard")):
    ...     print(trial.setting, trial.stops)
    guard:0.2 True
    float16 False
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from torch import Tensor

from gradpeel.aggregation import Aggregation
from gradpeel.audit import Audit, audit
from gradpeel.defences import PerExampleClipping, parse
from gradpeel.designs import Passive
from gradpeel.errors import InputError
from gradpeel.inputs import NetworkInput
from gradpeel.reporting.words import percent
from gradpeel.update import Update

__all__ = ["LADDERS", "SECONDS", "Stopping", "Trial", "what_stops"]

SECONDS = 120.0
"""For all trials together, unless more is asked for."""
DELTA = 1e-5
"""Of the epsilon that is stated."""
LADDERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "guard": ("Guard", ("guard:0.2",)),
    "float16": ("Rounding to float16", ("float16",)),
    "bfloat16": ("Rounding to bfloat16", ("bfloat16",)),
    "int8": ("Rounding to 8 bits", ("int8",)),
    "sign": ("Signs only", ("sign",)),
    "top-k": ("Largest entries only", ("top-k:0.5", "top-k:0.1", "top-k:0.01")),
    "clip": ("Clipping the update", ("clip:1",)),
    "dp": (
        "Clipping each sample, with noise",
        ("dp:1,0", "dp:1,0.001", "dp:1,0.01", "dp:1,0.1", "dp:1,1"),
    ),
    "relative-noise": (
        "Noise, relative",
        tuple(f"relative-noise:{sigma}" for sigma in ("1e-5", "1e-4", "1e-3", "0.01", "0.1", "1")),
    ),
    "noise": (
        "Noise, absolute",
        tuple(f"noise:{deviation}" for deviation in ("1e-8", "1e-6", "1e-5", "1e-4", "1e-3")),
    ),
}
"""Settings of each defence from weak to strong, by the name of the defence."""
TIMES = (2, 4, 8)
"""How many times the samples larger batches have, and how many clients are added up."""
STANDARDISED, BATCH, CLIENTS = "standardised", "batch size", "clients"
ALL = (*LADDERS, STANDARDISED, BATCH, CLIENTS)


@dataclass(frozen=True)
class Trial:
    """One defence, at the weakest setting that stopped the attack, or else at the strongest tried.

    Attributes:
        defence: what it is, in words.
        setting: its setting, as `--defences` takes it, or in words.
        stops: whether no sample was read; None if that was not finished in time.
        readable: number of samples that were read; None likewise.
        samples: number of samples in the batch.
        members: number of samples that were shown to have taken part; None if that could not be
            asked or was not finished.
        cost: what it costs, in words.
    """

    defence: str
    setting: str
    stops: bool | None
    readable: int | None
    samples: int
    members: int | None
    cost: str

    @property
    def verdict(self) -> str:
        """What the trial showed, in words."""
        if self.stops is None:
            return "not finished in time"
        if self.stops:
            return "stopped this attack at this setting"
        return f"{self.readable:,} of {self.samples:,} still read"

    def __str__(self) -> str:
        return f"{self.defence} ({self.setting}): {self.verdict}; {self.cost}"


@dataclass(frozen=True)
class Stopping(Sequence[Trial]):
    """What was tried, in the order in which it was tried.

    Attributes:
        trials: one for each defence.
    """

    trials: tuple[Trial, ...]

    def __getitem__(self, place):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN204 -- as in tuples
        return self.trials[place]

    def __len__(self) -> int:
        return len(self.trials)

    def __str__(self) -> str:
        return "\n".join(map(str, self.trials))

    @property
    def verdict(self) -> str:
        """How many stopped the attack, in a sentence.

        Example:
            >>> print(Stopping((Trial("Guard", "guard:0.2", True, 0, 8, 0, "unknown"),)).verdict)
            1 of 1 defences stopped this attack at the setting shown.
        """
        stopped = sum(trial.stops is True for trial in self.trials)
        return f"{stopped} of {len(self.trials)} defences stopped this attack at the setting shown."

    def as_dict(self) -> list[dict[str, object]]:
        """The trials as plain values."""
        return [dict(trial.__dict__) for trial in self.trials]


def what_stops(
    found: Audit,
    *,
    more: tuple[NetworkInput, Tensor] | None = None,
    seconds: float | None = SECONDS,
    tried: Collection[str] = ALL,
    on_trial: Callable[[Trial], None] | None = None,
) -> Stopping:
    """Try defences on an audit, and find the weakest setting of each that ends recovery.

    Settings from weak to strong are searched by halving, on the assumption that a stronger one
    does not let more through.

    Args:
        found: the audit; its model, batch, client and attacker stay as they are.
        more: further samples and labels like those of the batch, for larger batches and sums over
            several clients; without them these are not tried.
        seconds: after how long to give up; None for as long as it takes.
        tried: names of the defences to try, of `gradpeel.stopping.ALL`.
        on_trial: called after each of them.

    Raises:
        InputError: a name is unknown, or `more` does not fit the batch.
    """
    for name in tried:
        if name not in ALL:
            raise InputError(f"tried={name!r}: expected some of {', '.join(ALL)}")
    search = _Search(found, more, math.inf if seconds is None else perf_counter() + seconds)
    trials = []
    for trial in search.run(tried):
        trials.append(trial)
        if on_trial is not None:
            on_trial(trial)
    return Stopping(tuple(trials))


class _OutOfTimeError(Exception):
    """The time was up."""


@dataclass(frozen=True)
class _Step:
    """A setting, by name, how to audit under it, and what it costs."""

    name: str
    run: Callable[[], Audit]
    cost: Callable[[Audit], str]


class _Search:
    def __init__(self, found: Audit, more: tuple[NetworkInput, Tensor] | None, end: float) -> None:
        self._found, self._more, self._end = found, more, end
        # The model is what the design made of it already.
        self._attacker = replace(found.attacker, design=Passive())

    def run(self, tried: Collection[str]) -> Iterator[Trial]:
        for name, (words, settings) in LADDERS.items():
            # Samples are clipped first, so that cannot be added to another defence.
            if name in tried and not (name == "dp" and self._found.client.defences):
                yield self._weakest(words, [self._defended(setting) for setting in settings])
        x = self._found.inputs
        if STANDARDISED in tried and isinstance(x, Tensor) and not self._found.design.active:
            yield self._weakest("Standardised inputs", [self._standardised(x)])
        counts = [] if self._more is None else [k for k in TIMES if self._fits(k)]
        if BATCH in tried and counts:
            yield self._weakest("Larger batch", [self._joined(k, clients=1) for k in counts])
        if CLIENTS in tried and counts and self._found.update.clients == 1:
            yield self._weakest("Secure aggregation", [self._joined(k, clients=k) for k in counts])

    def _weakest(self, words: str, steps: Sequence[_Step]) -> Trial:
        """The weakest setting that stops the attack; the strongest one if none does."""
        low, high = 0, len(steps) - 1
        known: dict[int, Audit] = {}
        try:
            known[high] = steps[high].run()
            if not known[high].score.read:
                while low < high:
                    middle = (low + high) // 2
                    known[middle] = steps[middle].run()
                    low, high = (
                        (low, middle) if not known[middle].score.read else (middle + 1, high)
                    )
        except _OutOfTimeError:
            if high not in known:
                size = self._found.score.batch_size
                return Trial(words, steps[high].name, None, None, size, None, "unknown")
        step, seen = steps[high], known[high]
        read = seen.score.read
        # A sample that was read took part, also where the membership test itself cannot decide.
        members = None if seen.refuses_membership else max(read, seen.membership.count("in"))
        size = seen.score.batch_size
        return Trial(words, step.name, not read, read, size, members, step.cost(seen))

    def _audit(self, **changed: object) -> Audit:
        found = self._found
        settings = {
            "model": found.model,
            "x": found.inputs,
            "y": found.y,
            "client": found.client,
            "attacker": self._attacker,
            "aggregation": found.aggregation,
            "seed": found.seed,
        } | changed
        self._go_on(None)
        return audit(**settings, on_round=self._go_on, on_rows=self._go_on)  # type: ignore[arg-type]

    def _go_on(self, _: object) -> None:
        if perf_counter() > self._end:
            raise _OutOfTimeError

    def _defended(self, setting: str) -> _Step:
        client = self._found.client
        defences = parse(setting)
        changed = replace(client, defences=(*client.defences, *defences))

        def cost(seen: Audit) -> str:
            kept = f"keeps {percent(_alignment(seen.update, self._found.update))} of the update"
            dp = defences[0]
            if isinstance(dp, PerExampleClipping) and dp.noise:
                epsilon = float(f"{dp.epsilon(DELTA):.3g}")
                return f"{kept}; epsilon {epsilon:,g} for one update (delta {DELTA:g})"
            return kept

        return _Step(setting, lambda: self._audit(client=changed), cost)

    def _standardised(self, x: Tensor) -> _Step:
        mean, deviation = x.mean(0), x.std(0, correction=0).clamp(min=0.01)
        return _Step(
            "mean 0, deviation 1",
            lambda: self._audit(x=(x - mean) / deviation),
            lambda _: "nothing, but a server that shapes the layer undoes it",
        )

    def _fits(self, times: int) -> bool:
        return self._more is not None and len(self._more[0]) >= times * len(self._found.inputs)

    def _joined(self, times: int, *, clients: int) -> _Step:
        size = times * len(self._found.inputs)
        if self._more is None:
            raise InputError("more=None: expected samples")
        x, y = self._more[0][:size], self._more[1][:size]
        clients = max(clients, 1) * self._found.update.clients
        name = f"{size:,} samples" if clients == 1 else f"{clients:,} clients"
        return _Step(
            name,
            lambda: self._audit(x=x, y=y, aggregation=Aggregation(clients)),
            lambda _: f"{times} times the samples for each update that the server sees",
        )


def _alignment(sent: Update, plain: Update) -> float:
    """Share of the plain update, by its square, along what is sent: the squared cosine."""
    pairs = [(sent.gradients[name].double(), g.double()) for name, g in plain.gradients.items()]
    along = sum(float((one * other).sum()) for one, other in pairs)
    sizes = [math.sqrt(sum(float(pair[i].square().sum()) for pair in pairs)) for i in (0, 1)]
    # Rounded, so that a scaled update counts as the whole of it.
    return round((along / (sizes[0] * sizes[1])) ** 2, 9) if all(sizes) else 0.0
