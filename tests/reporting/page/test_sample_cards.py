"""Filters, orders and pages of the samples."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable

import pytest

from gradpeel import Audit, Report, report
from gradpeel.datasets import Dataset
from gradpeel.reporting.matching import rounds_of
from gradpeel.reporting.words import counted
from opened_page import Opened

Open = Callable[..., Opened]
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", ",\u00a0")


def _value(text: str) -> float:
    return float(text.translate(RAISED).replace("×10", "e"))


def test_filters_show_what_they_say(part: Audit, opened: Open, pages: dict[str, Report]) -> None:
    rounds = rounds_of(part).tolist()
    shown = opened(pages["part"])
    assert sorted(shown.choose(filter="all")) == list(range(40))
    rebuilt = [i for i, number in enumerate(rounds) if number]
    assert sorted(shown.choose(filter="recovered")) == rebuilt
    assert shown.page.inner_text("#samples-count") == f"{len(rebuilt)} samples"
    assert sorted(shown.choose(filter="not recovered")) == [
        i for i, n in enumerate(rounds) if not n
    ]
    second = [i for i, number in enumerate(rounds) if number == 2]
    assert sorted(shown.choose(filter="all", of_round="2")) == second


def test_orders(part: Audit, opened: Open, pages: dict[str, Report]) -> None:
    rounds, unusual = rounds_of(part).tolist(), part.exposure.atypicality.tolist()
    shown = opened(pages["part"])
    groups = shown.page.locator("#cards h3").all_inner_texts()
    assert groups == [
        f"Round {number}{counted(rounds.count(number), 'sample')}"
        for number in range(1, max(rounds) + 1)
    ] + [f"Not recovered{counted(rounds.count(0), 'sample')}"]
    last = max(rounds) + 1
    by_risk = sorted(range(40), key=lambda i: (rounds[i] or last, -unusual[i]))
    assert shown.shown() == by_risk
    assert shown.choose(sort="index") == list(range(40))
    assert shown.choose(sort="atypicality") == sorted(range(40), key=lambda i: (-unusual[i], i))
    errors = {sample.index: sample.error for sample in pages["part"].payload.samples}
    ordered = [errors[i] for i in shown.choose(sort="error", filter="recovered")]
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


def test_cards_show_label_round_and_certificate(
    part: Audit, opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["part"])
    first = pages["part"].payload.samples[shown.shown()[0]]
    assert first.certificate is not None
    card = shown.page.locator("#cards li").first
    assert f"No. {first.index} label {int(part.y[first.index])}" in card.inner_text()
    assert f"round {first.round}" in card.inner_text()
    # An error of 1e-16 is not worth a word.
    assert "PSNR" not in card.inner_text()
    card.locator("button.link").click()
    drawer = shown.page.locator(".drawer").inner_text()
    assert f"Certificate of sample {first.index}" in drawer
    assert f"equations\n{first.certificate.equations}" in drawer
    assert f"{round(first.certificate.score)} decimal digits" in drawer
    card.locator("button.link").click()
    assert shown.page.query_selector(".drawer") is None


def test_the_original_appears_on_hover_press_and_key(
    opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["part"])
    picture = shown.page.locator("#cards button.picture").first
    opacity = "(one) => getComputedStyle(one.querySelector('.original')).opacity"
    assert picture.evaluate(opacity) == "0"
    picture.hover()
    assert picture.evaluate(opacity) == "1"
    shown.page.mouse.move(0, 0)
    picture.focus()
    shown.page.keyboard.press("Enter")
    assert picture.evaluate(opacity) == "1"
    shown.page.keyboard.press("Enter")
    assert picture.evaluate(opacity) == "0"
    shown.page.keyboard.press("o")
    assert picture.evaluate(opacity) == "1"
    assert shown.page.get_attribute("#originals", "aria-pressed") == "true"
    shown.page.click("#originals")
    shown.page.mouse.move(0, 0)
    assert picture.evaluate(opacity) == "0"


def test_notable_errors_are_shown(part: Audit, digits: Dataset, opened: Open) -> None:
    payload = report(part, digits).payload
    first = min(payload.samples, key=lambda sample: sample.risk)
    worse = dataclasses.replace(first, psnr=21.4, ssim=0.87)
    samples = tuple(worse if one is first else one for one in payload.samples)
    shown = opened(Report(dataclasses.replace(payload, samples=samples)))
    assert "PSNR 21 dB, SSIM 0.87" in shown.page.locator("#cards li").first.inner_text()
    assert shown.page.inner_text("#cards").count("PSNR") == 1


@pytest.mark.parametrize("kind", ["records", "unnamed"])
def test_records_name_their_features(kind: str, opened: Open, pages: dict[str, Report]) -> None:
    payload = pages[kind].payload
    shown = opened(pages[kind])
    shown.choose(sort="index")
    for place in range(6):
        card = shown.page.locator(f"#cards li[data-index='{place}']")
        assert card.locator("th[scope=row]").all_inner_texts() == list(payload.features)
        texts = card.locator("td").all_inner_texts()
        cells = [_value(text) for text in texts]
        sample = payload.samples[place]
        assert cells[::2] == pytest.approx(sample.values, rel=1e-4, abs=1e-6)
        assert cells[1::2] == pytest.approx(sample.found, rel=1e-4, abs=1e-6)
    # What agrees to five digits is not marked.
    assert shown.page.query_selector("tr.differs") is None


def test_values_are_written_alike_on_the_first_screen_and_below(
    opened: Open, pages: dict[str, Report]
) -> None:
    values = (24865.3, 123456.0, -0.5, 3e-7, 0.0)
    payload = pages["records"].payload
    first = min(payload.samples, key=lambda sample: sample.risk)
    odd = dataclasses.replace(first, values=values, found=values)
    page = Report(
        dataclasses.replace(
            payload,
            samples=tuple(odd if one is first else one for one in payload.samples),
            features=payload.features[: len(values)],
        )
    )
    shown = opened(page)
    above = shown.page.locator(".proof td").all_inner_texts()
    below = shown.page.locator(f"#cards li[data-index='{first.index}'] td").all_inner_texts()
    assert above[::2] == ["24,865", "123,456", "-0.5", "3.0 × 10−7", "0"]
    assert below[::2] == ["24,865", "123,456", "-0.5", "3.0\u00a0×\u00a010⁻⁷", "0"]


def test_without_samples_there_is_one_line_each(opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["without"])
    lines = shown.page.locator("#cards tbody tr")
    assert lines.count() == 40
    first = min(pages["without"].payload.samples, key=lambda sample: sample.risk)
    cells = lines.first.locator("th, td").all_inner_texts()
    assert first.certificate is not None
    assert cells[:4] == [str(first.index), first.way, first.membership, str(first.round)]
    assert cells[6:8] == [f"{first.certificate.neuron:,}", f"{first.certificate.equations:,}"]


@pytest.mark.parametrize("kind", ["part", "without"])
def test_samples_can_be_downloaded(kind: str, opened: Open, pages: dict[str, Report]) -> None:
    payload = pages[kind].payload
    shown = opened(pages[kind])
    texts = {}
    for ending in ("csv", "json"):
        with shown.page.expect_download() as download:
            shown.page.click(f"#download-{ending}")
        assert download.value.suggested_filename == f"gradpeel-samples.{ending}"
        texts[ending] = download.value.path().read_text(encoding="utf-8")
    rows = json.loads(texts["json"])
    lines = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert len(rows) == len(lines) == 40
    for row, line, sample in zip(rows, lines, payload.samples, strict=True):
        assert (row["index"], row["round"], row["way"]) == (sample.index, sample.round, sample.way)
        assert (row["error"], row["psnr"], row["ssim"]) == (sample.error, sample.psnr, sample.ssim)
        certificate = sample.certificate
        assert row["equations"] == (None if certificate is None else certificate.equations)
        assert line["neuron"] == ("" if certificate is None else str(certificate.neuron))
        assert row["membership"] == line["membership"] == sample.membership == "in"
        assert row.get("label") == sample.label
    assert ("label" in rows[0]) == (kind == "part")
    assert not {"original", "recovered", "values", "found"} & set(rows[0])


def test_the_command_can_be_copied(opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["rows"], permissions=["clipboard-read", "clipboard-write"])
    shown.page.click("#copy")
    shown.page.wait_for_function("document.getElementById('copy').textContent === 'Copied'")
    copied = shown.page.evaluate("navigator.clipboard.readText()")
    assert copied == pages["rows"].payload.command == "gradpeel audit --data digits"
    assert opened(pages["whole"]).page.query_selector("#copy") is None


def test_copies_are_told(opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["doubled"])
    assert shown.page.inner_text("#cards").count("2 copies in the batch") == 6
