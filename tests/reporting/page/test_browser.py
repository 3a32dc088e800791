"""The page in a real browser: it opens, it is usable, and it asks nobody for anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import pytest

from gradpeel import Audit, Report, report
from gradpeel.datasets import Dataset
from gradpeel.reporting.words import printable
from opened_page import Opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Scheme = Literal["light", "dark"]
Open = Callable[..., Opened]
KINDS = [
    "whole",
    "part",
    "nothing",
    "rows",
    "doubled",
    "unlabelled",
    "records",
    "unnamed",
    "without",
]
WIDTHS = (360, 390, 768, 1440, 1920)
HOSTILE = (
    "</script><script>window.broken = 1</script>",
    '"><img src=x onerror="window.broken = 2">',
    "<!--<svg onload=window.broken=3>",
    "{{ 7 * 7 }}",
    "' onclick='window.broken = 4",
)


@pytest.mark.parametrize("kind", KINDS)
def test_opens_at_any_width_without_a_complaint_and_asks_for_nothing(
    opened: Open, pages: dict[str, Report], kind: str
) -> None:
    shown = opened(pages[kind])
    for width in WIDTHS:
        shown.page.set_viewport_size({"width": width, "height": 900})
        shown.page.reload()
        assert shown.page.inner_text("h1") == pages[kind].payload.story.verdict
        shown.open_details()
        if opener := shown.page.query_selector("#cards button.link"):
            opener.click()
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    if kind != "nothing":
        shown.page.click("#play")
    shown.page.wait_for_load_state("networkidle")
    assert shown.complaints == []
    assert shown.elsewhere == []
    if kind in {"whole", "part", "doubled"}:
        images = shown.page.evaluate("[...document.images].map((i) => [i.naturalWidth, i.alt])")
        assert len(images) > pages[kind].payload.tally.recovered
        assert {width for width, _ in images} == {8}
        assert all(alt for _, alt in images)


@pytest.mark.parametrize(
    ("kind", "schemes"),
    [
        ("part", ("light", "dark")),
        ("records", ("light", "dark")),
        ("nothing", ("light",)),
        ("without", ("dark",)),
    ],
)
def test_axe_finds_nothing_serious(
    opened: Open, pages: dict[str, Report], kind: str, schemes: tuple[Scheme, ...]
) -> None:
    shown = opened(pages[kind], color_scheme=schemes[0], bypass_csp=True)
    if opener := shown.page.query_selector("#cards button.link"):
        opener.click()
    assert shown.violations() == []
    for scheme in schemes[1:]:
        shown.page.emulate_media(color_scheme=scheme)
        assert shown.violations(only="color-contrast") == []


def test_axe_would_find_something(opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["whole"], bypass_csp=True)
    shown.page.evaluate("document.querySelector('#cards img').removeAttribute('alt')")
    assert any(line.startswith("image-alt") for line in shown.violations())
    shown.page.add_style_tag(content="h1 { color: #8888; }")
    (found,) = {line.partition(":")[0] for line in shown.violations(only="color-contrast")}
    assert found == "color-contrast"


def test_names_from_files_are_shown_and_not_run(
    opened: Open, records: Audit, patients: Dataset, whole: Audit, digits: Dataset
) -> None:
    names = [f"{name} {place}" for place in range(6) for name in HOSTILE]
    table = dataclasses.replace(
        patients, name=HOSTILE[0], class_names=HOSTILE[:2], feature_names=tuple(names)
    )
    shown = opened(report(records, table))
    listed = shown.page.locator("#cards li").first.locator("th[scope=row]").all_inner_texts()
    assert listed == [printable(name) for name in names]
    # The policy would stop what the escaping let through; here it is off.
    bare = opened(
        report(whole, dataclasses.replace(digits, class_names=HOSTILE * 2)), bypass_csp=True
    )
    assert bare.page.inner_text("#cards").count("label ") == 8
    for one in (shown, bare):
        assert one.page.evaluate("window.broken") is None
        assert one.complaints == []
        assert one.elsewhere == []


def test_the_policy_stops_a_script_that_is_not_the_page_s(
    opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages["whole"])
    stopped = shown.page.evaluate(
        """() => new Promise((resolve) => {
          const stopped = [];
          addEventListener("securitypolicyviolation", (event) => {
            stopped.push(event.effectiveDirective);
            if (stopped.length === 2) resolve(stopped);
          });
          setTimeout(() => resolve(stopped), 10_000);
          const script = document.createElement("script");
          document.body.append(Object.assign(script, { text: "window.broken = 1" }));
          document.body.append(Object.assign(new Image(), { src: "https://example.org/leak.png" }));
        })"""
    )
    assert sorted(stopped) == ["img-src", "script-src-elem"]
    assert shown.page.evaluate("window.broken") is None


def test_without_samples_the_page_holds_none(opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["without"])
    assert shown.page.query_selector("img") is None
    assert shown.page.query_selector("#mosaic") is None
    assert "label " not in shown.page.inner_text("#cards")
    assert len(shown.shown()) == 40
    assert "data:image" not in pages["without"].html


def test_everything_can_be_reached_by_keyboard(opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["records"])
    reached = []
    for _ in range(60):
        shown.page.keyboard.press("Tab")
        reached.append(
            shown.page.evaluate("document.activeElement.id || document.activeElement.tagName")
        )
    controls = ["filter", "of-round", "sort", "after", "play", "back", "round", "chain-sample"]
    assert [one for one in reached if one in controls][:8] == controls
    assert reached[0] == "A"  # to the details
    assert "SUMMARY" in reached
    assert "DIV" in reached  # tables that scroll


def test_jupyter_shows_the_page_in_a_frame(browser: Browser, pages: dict[str, Report]) -> None:
    page = browser.new_page()
    page.set_content(f"<h1>notebook</h1>{pages['whole']._repr_html_()}")
    frame = page.frames[1]
    assert frame.inner_text("h1") == pages["whole"].payload.story.verdict
    assert frame.evaluate("gradpeel.samples.shown().length") == 8
    assert frame.evaluate("window.origin") == "null"
    page.close()


@pytest.mark.parametrize("kind", KINDS)
def test_one_page_of_paper_holds_the_findings(
    kind: str, opened: Open, pages: dict[str, Report]
) -> None:
    shown = opened(pages[kind], color_scheme="dark")
    shown.page.emulate_media(media="print")
    for hidden in ("#play", "nav", "#cards", "button"):
        assert not shown.page.is_visible(hidden)
    words = shown.page.inner_text("body")
    story = pages[kind].payload.story
    for said in (story.verdict, story.limits, *story.advice, "Who can do this", "Confidence"):
        assert said.replace("`", "") in words  # set as code
    assert shown.pages_on_paper() == 1


def test_other_audits_stand_beside_this_one(
    part: Audit, whole: Audit, nothing: Audit, digits: Dataset, opened: Open
) -> None:
    page = report(part, digits, compared={"float32": whole, "noise of 0.001": nothing})
    shown = opened(page, bypass_csp=True)
    words = shown.page.inner_text(".variations").split("\n")
    told = [line for line in words if line.strip()]
    assert "What would change this" in told
    for name, share, count in (
        ("this audit", "27.5 %", "11 of 40 read"),
        ("float32", "100 %", "8 of 8 read"),
        ("noise of 0.001", "0 %", "0 of 8 read"),
    ):
        text = " ".join(told)
        assert f"{name} {share} {count}" in text
    assert shown.violations() == []
    assert shown.pages_on_paper() == 1
    assert "What would change this" not in report(part, digits).html


def test_without_scripts_the_words_are_there(opened: Open, pages: dict[str, Report]) -> None:
    shown = opened(pages["part"], java_script_enabled=False)
    assert shown.page.is_visible(".noscript")
    assert "Who can do this" in shown.page.inner_text("body")
    assert shown.page.is_visible("#risk svg")
