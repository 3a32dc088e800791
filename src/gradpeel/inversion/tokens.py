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
    >>> from torch import nn
    >>> from gradpeel.target import split
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(12, 30), nn.ReLU())
    >>> front, tokens = split(model).front, torch.tensor([[3, 14, 15], [9, 26, 3]])
    >>> found = read_tokens(front, front(tokens), (3,), torch.tensor([1e-5, 1e-5]))
    >>> found.inputs.tolist(), found.determined.tolist()
    ([[3, 14, 15], [9, 26, 3]], [True, True])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gradpeel.errors import InputError
from gradpeel.inversion.bags import read_bag
from gradpeel.inversion.forward import TINY, has_slope
from gradpeel.inversion.inversion import Inversion
from gradpeel.inversion.vocabulary import Vocabulary, tables_of
from gradpeel.target import FeatureFront

__all__ = ["read_tokens", "takes_tokens"]


def takes_tokens(front: FeatureFront, shape: tuple[int, ...]) -> bool:
    """Whether inputs are looked up in a table: the network has one, and no use for fractions."""
    if not tables_of(front):
        return False
    try:
        front(torch.zeros((1, *shape)))
    except InputError:
        return True
    return not has_slope(front, shape)


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
    vocabulary = Vocabulary(front, shape)
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
    tables = tables_of(front)
    if len(tables) != 1 or len(among) != 1:
        return []
    padding = [] if tables[0].padding_idx is None else [tables[0].padding_idx]
    return [torch.unique(torch.cat([*among.values(), torch.tensor(padding, dtype=torch.int64)]))]
