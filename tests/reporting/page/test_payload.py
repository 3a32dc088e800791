from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import itertools
import json
import math
import re
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from safetensors.torch import save

from gradpeel import Attacker, Audit, Client, Report, audit, report
from gradpeel.datasets import Dataset, draw_batch, load
from gradpeel.designs import SolitonData, TrapWeights
from gradpeel.networks import mlp
from gradpeel.reporting.images import as_pictures, psnr, ssim
from gradpeel.reporting.matching import found_at, rounds_of
from gradpeel.reporting.page import cascade, gather, pictures, sample_rows
from gradpeel.reporting.page.cascade import packed, unpacked
from gradpeel.reporting.page.first_screen import bar_label
from gradpeel.reporting.page.payload import Fact
from gradpeel.reporting.page.pictures import PREFIX, Album
from gradpeel.reporting.page.reading import payload_from
from gradpeel.reporting.page.shell import embedded
from gradpeel.reporting.sentences import severity, verdict
from gradpeel.reporting.tally import Way
from gradpeel.reporting.words import percent
from gradpeel.scoring import Outcome

KINDS = ["whole", "part", "nothing", "doubled", "unlabelled", "records", "unnamed", "without"]


def pixels_of(uri: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    file = io.BytesIO(base64.b64decode(uri.removeprefix(PREFIX)))
    return np.asarray(Image.open(file))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_back(kind: str, pages: dict[str, Report]) -> None:
    payload = pages[kind].payload
    assert payload_from(json.loads(payload.to_json())) == payload


@pytest.mark.parametrize("kind", ["whole", "part", "nothing", "doubled", "records"])
def test_the_grid_is_that_of_the_batch(
    kind: str, request: pytest.FixtureRequest, pages: dict[str, Report]
) -> None:
    found: Audit = request.getfixturevalue(kind)
    held = pages[kind].payload.cascade
    grid = unpacked(held.bits, len(held.neurons), len(held.samples))
    whole = found.exposure.grid.numpy()
    np.testing.assert_array_equal(grid, whole[list(held.neurons)][:, list(held.samples)])
    assert sorted(held.neurons) == list(range(whole.shape[0]))
    assert list(held.rounds) == rounds_of(found)[list(held.samples)].tolist()
    degrees, unusual = found.exposure.degrees, found.exposure.atypicality
    assert degrees[list(held.neurons)].diff().le(0).all()
    assert unusual[list(held.samples)].diff().ge(0).all()


def test_sources_are_rows_that_only_their_sample_fires_when_it_falls(
    part: Audit, pages: dict[str, Report]
) -> None:
    held = pages["part"].payload.cascade
    grid = unpacked(held.bits, len(held.neurons), len(held.samples))
    falls = np.array(held.rounds)
    assert [row >= 0 for row in held.sources] == (falls > 0).tolist()
    for column, row in enumerate(held.sources):
        if row >= 0:
            live = (falls == 0) | (falls >= falls[column])
            assert np.flatnonzero(grid[row] & live).tolist() == [column]


def test_steps_count_what_is_left(doubled: Audit, pages: dict[str, Report]) -> None:
    steps = pages["doubled"].payload.cascade.steps
    assert steps[0].left == 11
    assert steps[0].singletons == int(doubled.exposure.singletons.sum())
    assert steps[-1].left == 0
    assert sum(step.recovered for step in steps) == 11
    assert steps[-1].silent == doubled.exposure.grid.shape[0]
    assert [step.tested for step in steps[1:]] == [
        round_.distinct for round_ in doubled.recovery.trace[: len(steps) - 1]
    ]


@given(hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=40)))
def test_grids_survive_packing(grid: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> None:
    np.testing.assert_array_equal(unpacked(packed(grid), *grid.shape), grid)


@pytest.mark.parametrize("bits", ["oCA", "oCAA", "o CA=", "é", "oA=="])
def test_bits_that_do_not_fit_are_refused(bits: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked(bits, 2, 3)


def test_pictures_are_the_samples(part: Audit, pages: dict[str, Report]) -> None:
    payload = pages["part"].payload
    low, high = float(part.x.min()), float(part.x.max())
    for sample in payload.samples:
        assert sample.original is not None
        expected = np.rint((part.x[sample.index].numpy() - low) / (high - low) * 255)
        np.testing.assert_array_equal(pixels_of(payload.pictures[sample.original]), expected)
        assert (sample.recovered is not None) == (sample.round > 0) == (sample.error is not None)
        if sample.recovered is not None:
            # Exact to more digits than a pixel has, so it is one and the same picture.
            assert sample.recovered == sample.original
    assert len(set(payload.pictures)) == len(payload.pictures)


@pytest.mark.parametrize(
    ("shape", "shown"),
    [
        ((8, 6), (8, 6)),
        ((8, 6, 1), (8, 6)),
        ((8, 6, 3), (8, 6, 3)),
        ((3, 8, 6), (8, 6, 3)),
        ((1, 8, 6), (8, 6)),
        ((3, 6, 3), (3, 6, 3)),
        ((30,), None),
        ((2, 8, 6), None),
        ((1, 1, 8, 8), None),
    ],
)
def test_which_samples_are_pictures(shape: tuple[int, ...], shown: tuple[int, ...] | None) -> None:
    found = as_pictures(torch.rand(2, *shape))
    assert (None if found is None else found.shape[1:]) == shown


def test_a_channel_in_front_is_moved() -> None:
    x = torch.rand(1, 3, 4, 5)
    found = as_pictures(x)
    assert found is not None
    np.testing.assert_array_equal(found[0, 2, 1], x[0, :, 2, 1])


def test_large_pictures_are_shrunk_and_keep_their_proportions() -> None:
    album = Album(0.0, 1.0, side=16)
    place = album.add(np.random.default_rng(0).random((64, 32, 3)))
    assert pixels_of(album.pictures[place]).shape == (16, 8, 3)


def test_pictures_keep_within_the_budget(
    monkeypatch: pytest.MonkeyPatch, part: Audit, digits: Dataset
) -> None:
    monkeypatch.setattr(sample_rows, "BUDGET", 6000)
    monkeypatch.setattr(sample_rows, "SIDES", (8, 4, 2))
    payload = report(part, digits).payload
    assert sum(map(len, payload.pictures)) <= 6000
    assert pixels_of(payload.pictures[0]).shape == (4, 4)


def test_of_large_batches_and_layers_a_part_is_listed(
    monkeypatch: pytest.MonkeyPatch, part: Audit, digits: Dataset
) -> None:
    monkeypatch.setattr(gather, "MOST_SAMPLES", 10)
    monkeypatch.setattr(cascade, "MOST_BYTES", 50 * 5)
    whole, payload = report(part, digits).payload, report(part, digits).payload
    assert len(payload.samples) == 10
    assert len(payload.cascade.neurons) == 50
    # What is counted is counted over all.
    grid = part.exposure.grid.numpy()
    assert payload.cascade.steps[0].singletons == int((grid.sum(axis=1) == 1).sum())
    assert len(payload.risk.rounds) == 40
    assert payload_from(json.loads(payload.to_json())) == whole
    page = report(part, digits).html
    assert "The list shows 10 of 40 samples" in page
    assert "The grid shows 50 of 200 neurons" in page


def test_of_long_records_a_part_is_shown(
    monkeypatch: pytest.MonkeyPatch, records: Audit, patients: Dataset
) -> None:
    monkeypatch.setattr(sample_rows, "MOST_FEATURES", 4)
    page = report(records, patients)
    assert page.payload.features == (patients.feature_names or ())[:4]
    assert {len(sample.values) for sample in page.payload.samples} == {4}
    assert "the first 4 of 30 features" in page.html


@pytest.mark.parametrize("kind", ["part", "records", "doubled"])
def test_without_samples_no_value_label_or_picture_is_left(
    kind: str, request: pytest.FixtureRequest, pages: dict[str, Report]
) -> None:
    found: Audit = request.getfixturevalue(kind)
    held = pages[kind].payload.without_samples()
    assert not held.with_samples
    assert held.pictures == held.features == ()
    assert held.mosaic is None
    for sample in held.samples:
        assert (sample.label, sample.mistaken, sample.original, sample.recovered) == (None,) * 4
        assert sample.values == sample.found == ()
    text = held.to_json()
    assert "data:image" not in text
    # A busy machine decodes in 0.5 seconds, which is the value of a pixel too.
    timeless = re.sub(r"decoded in [\d.]+ seconds?", "", text)
    numbers = set(re.findall(r"[\d.]+(?:e-?\d+)?", timeless))
    for value in found.x.flatten().tolist():
        assert value in {0.0, 1.0} or repr(value) not in numbers
    assert Report(held).html.count("<img") == 0


def test_the_design_s_degrees_are_told(digits: Dataset) -> None:
    batch = draw_batch(digits, 32)
    model = mlp(64, 10, (120,), rng=np.random.default_rng(0), sample_shape=(8, 8))
    design = SolitonData(batch.auxiliary)
    page = report(audit(model, batch.x, batch.y, attacker=Attacker(design)), digits)
    risk = page.payload.risk
    assert risk.target == pytest.approx(design.soliton.probabilities(32) * 120)
    assert sum(risk.degrees) == 120
    assert "target of the design" in page.html
    who = {fact.name: fact.text for fact in page.payload.story.who}
    assert who["Attacker's own data"].startswith("32 samples of the same kind")
    assert "shaped for this attack" in who["Tampering"]


@pytest.mark.parametrize(
    ("settings", "name", "words"),
    [
        ({}, "Tampering", "None. The client receives an honest model"),
        ({}, "Attacker's own data", "None needed."),
        ({}, "Attacker's knowledge", "the loss and the batch size"),
        (
            {"knows_batch_size": False},
            "Attacker's knowledge",
            "The model it sent out and the loss, which",
        ),
        (
            {"knows_tail": False},
            "Attacker's knowledge",
            "Neither the loss nor the later layers were used",
        ),
        ({"design": TrapWeights()}, "Attacker", "A server that sets the first layer's weights."),
    ],
)
def test_who_could_do_it(
    settings: dict[str, object], name: str, words: str, digits: Dataset
) -> None:
    batch = draw_batch(digits, 4)
    model = mlp(64, 10, (200,), rng=np.random.default_rng(0), sample_shape=(8, 8))
    attacker = Attacker(**settings)  # type: ignore[arg-type]
    found = audit(model, batch.x, batch.y, attacker=attacker)
    told = {fact.name: fact.text for fact in report(found).payload.story.who}
    assert words in told[name]


def test_confidence_follows_from_the_certificates(part: Audit, pages: dict[str, Report]) -> None:
    told = {fact.name: fact.text for fact in pages["part"].payload.story.confidence}
    fewest = int(part.recovery.equations.min())
    digits = float(part.recovery.scores.min())
    assert f"it satisfies at least {fewest} equations" in told["Proof"]
    assert f"an evidence score of at least {digits:.0f} decimal digits." in told["Proof"]
    tested = part.recovery.candidates_tested
    assert told["Search"] == f"{tested} candidates tested, 11 of them certified."
    # All looks count, also those that certified nobody.
    assert tested > sum(step.distinct for step in part.recovery.trace if step.certified)
    assert told["Checked against the real data"].startswith(
        "0 of 11 certificates false; 11 of 11 labels"
    )


def test_nothing_proven_does_not_prove_that_nothing_is_there(
    nothing: Audit, pages: dict[str, Report]
) -> None:
    told = {fact.name: fact.text for fact in pages["nothing"].payload.story.confidence}
    tested = nothing.recovery.candidates_tested
    assert told["Search"] == f"{tested} candidates tested, 0 of them certified."
    assert "does not prove that nothing can be recovered" in told["Meaning"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_bar_counts_every_sample_once(kind: str, pages: dict[str, Report]) -> None:
    payload = pages[kind].payload
    counts = payload.tally
    assert counts.batch_size == payload.batch_size
    assert f'aria-label="{bar_label(counts)}"' in pages[kind].html
    drawn = [
        int(width)
        for width in re.findall(r'<rect class="\w+" x="\d+" width="(\d+)"', pages[kind].html)
    ]
    assert sum(drawn) == payload.batch_size
    assert f"<b>{percent(counts.read / counts.batch_size)}</b>" in pages[kind].html


@pytest.mark.parametrize(
    "kind", ["whole", "part", "nothing", "doubled", "unlabelled", "records", "rows"]
)
def test_the_tally_is_what_the_score_says(
    kind: str, request: pytest.FixtureRequest, pages: dict[str, Report]
) -> None:
    found: Audit = request.getfixturevalue("by_rows" if kind == "rows" else kind)
    payload = pages[kind].payload
    assert payload.tally.recovered == found.score.recovered
    assert payload.tally.read == found.score.read
    by_way = Counter(sample.way for sample in payload.samples)
    assert tuple(by_way[way] for way in Way) == dataclasses.astuple(payload.tally)
    assert sum(step.recovered for step in payload.cascade.steps) == payload.tally.recovered
    for sample in payload.samples:
        assert (sample.round > 0) == (sample.way not in {Way.UNPROVEN, Way.MISSED})


def test_the_row_cascade_has_a_segment_of_its_own(by_rows: Audit, pages: dict[str, Report]) -> None:
    page = pages["rows"]
    assert page.payload.tally.rows == by_rows.recovery.found_by_rows
    assert sum(step.by_rows for step in page.payload.cascade.steps) == page.payload.tally.rows
    rows = f"{page.payload.tally.rows} by the row cascade"
    assert rows in bar_label(page.payload.tally)
    assert page.payload.story.note in page.html
    those = [sample for sample in page.payload.samples if sample.way == Way.ROWS]
    assert len(those) == page.payload.tally.rows
    columns = {held: place for place, held in enumerate(page.payload.cascade.samples)}
    assert {page.payload.cascade.sources[columns[one.index]] for one in those} == {-1}


@pytest.mark.parametrize(
    ("outcomes", "readable", "name"),
    [
        (8, 8, "Complete exposure of records"),
        (4, 4, "Major exposure of records"),
        (3, 3, "Partial exposure of records"),
        (3, 8, "Complete exposure of records"),
        (0, 1, "Partial exposure of records"),
        (0, 0, "Exposure of membership"),  # the update shows it of all eight
    ],
)
def test_severity_follows_what_can_be_read(
    whole: Audit, outcomes: int, readable: int, name: str
) -> None:
    score = dataclasses.replace(
        whole.score,
        outcomes=tuple(Outcome.RECOVERED if i < outcomes else Outcome.MISSED for i in range(8)),
        readable=torch.arange(8) < readable,
    )
    found = dataclasses.replace(whole, score=score)
    assert severity(found)[0] == name
    assert "safe" not in severity(found)[1]
    # The sentence and the name never disagree about whether anything was read.
    assert ("did not recover" in verdict(found)) == (readable == 0)


def test_no_exposure_is_only_found_where_nothing_else_is_exposed(
    nothing: Audit, pages: dict[str, Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nothing.membership.count("in") == 0
    assert pages["nothing"].payload.story.severity.name == "No exposure found"
    named = {"words": torch.tensor([3, 5])}
    monkeypatch.setattr(Audit, "leaked_tokens", property(lambda _: named))
    assert severity(nothing)[0] == "Exposure of tokens"


def test_records_are_in_the_units_they_were_measured_in(
    records: Audit, patients: Dataset, pages: dict[str, Report]
) -> None:
    raw = load("breast_cancer", "raw")
    payload = pages["records"].payload
    assert payload.in_units
    for sample in payload.samples:
        np.testing.assert_allclose(sample.values, raw.x_train[sample.index], rtol=1e-9, atol=1e-9)
    assert "in their original units" in pages["records"].html
    assert not pages["unnamed"].payload.in_units
    first = pages["unnamed"].payload.samples[0]
    np.testing.assert_array_equal(first.values, records.x[0])
    assert "original units" not in pages["unnamed"].html


def test_long_records_have_a_profile(
    monkeypatch: pytest.MonkeyPatch, records: Audit, patients: Dataset
) -> None:
    monkeypatch.setattr(sample_rows, "MOST_FEATURES", 4)
    payload = report(records, patients).payload
    low, high = records.x.amin(0), records.x.amax(0)
    for sample in payload.samples:
        assert sample.original is not None
        shares = (records.x[sample.index] - low) / (high - low)
        profile = pixels_of(payload.pictures[sample.original])
        np.testing.assert_array_equal(profile, np.rint(shares.numpy() * 255)[None])
    assert payload.mosaic is None


def test_pictures_are_compared_by_psnr_and_ssim(part: Audit, pages: dict[str, Report]) -> None:
    span = float(part.x.max() - part.x.min())
    places = found_at(part)
    for sample in pages["part"].payload.samples:
        place = places[sample.index]
        if place < 0:
            assert sample.psnr is sample.ssim is None
            continue
        true, got = part.x[sample.index].numpy(), part.recovery.samples[place].numpy()
        error = float(np.mean((true - got) ** 2))
        expected = pytest.approx(10 * math.log10(span**2 / error), abs=0.1) if error else None
        assert sample.psnr == expected
        assert sample.ssim == 1
    assert {sample.psnr for sample in pages["records"].payload.samples} == {None}


@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from([(), (3,)]), st.integers(0, 99))
def test_structural_similarity_is_that_of_the_obvious_loop(
    rows: int, columns: int, colours: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.random((2, rows, columns, *colours))
    high, wide = min(rows, 7), min(columns, 7)
    values = []
    for top, left in itertools.product(range(rows - high + 1), range(columns - wide + 1)):
        a, b = (
            picture[top : top + high, left : left + wide].reshape(high * wide, -1)
            for picture in (one, other)
        )
        covariance = ((a - a.mean(0)) * (b - b.mean(0))).mean(0)
        alike = (2 * a.mean(0) * b.mean(0) + 1e-4) * (2 * covariance + 9e-4)
        most = (a.mean(0) ** 2 + b.mean(0) ** 2 + 1e-4) * (a.var(0) + b.var(0) + 9e-4)
        values.append(alike / most)
    assert ssim(one, other, 1.0) == pytest.approx(np.mean(values), abs=1e-5)
    assert psnr(one, one, 1.0) is None


def test_hashes_identify_model_and_update(whole: Audit, pages: dict[str, Report]) -> None:
    held = {fact.name: fact.text for fact in pages["whole"].payload.hashes}
    assert held["Model"] == hashlib.sha256(save(whole.model.state_dict())).hexdigest()
    changed = dict(whole.update.gradients)
    name = next(iter(changed))
    changed[name] = changed[name] + 1
    other = dataclasses.replace(whole, update=dataclasses.replace(whole.update, gradients=changed))
    again = {fact.name: fact.text for fact in report(other).payload.hashes}
    assert again["Model"] == held["Model"]
    assert again["Update"] != held["Update"]


def test_what_was_tested_is_on_the_first_screen(part: Audit, pages: dict[str, Report]) -> None:
    held = {fact.name: fact.text for fact in pages["part"].payload.setting}
    assert held == {
        "Round": "simulated",
        "Attacker": "passive server",
        "Model": "MLP 64–200–10",
        "First layer": "the model's own weights",
        "Batch size": "40",
        "Data type": "float64",
        "Local training": "none, one gradient",
        "Noise": "none",
        "Seed": "0",
    }
    changed = {"client": Client(noise=1e-4), "attacker": Attacker(TrapWeights())}
    noisy = report(dataclasses.replace(part, **changed)).payload  # type: ignore[arg-type]
    held = {fact.name: fact.text for fact in noisy.setting}
    assert held["Noise"] == "0.0001"
    assert held["Attacker"] == "active server, trap weights"
    assert held["First layer"] == "set by the server, independent weights"
    known = report(part, weights="trained for 20 rounds").payload
    assert Fact("Weights", "trained for 20 rounds") in known.setting


def test_the_residual_is_that_of_the_trace(part: Audit, pages: dict[str, Report]) -> None:
    steps = pages["part"].payload.cascade.steps
    left = [round_.left for round_ in part.recovery.trace if round_.certified]
    assert [step.residual for step in steps] == [1.0, *left]


def test_not_recovered_is_never_called_safe(pages: dict[str, Report]) -> None:
    for page in pages.values():
        body = page.html[page.html.index("</style>") : page.html.index('<script type="app')]
        words = re.sub("<[^>]*>", " ", body).lower().replace("safetensors", "")
        assert words.count("safe") == words.count("not safe") >= 1
    assert "Not recovered is not safe" in pages["part"].payload.story.limits
    assert "Do not read this as protection" in pages["nothing"].payload.story.advice[0]


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_put_the_earliest_and_most_atypical_first(
    kind: str, pages: dict[str, Report]
) -> None:
    samples = sorted(pages[kind].payload.samples, key=lambda sample: sample.risk)
    assert [sample.risk for sample in samples] == list(range(len(samples)))
    keys = [
        (sample.round or math.inf, sample.way == Way.MISSED, -sample.atypicality)
        for sample in samples
    ]
    assert keys == sorted(keys)


def test_what_was_read_without_proof_ranks_before_what_was_not_read(part: Audit) -> None:
    readable = part.score.readable.clone()
    least = min(
        (i for i, became in enumerate(part.score.outcomes) if became is not Outcome.RECOVERED),
        key=lambda i: float(part.exposure.atypicality[i]),
    )
    readable[least] = True
    score = dataclasses.replace(part.score, readable=readable)
    samples = report(dataclasses.replace(part, score=score)).payload.samples
    by_risk = [sample.index for sample in sorted(samples, key=lambda sample: sample.risk)]
    assert by_risk[part.score.recovered] == least


@pytest.mark.slow
def test_a_photograph_is_put_together_whatever_the_order() -> None:
    photos = load("photos")
    batch = draw_batch(photos, 40, shuffle=True, rng=np.random.default_rng(3))
    model = mlp(3072, 10, (60,), rng=np.random.default_rng(0), sample_shape=(32, 32, 3))
    held = report(audit(model, batch.x, batch.y), photos).payload
    assert held.mosaic is not None
    assert (held.mosaic.columns, held.mosaic.rows, held.mosaic.is_photograph) == (20, 13, True)
    assert list(held.mosaic.places) == batch.indices.tolist()


@pytest.mark.slow
def test_the_page_of_a_large_batch_is_small() -> None:
    """Noise is what PNG files are largest for."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((512, 32, 32, 3)))
    model = mlp(3072, 10, (1000,), rng=rng, sample_shape=(32, 32, 3))
    found = audit(model, x, torch.arange(512) % 10, attacker=Attacker(SolitonData(x.flip(0))))
    assert found.score.recovered > 256
    page = report(found)
    assert len(page.html.encode()) < 10_000_000
    assert len(page.payload.pictures) >= 512
    assert sum(map(len, page.payload.pictures)) <= pictures.BUDGET


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.text()))
@pytest.mark.slow
def test_json_in_a_page_is_the_same_and_holds_no_tag(values: list[object]) -> None:
    text = embedded(values)
    assert json.loads(text) == values
    assert not set("<>&\u2028\u2029") & set(text)
