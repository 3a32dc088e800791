"""Wide layers: the loop touches nothing that is as wide as a sample, and nothing large is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gradpeel.decoder import Peeling
from support import SmallRound, make_round, recovered


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells of every operation: the tensors it was given, and those that it made."""

    def __init__(self, tell: Callable[[list[Tensor], list[Tensor]], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tell = tell

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        before = list(_tensors((args, kwargs)))
        known = {_place(tensor) for tensor in before}
        made = [t for t in _tensors(result) if _place(t) not in known | {None}]
        self._tell([*before, *made], made)
        return result


def _place(tensor: Tensor) -> int | None:
    """Where its numbers are; None where it only stands for others, as in a derivative."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return None


def _tensors(values: object) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


FEATURES, NEURONS = 120_011, 200
"""Of no other size is anything here; so wide that it is worked on in parts."""


@pytest.fixture(scope="module")
def round_() -> SmallRound:
    return make_round(FEATURES, NEURONS, 16, 5, seed=1, dtype=torch.float32)


@pytest.mark.slow
def test_the_loop_touches_nothing_wide(round_: SmallRound) -> None:
    seen: list[tuple[int, ...]] = []

    def tell(touched: list[Tensor], _: list[Tensor]) -> None:
        seen.extend(tuple(t.shape) for t in touched)

    peeling = Peeling(round_.model, round_.update)
    with Watch(tell):
        rounds = sum(1 for _ in peeling)
    assert rounds >= 2
    assert len(seen) > 1000
    assert not [shape for shape in seen if FEATURES in shape]
    assert recovered(peeling.recovery(), round_, within=1e-3) == set(range(16))


@pytest.mark.slow
def test_nothing_as_large_as_the_update_is_made(round_: SmallRound) -> None:
    sizes: list[int] = []

    def tell(_: list[Tensor], made: list[Tensor]) -> None:
        sizes.extend(t.untyped_storage().nbytes() for t in made)

    with Watch(tell):
        peeling = Peeling(round_.model, round_.update)
        list(peeling)
        recovery = peeling.recovery()
    assert recovered(recovery, round_, within=1e-3) == set(range(16))
    assert recovery.samples.untyped_storage().nbytes() in sizes
    assert max(sizes) < NEURONS * FEATURES * torch.float32.itemsize / 2
