// The samples, a page of them at a time: filter, sort, and cards, records or a table.
"use strict";
gradpeel.samples = (() => {
  const { page, make, number, counted, scientific } = gradpeel;
  const isRecords = page.features.length > 0, isTable = !page.with_samples;
  const PER_PAGE = isTable ? 50 : isRecords ? 6 : 48;
  // Below this a picture differs visibly from its original.
  const GOOD_DECIBELS = 50;
  const box = document.getElementById("cards");
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

  function chosen() {
    const round = Number(ofRound.value);
    return page.samples
      .filter((sample) => filter.value === "all" || (sample.round ? "recovered" : sample.way) === filter.value)
      .filter((sample) => round === 0 || sample.round === round)
      .sort(ORDERS[sort.value]);
  }

  function show() {
    const those = chosen(), pages = Math.max(1, Math.ceil(those.length / PER_PAGE));
    at = Math.min(at, pages - 1);
    const shown = those.slice(at * PER_PAGE, (at + 1) * PER_PAGE);
    box.replaceChildren(...(isTable ? [table(shown)] : sort.value === "risk" ? byRound(shown, those) : [cards(shown)]));
    document.getElementById("samples-count").textContent = counted(those.length, "sample");
    document.getElementById("page-number").textContent = `page ${at + 1} of ${pages}`;
    before.disabled = at === 0;
    after.disabled = at === pages - 1;
    before.parentElement.hidden = pages === 1;
  }

  function byRound(shown, all) {
    return [...new Set(shown.map(group))].map((name) => {
      const total = counted(all.filter((sample) => group(sample) === name).length, "sample");
      const heading = make("h3", {}, name, make("span", {}, total));
      return make("div", { class: "group" }, heading, cards(shown.filter((sample) => group(sample) === name)));
    });
  }
  const group = ({ round, way }) => (round ? `Round ${round}` : `${way[0].toUpperCase()}${way.slice(1)}`);
  const cards = (those) => make("ul", { class: `cards${isRecords ? " records" : ""}` }, ...those.map(card));

  function card(sample) {
    const item = make("li", { "data-index": sample.index, class: sample.round ? "" : "missing" });
    const label = sample.label === null ? "" : ` label ${sample.label}`;
    if (!isRecords) item.append(picture(sample));
    item.append(make("p", {}, make("strong", {}, `No. ${sample.index}`), label));
    if (isRecords) item.append(make("p", { class: "fate" }, sample.round ? `round ${sample.round}, ${sample.way}` : sample.way));
    for (const remark of remarks(sample)) item.append(make("p", { class: "remark" }, remark));
    if (isRecords) item.append(...record(sample));
    if (sample.certificate) item.append(opener(sample, item));
    return item;
  }

  // Only what a reader should not miss.
  function remarks(sample) {
    const found = [];
    if (sample.mistaken !== null) found.push(`mistaken for ${sample.mistaken}`);
    if (sample.way === "by the row cascade") found.push("row cascade");
    if (!sample.round && sample.outcome !== "not reached") found.push(sample.outcome);
    if (sample.psnr !== null && sample.psnr < GOOD_DECIBELS) found.push(`PSNR ${sample.psnr.toFixed(0)} dB, SSIM ${sample.ssim.toFixed(2)}`);
    if (!sample.round && sample.membership === "in") found.push("shown to have taken part");
    if (sample.copies > 1) found.push(`${sample.copies} copies in the batch`);
    return found;
  }

  // What was recovered; the original appears on hover, on a press, or with the key O.
  function picture(sample) {
    const label = sample.label === null ? "" : `, label ${sample.label}`;
    const original = make("img", { src: page.pictures[sample.original], alt: `Original of sample ${sample.index}${label}`, class: "original" });
    if (sample.recovered === null) {
      return make("div", { class: "picture" }, original, make("span", { class: "badge" }, "original"));
    }
    const recovered = make("img", { src: page.pictures[sample.recovered], alt: `Sample ${sample.index} as recovered in round ${sample.round}` });
    const badge = make("span", { class: "badge" }, `round ${sample.round}`);
    const button = make("button", { type: "button", class: "picture", "aria-pressed": "false", title: "Press to compare with the original" }, recovered, original, badge);
    button.addEventListener("click", () => button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "false"));
    return button;
  }

  // Features down, so that a phone can show them. A profile shows all features of a long record.
  function record(sample) {
    const parts = [];
    if (sample.original !== null) {
      const strips = [["original", sample.original], ["recovered", sample.recovered]].filter(([, place]) => place !== null);
      parts.push(make("div", { class: "strips" }, ...strips.flatMap(([name, place]) => [
        make("span", {}, name), make("img", { src: page.pictures[place], alt: `Profile of sample ${sample.index}, ${name}` })])));
    }
    const heads = ["feature", "original", "recovered"].map((name) => make("th", { scope: "col" }, name));
    const body = page.features.map((name, place) => {
      const original = measured(sample.values[place]), found = sample.found.length ? measured(sample.found[place]) : "–";
      const differs = sample.found.length && original !== found;
      const cells = [original, found].map((text) => make("td", {}, text));
      return make("tr", differs ? { class: "differs" } : {}, make("th", { scope: "row" }, name), ...cells);
    });
    const rows = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
    parts.push(make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Features of sample ${sample.index}` }, rows));
    return parts;
  }
  // The same digits as on the first screen.
  function measured(value) {
    const size = Math.abs(value);
    if ((size > 0 && size < 1e-4) || size >= 1e15) return scientific(value);
    return value.toLocaleString("en-US", size >= 1e5 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 5 });
  }

  const FACTS = [
    ["read from neuron", (one) => number(one.neuron)],
    ["equations", (one) => number(one.equations)],
    ["evidence score", (one) => `${Math.round(one.score)} decimal digits`],
    ["largest residual", (one) => scientific(one.residual)],
    ["estimated error", (one) => scientific(one.estimate)],
  ];
  // The drawer takes the full width below the row that its card stands in.
  function opener(sample, item) {
    const button = make("button", { type: "button", class: "link", "aria-expanded": "false" }, "Certificate", make("span", { class: "sr" }, ` of sample ${sample.index}`));
    button.addEventListener("click", () => {
      const isOpen = button.getAttribute("aria-expanded") === "true";
      for (const drawer of box.querySelectorAll(".drawer")) drawer.remove();
      for (const other of box.querySelectorAll("[aria-expanded]")) other.setAttribute("aria-expanded", "false");
      if (isOpen) return;
      button.setAttribute("aria-expanded", "true");
      let end = item;
      while (end.nextElementSibling?.offsetTop === item.offsetTop) end = end.nextElementSibling;
      end.after(drawer(sample));
    });
    return button;
  }
  function drawer(sample) {
    const held = sample.certificate;
    const facts = [...FACTS.map(([name, value]) => [name, value(held)]), ["largest true error", scientific(sample.error)]];
    if (sample.ssim !== null) facts.push(["PSNR", sample.psnr === null ? "equal" : `${sample.psnr.toFixed(0)} dB`], ["SSIM", sample.ssim.toFixed(4)]);
    facts.push(["atypicality", number(Math.round(sample.atypicality))], ["membership test", sample.membership], ["kinds of evidence", held.evidence.join(", ")]);
    const rows = facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));
    return make("li", { class: "drawer" }, make("h4", {}, `Certificate of sample ${sample.index}`), make("dl", {}, ...rows));
  }

  // Without samples a line each is enough.
  function table(those) {
    const heads = ["sample", "result", "membership test", "round", "atypicality", "largest error", ...FACTS.map(([name]) => name)];
    const body = those.map((sample) => make("tr", { "data-index": sample.index }, make("th", { scope: "row" }, String(sample.index)),
      ...[sample.way, sample.membership, sample.round || "–", number(Math.round(sample.atypicality)), sample.error === null ? "–" : scientific(sample.error),
        ...FACTS.map(([, value]) => (sample.certificate ? value(sample.certificate) : "–"))].map((text) => make("td", {}, String(text)))));
    const rows = make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, ...body));
    return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Samples" }, rows);
  }

  const originals = document.getElementById("originals");
  function compare() {
    originals.setAttribute("aria-pressed", box.classList.toggle("originals"));
  }
  if (originals) {
    originals.addEventListener("click", compare);
    addEventListener("keydown", (event) => {
      const isTyping = event.target.matches("select, input") || event.ctrlKey || event.metaKey || event.altKey;
      if (event.key.toLowerCase() === "o" && !isTyping) compare();
    });
  }

  page.cascade.steps.slice(1).forEach((_, place) => ofRound.append(make("option", { value: place + 1 }, `round ${place + 1}`)));
  for (const control of [filter, ofRound, sort]) control.addEventListener("change", () => { at = 0; show(); });
  const turn = (by) => { at += by; show(); document.getElementById("samples").scrollIntoView(); };
  before.addEventListener("click", () => turn(-1));
  after.addEventListener("click", () => turn(1));
  document.getElementById("samples-controls").addEventListener("submit", (event) => event.preventDefault());
  show();
  return { shown: () => [...box.querySelectorAll("[data-index]")].map((item) => Number(item.dataset.index)) };
})();
