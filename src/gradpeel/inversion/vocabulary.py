"""What tokens do to features, position by position.

Example:
    >>> from gradpeel.target import split
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(12, 30), nn.ReLU())
    >>> vocabulary = Vocabulary(split(model).front, (3,))
    >>> vocabulary.sizes, vocabulary.owners.tolist()
    ([50, 50, 50], [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gradpeel.errors import InputError
from gradpeel.inversion.forward import FrontMap
from gradpeel.target import FeatureFront

__all__ = ["Vocabulary", "tables_of"]

TRIALS = 6
"""Random sequences on which the kind of a front is tried."""
SAME = 1e-9
"""Relative difference of features, in float64, below which they are the same."""
BLOCK = 1024
"""Tokens that run through the front at once."""


def tables_of(front: FeatureFront) -> list[nn.Embedding | nn.EmbeddingBag]:
    """The tables that the network in front of a layer may look tokens up in."""
    kinds = (nn.Embedding, nn.EmbeddingBag)
    return [module for module in front.model.modules() if isinstance(module, kinds)]


class Vocabulary:
    """What tokens do to the features, position by position.

    Args:
        front: from inputs to features.
        shape: shape of one input.
        places: where in a flat input the tokens stand; by default everywhere. The rest is drawn
            once, since zeros might hide what tokens do.

    Attributes:
        length: number of positions.
        sizes: number of tokens that each position may have.
        base: (features,) the features of token 0 everywhere.
        adds_up: whether features are a sum over positions that does not depend on their order.
        owners: (features,) the position that each feature depends on, -1 for none; only where every
            position has features of its own.
    """

    def __init__(
        self, front: FeatureFront, shape: tuple[int, ...], places: Tensor | None = None
    ) -> None:
        self._map, self._shape = FrontMap(front, torch.float64), shape
        self._places = places
        generator = torch.Generator().manual_seed(0)
        self._rest = torch.rand(math.prod(shape), generator=generator, dtype=torch.float64)
        self.length = math.prod(shape) if places is None else len(places)
        sizes = {table.num_embeddings for table in tables_of(front)}
        self._largest = sorted(sizes, reverse=True)
        try:
            self.base = self.run(torch.zeros((1, self.length), dtype=torch.int64))[0]
        except (InputError, IndexError, RuntimeError, ValueError, TypeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"sample_shape={shape}: the model does not take such tokens ({reason})"
            ) from error
        self.sizes = [self._size(position) for position in range(self.length)]
        drawn = torch.rand((TRIALS, self.length), generator=generator, dtype=torch.float64)
        self._trials = (drawn * torch.tensor(self.sizes)).long()
        self.owners = self._find_owners()
        self.adds_up = self.owners is None and self._is_sum()
        if self.owners is None and not self.adds_up:
            raise InputError(
                f"layer {front.layer!r}: its features mix the positions of tokens: expected "
                "features of its own for every position, or the sum of all embeddings"
            )

    def run(self, tokens: Tensor) -> Tensor:
        """The features, (n, features), of tokens, (n, length)."""
        inputs = tokens
        if self._places is not None:
            inputs = self._rest.repeat(len(tokens), 1)
            inputs[:, self._places] = tokens.double()
        with torch.no_grad():
            blocks = _blocks(inputs.reshape(-1, *self._shape))
            return torch.cat([self._map(block) for block in blocks])

    def effects(self, tokens: Tensor) -> Tensor:
        """(n, features) what each of some tokens in the first position changes."""
        sequences = torch.zeros((len(tokens), self.length), dtype=torch.int64)
        sequences[:, 0] = tokens
        return self.run(sequences) - self.base

    def look_up(self, features: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """The closest token at every position, and whether every other one is too far away."""
        assert self.owners is not None  # noqa: S101 -- for the type checker
        used = self.owners >= 0
        owners, wanted = self.owners[used], features[:, used]
        shape = (len(features), self.length)
        best = torch.full(shape, math.inf, dtype=torch.float64)
        second, found = best.clone(), torch.zeros(shape, dtype=torch.int64)
        sizes = torch.tensor(self.sizes)
        # All positions at once: each has features of its own.
        everywhere = torch.arange(int(sizes.max()))[:, None].expand(-1, self.length)
        blocks = _blocks(torch.minimum(everywhere, sizes - 1))
        rows = (row for block in blocks for row in self.run(block)[:, used])
        for token, row in enumerate(rows):
            squares = torch.zeros(shape, dtype=torch.float64)
            squares.index_add_(1, owners, (wanted - row).square())
            squares[:, token >= sizes] = math.inf
            is_closest = squares < best
            second = torch.where(is_closest, best, torch.minimum(second, squares))
            found = torch.where(is_closest, token, found)
            best = torch.minimum(best, squares)
        # Of two rows of a vocabulary within reach, either may be the right one.
        return found, (second.sqrt() > 2 * limits[:, None]).all(1)

    def _size(self, position: int) -> int:
        """How many tokens a position may have: the largest table whose last token it takes."""
        for size in self._largest:
            sequence = torch.zeros((1, self.length), dtype=torch.int64)
            sequence[0, position] = size - 1
            try:
                self.run(sequence)
            except (IndexError, RuntimeError):
                continue
            return size
        return self._largest[-1]

    def _find_owners(self) -> Tensor | None:
        """The position that each feature depends on; None where one depends on several."""
        changed = torch.zeros((self.length, len(self.base)), dtype=torch.bool)
        for other in self._trials:
            changes = other.repeat(self.length, 1)
            # Token by token from the trial's sequence to token 0.
            changes.fill_diagonal_(0)
            differences = self.run(changes) - self.run(other[None])
            changed |= differences.abs() > SAME * self.base.abs().max().clamp(min=1e-30)
        if bool((changed.sum(0) > 1).any()):
            return None
        return torch.where(changed.any(0), changed.long().argmax(0), -1)

    def _is_sum(self) -> bool:
        """Whether positions add up, in any order."""
        found = self.run(self._trials) - self.base
        parts = self.effects(self._trials.flatten()).reshape(TRIALS, self.length, -1).sum(1)
        return len(set(self.sizes)) == 1 and torch.allclose(
            found, parts, rtol=0, atol=SAME * float(found.abs().max())
        )


def _blocks(tokens: Tensor) -> tuple[Tensor, ...]:
    """Sequences in parts that run through the front at once."""
    return torch.chunk(tokens, max(1, math.ceil(len(tokens) / BLOCK)))
