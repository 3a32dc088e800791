"""Reconstructed inputs and leaked tokens, as the terminal and the page show them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from rich.console import RenderableType
from torch import Tensor, nn

import gradpeel as gp
from gradpeel import Audit, InputError, Inversion
from gradpeel.datasets import Dataset, draw_batch
from gradpeel.inversion.likeness import compare
from gradpeel.reporting import summary
from gradpeel.reporting.page.reading import payload_from
from gradpeel.reporting.reconstructions import leaked, reconstructions


@pytest.fixture(scope="module")
def pictures(digits: Dataset) -> Audit:
    torch.manual_seed(0)
    batch = draw_batch(digits, 6)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(100, 200), nn.ReLU(),
        nn.Linear(200, 10),
    )  # fmt: skip
    return gp.audit(model, batch.x.float()[:, None], batch.y)


@pytest.fixture(scope="module")
def tokens() -> Audit:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(20, 5), nn.Flatten(), nn.Linear(15, 100), nn.ReLU(), nn.Linear(100, 2)
    )
    return gp.audit(model, torch.randint(20, (4, 3)), torch.tensor([0, 1, 0, 1]))


def rebuilt(audit: Audit, *, off: float = 0.0, determined: bool = True) -> Inversion:
    """What an inversion of an audit would have found, without the search."""
    matches = audit.score.matches
    inputs: Tensor = audit.x[matches] + off if off else audit.x[matches]
    size = len(matches)
    return Inversion(
        layer=audit.recovery.layer,
        inputs=inputs,
        residuals=torch.full((size,), 2e-7, dtype=torch.float64),
        starts=torch.zeros(size, dtype=torch.int64),
        determined=torch.full((size,), determined),
        hidden=torch.full((size,), 0.0 if determined else 0.25, dtype=torch.float64),
        likeness=compare(audit.x, matches, inputs),
    )


def test_sentences_say_how_close_and_how_sure(pictures: Audit) -> None:
    assert reconstructions(rebuilt(pictures, off=1e-3)) == (
        "6 inputs were reconstructed from certified feature vectors; these determine all of them. "
        "Compared with the real inputs, PSNR is 60 dB in the median and at least 60 dB."
    )
    unsure = reconstructions(rebuilt(pictures, off=1e-3, determined=False))
    assert "these determine none of them. On average 25.0 % of the directions of an input" in unsure
    assert "6 of 6 are equal to the real inputs." in reconstructions(rebuilt(pictures))
    sure = replace(rebuilt(pictures), mismatch=3e-7)
    assert "confirm all reconstructions to 3.0e-07" in reconstructions(sure)
    assert "confirm" not in reconstructions(replace(sure, mismatch=0.1))
    nothing = Inversion.joined([], "3", (1, 8, 8))
    assert reconstructions(nothing).startswith("No feature vector was recovered")


def test_sentences_about_tokens(tokens: Audit) -> None:
    found = rebuilt(tokens)
    assert reconstructions(found).endswith("4 of 4 are the real tokens.")
    assert "not their order" in reconstructions(replace(found, ordered=False))
    assert leaked({"a": torch.tensor([3]), "b": torch.tensor([1, 2])}) == (
        "The gradient of embedding `a` names 1 token that occurred in the batch. "
        "The gradient of embedding `b` names 2 tokens that occurred in the batch."
    )


def test_the_terminal_has_sections_of_their_own(
    pictures: Audit, tokens: Audit, printed: Callable[[RenderableType], str]
) -> None:
    without = printed(summary(pictures, data="digits"))
    assert "Reconstructed inputs" not in without
    assert "Leaked tokens" not in without
    assert "Reconstructed inputs" in printed(
        summary(pictures, data="digits", inversion=rebuilt(pictures))
    )
    assert "Leaked tokens" in printed(summary(tokens, data="text"))


def test_the_page_shows_originals_and_reconstructions(pictures: Audit, digits: Dataset) -> None:
    page = gp.report(pictures, digits, inversion=rebuilt(pictures, off=0.05, determined=False))
    shown = page.payload.reconstructions
    assert shown is not None
    assert [row.sample for row in shown.rows] == list(range(6))
    assert all(row.original is not None and row.original != row.found for row in shown.rows)
    assert '<section id="reconstructions"' in page.html
    assert 'alt="Reconstruction of sample 3"' in page.html
    assert "26 dB, not determined" in page.html
    # The first screen leads with them, and does not call them a step still to be taken.
    first = page.html[: page.html.index('<main id="main"')]
    assert first.count('alt="Reconstruction of sample') == 6
    for said in (first, page.payload.story.limits):
        assert "gradpeel.invert" not in said
    assert "not certified" in page.payload.story.limits
    assert payload_from(json.loads(page.payload.to_json())) == page.payload
    plain = gp.report(pictures, digits)
    assert plain.payload.reconstructions is None
    assert "gradpeel.invert" in plain.payload.story.limits
    assert "Reconstructed inputs" not in plain.html


def test_the_page_lists_tokens(tokens: Audit) -> None:
    page = gp.report(tokens, inversion=rebuilt(tokens))
    (table,) = page.payload.leaked
    assert table.number == len(table.tokens) == len(set(tokens.x.flatten().tolist()))
    assert '<section id="tokens"' in page.html
    assert f"{', '.join(map(str, table.tokens))}</dd>" in page.html
    first = ", ".join(str(token) for token in tokens.x[0].tolist())
    assert f"<td>{first}</td><td>{first}</td><td>equal</td>" in page.html
    assert f'<td class="long">{first}</td><td class="long">{first}</td>' in page.html


def test_without_samples_neither_inputs_nor_tokens_are_shown(
    pictures: Audit, tokens: Audit
) -> None:
    for audit in (pictures, tokens):
        page = gp.report(audit, samples=False, inversion=rebuilt(audit, off=0.0))
        shown = page.payload.reconstructions
        assert shown is not None
        assert shown.pictures == ()
        assert all(row.original is None and row.true_values == () for row in shown.rows)
        assert all(table.tokens == () for table in page.payload.leaked)
        assert "Inputs and reconstructions were left out of this page." in page.html


def test_an_inversion_without_an_audit_has_nothing_to_stand_beside(pictures: Audit) -> None:
    bare = replace(rebuilt(pictures), likeness=None)
    with pytest.raises(InputError, match="inversion: expected what `invert` of this audit found"):
        gp.report(pictures, inversion=bare)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"sample": 6}, r"page.reconstructions.rows\[0\].sample: expected numbers in 0..5"),
        ({"found": 99}, r"page.reconstructions.rows\[0\].original or .found: expected numbers"),
        ({"residual": -1.0}, r"page.reconstructions.rows\[0\].residual: expected a number of at"),
    ],
)
def test_a_file_that_points_elsewhere_is_refused(
    change: dict[str, object], line: str, pictures: Audit
) -> None:
    values = json.loads(gp.report(pictures, inversion=rebuilt(pictures)).payload.to_json())
    values["reconstructions"]["rows"][0].update(change)
    with pytest.raises(InputError, match=line):
        payload_from(values)


def test_a_false_certificate_is_compared_with_nothing(pictures: Audit) -> None:
    x = pictures.x
    likeness = compare(x, torch.tensor([1, -1]), x[:2])
    assert likeness.samples.tolist() == [1, -1]
    assert likeness.exact.tolist() == [False, False]
    assert likeness.psnr.isnan().tolist() == [False, True]
    assert likeness.as_dict()["psnr"] == [float(likeness.psnr[0]), None]
