// The samples, a page of them at a time: filter, sort, and cards.
"use strict";
gradpeel.samples = (() => {
  const { page, make, counted, scientific } = gradpeel;
  const isRecords = page.features.length > 0;
  const PER_PAGE = isRecords ? 6 : 48;
  const list = document.getElementById("cards");
  const filter = document.getElementById("filter"), sort = document.getElementById("sort");
  const ofRound = document.getElementById("of-round");
  const before = document.getElementById("before"), after = document.getElementById("after");
  const ORDERS = {
    risk: (one, other) => one.risk - other.risk,
    index: (one, other) => one.index - other.index,
    atypicality: (one, other) => other.atypicality - one.atypicality || one.index - other.index,
    error: (one, other) => (other.error ?? -1) - (one.error ?? -1) || one.index - other.index,
  };
  let at = 0;
  list.classList.toggle("records", isRecords);

  function chosen() {
    const round = Number(ofRound.value);
    return page.samples
      .filter((sample) => filter.value === "all" || (filter.value === "rebuilt") === sample.round > 0)
      .filter((sample) => round === 0 || sample.round === round)
      .sort(ORDERS[sort.value]);
  }

  function show() {
    const those = chosen(), pages = Math.max(1, Math.ceil(those.length / PER_PAGE));
    at = Math.min(at, pages - 1);
    list.replaceChildren(...those.slice(at * PER_PAGE, (at + 1) * PER_PAGE).map(card));
    document.getElementById("samples-count").textContent = counted(those.length, "sample");
    document.getElementById("page-number").textContent = `page ${at + 1} of ${pages}`;
    before.disabled = at === 0;
    after.disabled = at === pages - 1;
  }

  function card(sample) {
    const item = make("li", { "data-index": sample.index, class: sample.round ? "" : "missing" });
    if (sample.original !== null) item.append(pictures(sample));
    const label = sample.label === null ? "" : `, label ${sample.label}`;
    item.append(make("p", {}, make("strong", {}, `No. ${sample.index}`), label));
    if (sample.mistaken !== null) item.append(make("p", { class: "wrong" }, `taken for ${sample.mistaken}`));
    const fate = sample.round ? `round ${sample.round}, off by at most ${scientific(sample.error)}${worstFeature(sample)}` : sample.outcome;
    item.append(make("p", { class: "fate" }, fate));
    if (sample.copies > 1) item.append(make("p", { class: "fate" }, `${sample.copies} copies in the batch`));
    if (sample.values.length) item.append(record(sample));
    if (sample.certificate) item.append(certificate(sample));
    return item;
  }

  function pictures(sample) {
    const label = sample.label === null ? "" : `, label ${sample.label}`;
    const original = make("img", { src: page.pictures[sample.original], alt: `Original of sample ${sample.index}${label}` });
    const rebuilt = sample.rebuilt === null
      ? make("span", { class: "none", role: "img", "aria-label": `Sample ${sample.index} was not rebuilt` })
      : make("img", { src: page.pictures[sample.rebuilt], alt: `Sample ${sample.index} as it was rebuilt in round ${sample.round}` });
    return make("div", { class: "two" }, original, rebuilt);
  }

  const errorsOf = (sample) => sample.found.map((value, place) => Math.abs(value - sample.values[place]));
  function worstFeature(sample) {
    // Of long records not all features are here, and the worst may be one of the others.
    if (!sample.found.length || page.features.length < page.all_features || sample.error === 0) return "";
    const errors = errorsOf(sample);
    return ` (${page.features[errors.indexOf(Math.max(...errors))]})`;
  }

  // Features down, so that a phone can show them; the worst one is marked.
  function record(sample) {
    const errors = errorsOf(sample);
    const worst = errors.length ? errors.indexOf(Math.max(...errors)) : -1;
    const heads = ["feature", "original", "rebuilt", "error"].map((name) => make("th", { scope: "col" }, name));
    const body = page.features.map((name, place) => {
      const found = sample.found.length ? [short(sample.found[place]), scientific(errors[place])] : ["–", "–"];
      const cells = [short(sample.values[place]), ...found].map((text) => make("td", {}, text));
      return make("tr", place === worst ? { class: "worst" } : {}, make("th", { scope: "row" }, name), ...cells);
    });
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
    return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Features of sample ${sample.index}` }, table);
  }
  const short = (value) => String(Number(value.toPrecision(5)));

  function certificate({ index, atypicality, certificate: held }) {
    const facts = {
      "read from neuron": held.neuron,
      equations: held.equations,
      "weight of evidence": `${Math.round(held.score)} decimal digits`,
      "worst residual": scientific(held.residual),
      "estimated error": scientific(held.estimate),
      evidence: held.evidence.join(", "),
      atypicality: Math.round(atypicality),
    };
    const rows = Object.entries(facts).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]);
    const summary = make("summary", {}, "Certificate", make("span", { class: "sr" }, ` of sample ${index}`));
    return make("details", {}, summary, make("dl", { class: "certificate" }, ...rows));
  }

  page.cascade.steps.slice(1).forEach((step, place) => ofRound.append(make("option", { value: place + 1 }, `round ${place + 1}`)));
  for (const control of [filter, ofRound, sort]) control.addEventListener("change", () => { at = 0; show(); });
  const turn = (by) => { at += by; show(); document.getElementById("samples").scrollIntoView(); };
  before.addEventListener("click", () => turn(-1));
  after.addEventListener("click", () => turn(1));
  document.getElementById("samples-controls").addEventListener("submit", (event) => event.preventDefault());
  show();
  return { shown: () => [...list.children].map((item) => Number(item.dataset.index)) };
})();
