// The picture of the whole batch as far as it was recovered: on the first screen and in the cascade.
"use strict";
gradpeel.mosaic = (() => {
  const { page, cascade, colour, onThemeChange, point } = gradpeel;
  const canvas = document.getElementById("mosaic"), proof = document.getElementById("proof");
  if (!canvas) return null;
  const { columns, rows, places, is_photograph: isPhotograph } = page.mosaic;
  const images = new Map(), sampleAt = new Map(places.map((place, sample) => [place, page.samples[sample]]));
  const last = page.cascade.steps.length - 1;
  let waiting = 0;

  for (const sample of page.samples) {
    if (sample.recovered === null || images.has(sample.recovered)) continue;
    const image = new Image();
    waiting++;
    image.addEventListener("load", () => { if (--waiting === 0) paintAll(); });
    image.src = page.pictures[sample.recovered];
    images.set(sample.recovered, image);
  }

  // Every sample that was recovered by `round`, each at its place. Tiles of a photograph touch.
  function paint(target, round) {
    const first = images.values().next().value;
    const tile = Math.max(32, Math.min(64, first ? first.naturalWidth : 32)), gap = isPhotograph ? 0 : Math.ceil(tile / 16);
    target.width = columns * tile;
    target.height = rows * tile;
    const context = target.getContext("2d");
    context.fillStyle = colour("gone");
    context.imageSmoothingEnabled = false;
    if (isPhotograph) context.fillRect(0, 0, target.width, target.height);
    let drawn = 0;
    page.samples.forEach((sample, place) => {
      const x = (places[place] % columns) * tile, y = Math.floor(places[place] / columns) * tile;
      if (sample.recovered === null || sample.round > round) {
        context.fillRect(x, y, tile - gap, tile - gap);
        return;
      }
      context.drawImage(images.get(sample.recovered), x, y, tile - gap, tile - gap);
      drawn++;
    });
    target.dataset.drawn = drawn;
    target.setAttribute("aria-label", `Recovered so far: ${drawn} of ${page.samples.length} samples`);
  }
  function paintAll() {
    if (waiting) return;
    paint(canvas, cascade.state.round);
    if (proof) paint(proof, last);
  }

  point(canvas, (across, down) => {
    const sample = sampleAt.get(Math.floor(down * rows) * columns + Math.floor(across * columns));
    if (!sample) return null;
    const label = sample.label === null ? "" : `, label ${sample.label}`;
    const from = sample.certificate ? `${sample.way} in round ${sample.round}, neuron ${sample.certificate.neuron}` : sample.way;
    return { text: `Sample ${sample.index}${label}: ${from}`, sample: sample.index };
  });
  cascade.watch(paintAll);
  onThemeChange(paintAll);
})();
