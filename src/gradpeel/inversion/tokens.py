"""Tokens behind embeddings: exact by search over the vocabulary.

Two kinds of fronts are read. Where every position has features of its own (flattened or
concatenated embeddings), the closest row of the vocabulary is looked up for each. Where positions
are added up (`EmbeddingBag`, a mean over positions), the counts of tokens are found, see
`gradpeel.inversion.bags`. Which of the two a front is, is tried on random tokens.

Formal guarantees, for a sequence that is called determined, on a front of the kind it was found to
be:

- The network's own forward pass turns these tokens into the given features, to rounding.
- No other tokens come within twice that distance. For positions with features of their own: each
  other row of the vocabulary is farther away at its position.

Example:
    >>> from gradpeel.target import split
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(12, 30), nn.ReLU())
    >>> front, tokens = split(model).front, torch.tensor([[3, 14, 15], [9, 26, 3]])
    >>> found = read_tokens(front, front(tokens), (3,), torch.tensor([1e-5, 1e-5]))
    >>> found.inputs.tolist(), found.determined.tolist()
    ([[3, 14, 15], [9, 26, 3]], [True, True])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from gradpeel.errors import InputError
from gradpeel.inversion.bags import read_bag
from gradpeel.inversion.forward import TINY, FrontMap
from gradpeel.inversion.inversion import Inversion
from gradpeel.target import FeatureFront

__all__ = ["read_tokens", "takes_tokens"]

TRIALS = 6
"""Random sequences on which the kind of a front is tried."""
SAME = 1e-9
"""Relative difference of features, in float64, below which they are the same."""
BLOCK = 1024
"""Tokens that run through the front at once."""


def takes_tokens(front: FeatureFront, shape: tuple[int, ...]) -> bool:
    """Whether inputs are looked up in a table: the network has one, and refuses fractions."""
    if not _tables(front):
        return False
    try:
        front(torch.zeros((1, *shape)))
    except InputError:
        return True
    return False


def _tables(front: FeatureFront) -> list[nn.Embedding | nn.EmbeddingBag]:
    kinds = (nn.Embedding, nn.EmbeddingBag)
    return [module for module in front.model.modules() if isinstance(module, kinds)]


def read_tokens(
    front: FeatureFront,
    features: Tensor,
    shape: tuple[int, ...],
    reached: Tensor,
    *,
    among: Mapping[str, Tensor] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Inversion:
    """Find the tokens that have given features.

    Args:
        front: from tokens to features.
        features: (n, features).
        shape: shape of one input; all its numbers are tokens.
        reached: (n,) relative distance within which features are the same.
        among: the tokens that occurred in the batch, where the update names them. They are looked
            at alone where the whole vocabulary leaves several answers.
        on_progress: called with the number of sequences that are done, and of all.

    Raises:
        InputError: the network does not take tokens of this shape, or its front is of neither kind.
    """
    vocabulary = _Vocabulary(front, shape)
    features = features.double()
    limits = reached * features.norm(dim=1)
    if vocabulary.adds_up:
        choices = [torch.arange(vocabulary.sizes[0]), *_named(front, among or {})]
        rows = [vocabulary.effects(tokens) for tokens in choices]
        found = torch.zeros((len(features), vocabulary.length), dtype=torch.int64)
        is_only = torch.zeros(len(features), dtype=torch.bool)
        for place, row in enumerate(features - vocabulary.base):
            for tokens, effects in zip(choices, rows, strict=True):
                counts, is_unique = read_bag(effects, row, vocabulary.length, float(limits[place]))
                if is_unique or tokens is choices[0]:
                    found[place] = tokens.repeat_interleave(counts)
                    is_only[place] = is_unique
                if is_unique:
                    break
            if on_progress is not None:
                on_progress(place + 1, len(features))
    else:
        found, is_only = vocabulary.look_up(features, limits)
        if on_progress is not None:
            on_progress(len(features), len(features))
    distances = (vocabulary.run(found) - features).norm(dim=1)
    residuals = distances / features.norm(dim=1).clamp(min=TINY)
    return Inversion(
        layer=front.layer,
        inputs=found.reshape(-1, *shape),
        residuals=residuals,
        starts=torch.zeros(len(found), dtype=torch.int64),
        determined=(residuals <= reached) & is_only,
        hidden=torch.zeros(len(found), dtype=torch.float64),
        ordered=not vocabulary.adds_up,
    )


def _named(front: FeatureFront, among: Mapping[str, Tensor]) -> list[Tensor]:
    """The tokens that the update names, and padding, whose gradient is never sent."""
    tables = _tables(front)
    if len(tables) != 1 or len(among) != 1:
        return []
    padding = [] if tables[0].padding_idx is None else [tables[0].padding_idx]
    return [torch.unique(torch.cat([*among.values(), torch.tensor(padding, dtype=torch.int64)]))]


def _blocks(tokens: Tensor) -> tuple[Tensor, ...]:
    """Sequences in parts that run through the front at once."""
    return torch.chunk(tokens, max(1, math.ceil(len(tokens) / BLOCK)))


class _Vocabulary:
    """What tokens do to the features, position by position.

    Attributes:
        length: number of positions.
        sizes: number of tokens that each position may have.
        base: (features,) the features of token 0 everywhere.
        adds_up: whether features are a sum over positions that does not depend on their order.
        owners: (features,) the position that each feature depends on, -1 for none; only where every
            position has features of its own.
    """

    def __init__(self, front: FeatureFront, shape: tuple[int, ...]) -> None:
        self._map, self._shape = FrontMap(front, torch.float64), shape
        self.length = math.prod(shape)
        sizes = {table.num_embeddings for table in _tables(front)}
        self._largest = sorted(sizes, reverse=True)
        try:
            self.base = self.run(torch.zeros((1, self.length), dtype=torch.int64))[0]
        except (InputError, IndexError, RuntimeError, ValueError, TypeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"sample_shape={shape}: the model does not take such tokens ({reason})"
            ) from error
        self.sizes = [self._size(position) for position in range(self.length)]
        generator = torch.Generator().manual_seed(0)
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
        with torch.no_grad():
            blocks = _blocks(tokens.reshape(-1, *self._shape))
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
