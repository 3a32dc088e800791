"""Filters, orders and pages of the samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gradpeel import Audit, Report
from gradpeel.reporting.matching import rounds_of
from opened_page import Opened

Open = Callable[..., Opened]


def test_filters_show_what_they_say(part: Audit, opened: Open, pages: dict[str, Report]) -> None:
    rounds = rounds_of(part).tolist()
    shown = opened(pages["part"])
    assert sorted(shown.choose(filter="all")) == list(range(40))
    rebuilt = [i for i, number in enumerate(rounds) if number]
    assert sorted(shown.choose(filter="rebuilt")) == rebuilt
    assert shown.page.inner_text("#samples-count") == f"{len(rebuilt)} samples"
    assert sorted(shown.choose(filter="missing")) == [i for i, n in enumerate(rounds) if not n]
    second = [i for i, number in enumerate(rounds) if number == 2]
    assert sorted(shown.choose(filter="all", of_round="2")) == second


def test_orders(part: Audit, opened: Open, pages: dict[str, Report]) -> None:
    rounds, unusual = rounds_of(part).tolist(), part.exposure.atypicality.tolist()
    shown = opened(pages["part"])
    last = max(rounds) + 1
    by_risk = sorted(range(40), key=lambda i: (rounds[i] or last, -unusual[i]))
    assert shown.shown() == by_risk
    assert shown.choose(sort="index") == list(range(40))
    assert shown.choose(sort="atypicality") == sorted(range(40), key=lambda i: (-unusual[i], i))
    errors = {sample.index: sample.error for sample in pages["part"].payload.samples}
    ordered = [errors[i] for i in shown.choose(sort="error", filter="rebuilt")]
    assert ordered == sorted(ordered, key=lambda error: -(error or 0.0))


def test_pages_hold_every_sample_once(opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["records"])
    assert shown.page.is_disabled("#before")
    first = shown.shown()
    shown.page.click("#after")
    assert shown.page.inner_text("#page-number") == "page 2 of 2"
    assert sorted(first + shown.shown()) == list(range(12))
    assert shown.page.is_disabled("#after")
    # Another filter begins at its first page.
    assert shown.choose(sort="index") == list(range(6))


def test_cards_tell_label_round_error_and_certificate(
    part: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["part"])
    first = pages["part"].payload.samples[shown.shown()[0]]
    assert first.certificate is not None
    card = shown.page.locator("#cards > li").first
    text = card.inner_text()
    assert f"No. {first.index}, label {int(part.y[first.index])}" in text
    assert f"round {first.round}, off by at most" in text
    card.locator("summary").click()
    assert str(first.certificate.equations) in card.inner_text()
    shown.choose(filter="missing")
    assert "not reached by peeling" in shown.page.locator("#cards > li").first.inner_text()


@pytest.mark.parametrize("kind", ["records", "unnamed"])
def test_records_name_their_features_and_the_worst(
    kind: str, records: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    payload = pages[kind].payload
    shown = opened(pages[kind])
    shown.choose(sort="index")
    for place in range(6):
        card = shown.page.locator(f"#cards > li[data-index='{place}']")
        assert card.locator("th[scope=row]").all_inner_texts() == list(payload.features)
        sample = payload.samples[place]
        errors = [abs(a - b) for a, b in zip(sample.values, sample.found, strict=True)]
        assert sample.error == max(errors)
        worst = payload.features[errors.index(max(errors))]
        if sample.error:
            assert f"({worst})" in card.inner_text()
        assert card.locator("tr.worst th").inner_text() == worst


def test_copies_are_told(opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["doubled"])
    assert shown.page.inner_text("#cards").count("2 copies in the batch") == 6
