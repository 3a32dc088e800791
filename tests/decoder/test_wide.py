"""Work on what is as wide as the features: in blocks, and never more than it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gradpeel.decoder import Peeling, wide
from gradpeel.decoder.wide import batches, combine, mean_square, norms_of_products, survey
from support import SmallRound, make_round, recovered

FLOATS = [torch.float64, torch.float32, torch.float16]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "_BLOCK_BYTES", 8 * 210)
    monkeypatch.setattr(wide, "_CHUNK", 3)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A gradient, some of whose rows may be zero, and a weight of the same shape."""
    neurons, features = draw(st.integers(1, 30)), draw(st.integers(1, 60))
    source = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    gradient, weight = torch.randn(2, neurons, features, generator=source, dtype=torch.float64)
    dead = torch.rand(neurons, generator=source) < draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    gradient[dead] = 0.0
    # One that is zero nearly everywhere is not zero.
    gradient[0, :-1] = 0.0
    dtype = draw(st.sampled_from(FLOATS))
    return gradient.to(dtype), weight.to(draw(st.sampled_from(FLOATS)))


@given(matrices())
def test_the_product(given: tuple[Tensor, Tensor]) -> None:
    gradient, weight = given
    product, sketch = survey(gradient, weight, multiply=True)
    assert product.dtype == sketch.dtype == torch.float64
    torch.testing.assert_close(product, gradient.double() @ weight.double().T)
    without, same = survey(gradient, weight, multiply=False)
    assert without.shape == (len(gradient), 0)
    assert torch.equal(same, sketch)


def test_norms_show_in_random_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "_SKETCH", 4000)
    source = torch.Generator().manual_seed(0)
    gradient, weight = torch.randn(2, 20, 100, generator=source, dtype=torch.float64)
    sketch = survey(gradient, weight, multiply=False)[1]
    for _ in range(5):
        mix = torch.randn(20, generator=source, dtype=torch.float64)
        assert float((mix @ sketch).norm()) == pytest.approx(
            float((mix @ gradient).norm()), rel=0.05
        )


@given(matrices(), st.integers(0, 10), st.sampled_from([0.0, 0.3, 1.0]))
def test_combinations_of_rows(given: tuple[Tensor, Tensor], count: int, full: float) -> None:
    gradient = given[0]
    source = torch.Generator().manual_seed(count)
    mix = torch.randn(count, len(gradient), generator=source, dtype=torch.float64)
    mix *= torch.rand(mix.shape, generator=source) < full
    found = combine(mix, gradient)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, mix @ gradient.double())


@given(matrices())
def test_what_noise_needs_to_know(given: tuple[Tensor, Tensor]) -> None:
    gradient, weight = given
    exact = gradient.double()
    assert mean_square(gradient) == pytest.approx(float(exact.square().mean()))
    spread = float(exact.var(correction=0))
    assert mean_square(gradient, centred=True) == pytest.approx(spread, abs=1e-12)
    some = torch.arange(0, len(gradient), 2)
    products = (exact * weight.double())[some].norm(dim=1)
    torch.testing.assert_close(norms_of_products(gradient, weight, some), products)


@given(st.integers(0, 50), st.integers(1, 60))
def test_batches_cover_everything_once(count: int, size: int) -> None:
    parts = list(batches(count, size))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(count))
    assert all(part.stop - part.start <= size for part in parts)


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
        known = {tensor.untyped_storage().data_ptr() for tensor in before}
        made = [t for t in _tensors(result) if t.untyped_storage().data_ptr() not in known]
        self._tell([*before, *made], made)
        return result


def _tensors(values: object) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


FEATURES, NEURONS = 10_007, 300
"""Of no other size is anything here."""


@pytest.fixture
def some_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "_BLOCK_BYTES", 8 * NEURONS * 300)


def wide_round(dtype: torch.dtype) -> SmallRound:
    return make_round(FEATURES, NEURONS, 16, 5, seed=1, dtype=dtype)


@pytest.mark.usefixtures("some_blocks")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_loop_touches_nothing_wide(dtype: torch.dtype) -> None:
    round_ = wide_round(dtype)
    seen: list[tuple[int, ...]] = []

    def tell(touched: list[Tensor], _: list[Tensor]) -> None:
        seen.extend(tuple(t.shape) for t in touched)

    peeling = Peeling(round_.model, round_.update)
    with Watch(tell):
        rounds = sum(1 for _ in peeling)
    assert rounds >= 2
    assert len(seen) > 1000
    assert not [shape for shape in seen if FEATURES in shape]
    assert len(peeling.recovery()) == int(round_.exposure.reached.sum())


@pytest.mark.usefixtures("some_blocks")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nothing_as_large_as_the_update_is_made(dtype: torch.dtype) -> None:
    round_ = wide_round(dtype)
    sizes: list[int] = []

    def tell(_: list[Tensor], made: list[Tensor]) -> None:
        sizes.extend(t.untyped_storage().nbytes() for t in made)

    with Watch(tell):
        peeling = Peeling(round_.model, round_.update)
        list(peeling)
        recovery = peeling.recovery()
    assert len(recovery) == 16
    assert recovery.samples.untyped_storage().nbytes() in sizes
    assert max(sizes) < NEURONS * FEATURES * dtype.itemsize / 8


@pytest.mark.slow
@settings(max_examples=20)
@given(st.sampled_from(FLOATS[:2]), st.integers(0, 100))
def test_blocks_change_nothing(dtype: torch.dtype, seed: int) -> None:
    round_ = make_round(200, 60, 8, seed=seed, dtype=dtype)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for size in (8 * 60 * 3, 2**25):
            patch.setattr(wide, "_BLOCK_BYTES", size)
            peeling = Peeling(round_.model, round_.update)
            list(peeling)
            found.append(peeling.recovery())
    small, large = (recovered(recovery, round_) for recovery in found)
    assert small == large
