// How one sample was reached: the neuron it was read from, the samples that had to be subtracted
// there first, and so back to a sample that could be read directly.
"use strict";
gradpeel.chain = (() => {
  const { page, make, draw, counted, cascade } = gradpeel;
  const { rounds, copies, samples, sources, neurons } = page.cascade;
  const box = document.getElementById("chain"), select = document.getElementById("chain-sample");
  const MOST_OTHERS = 5, STEP = 190, TOP = 46;

  // From the sample back to the first round; each step goes on with the sample recovered last.
  function stepsTo(column) {
    const steps = [];
    for (let at = column; at !== undefined && sources[at] >= 0; ) {
      const row = sources[at];
      const before = samples.map((_, other) => other)
        .filter((other) => other !== at && !copies[other] && rounds[other] > 0 && rounds[other] < rounds[at] && cascade.fires(row, other))
        .sort((one, other) => rounds[other] - rounds[one] || one - other);
      steps.unshift({ column: at, row, before });
      at = before[0];
    }
    return steps;
  }

  function text(column, steps) {
    const start = `Sample ${samples[column]} was recovered in round ${rounds[column]}`;
    if (!steps.length) return `${start} by the row cascade, which does not need a neuron that isolates it, so there is no chain to show.`;
    const { row, before } = steps[steps.length - 1];
    if (!before.length) return `${start} from neuron ${neurons[row]}: no other sample of the batch fires it, so its gradient holds this sample alone.`;
    const first = rounds[before[before.length - 1]], last = rounds[before[0]];
    const when = first === last ? `in round ${last}` : `in rounds ${first} to ${last}`;
    const them = before.length === 1 ? "it was recovered" : "they were recovered";
    return `${start} from neuron ${neurons[row]}. ${counted(before.length, "other sample")} ${before.length === 1 ? "fires" : "fire"} this neuron; ${them} ${when} and subtracted first.`;
  }

  const circle = (x, y, r, kind) => draw("circle", { cx: x, cy: y, r, class: `node ${kind}` });
  const line = (x1, y1, x2, y2, kind) => draw("line", { x1, y1, x2, y2, class: `edge ${kind}` });
  const name = (x, y, ...lines) => draw("text", { x, y, "text-anchor": "middle" }, ...lines.map((part, place) => draw("tspan", { x, dy: place ? 15 : 0 }, part)));

  function picture(steps) {
    const width = STEP * steps.length + 100, others = Math.max(0, ...steps.map(({ before }) => before.length - 1));
    const height = TOP + 44 + (others > 0 ? 18 * Math.min(others, MOST_OTHERS + 1) + 8 : 0);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "chart" });
    steps.forEach(({ column, row, before }, place) => {
      const from = 40 + STEP * place, middle = from + STEP * 0.5, to = from + STEP;
      if (before.length) svg.append(line(from + 11, TOP, middle, TOP, ""));
      svg.append(line(middle, TOP, to - 11, TOP, "reads"), draw("rect", { x: middle - 9, y: TOP - 9, width: 18, height: 18, class: "node" }));
      svg.append(name(middle, TOP + 30, `neuron ${neurons[row]}`), circle(to, TOP, 11, "lit"));
      svg.append(name(to, TOP - 24, `sample ${samples[column]}`), name(to, TOP + 30, `round ${rounds[column]}`));
      const rest = before.slice(1), shown = rest.slice(0, MOST_OTHERS);
      shown.forEach((other, at) => svg.append(name(middle, TOP + 64 + 18 * at, `− sample ${samples[other]} (round ${rounds[other]})`)));
      if (rest.length > shown.length) svg.append(name(middle, TOP + 64 + 18 * shown.length, `− ${rest.length - shown.length} more`));
    });
    svg.setAttribute("aria-label", steps.map(({ column, row }) => `neuron ${neurons[row]}, sample ${samples[column]} in round ${rounds[column]}`).join("; "));
    return svg;
  }

  function show(sample) {
    const column = samples.indexOf(sample), steps = stepsTo(column);
    select.value = sample;
    document.getElementById("chain-text").textContent = text(column, steps);
    box.querySelector(".scroll").replaceChildren(...(steps.length ? [picture(steps)] : []));
  }

  const known = samples.map((_, column) => column).filter((column) => rounds[column] > 0 && !copies[column]);
  if (!known.length) return null;
  known.sort((one, other) => rounds[other] - rounds[one] || samples[one] - samples[other]);
  select.append(...known.map((column) => make("option", { value: samples[column] }, `${samples[column]} (round ${rounds[column]})`)));
  select.addEventListener("change", () => show(Number(select.value)));
  // The longest chain says most.
  const longest = known.find((column) => sources[column] >= 0) ?? known[0];
  box.hidden = false;
  show(samples[longest]);
  return { show: (sample) => { if (known.some((column) => samples[column] === sample)) show(sample); } };
})();
