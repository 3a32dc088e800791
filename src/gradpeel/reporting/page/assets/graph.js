// Two other views of the same state: the graph of a small batch, and a mosaic of what was rebuilt.
"use strict";
(() => {
  const { page, draw, cascade, colour, onThemeChange } = gradpeel;
  const { falls, copies, samples, sources, neurons } = page.cascade;
  const MOST_SAMPLES = 64, MOST_EDGES = 1200;

  function graph() {
    const columns = samples.map((_, column) => column).filter((column) => !copies[column]);
    const rank = (column) => falls[column] || Infinity;
    columns.sort((one, other) => rank(one) - rank(other) || one - other);
    const rows = [...new Set(columns.map((column) => sources[column]).filter((row) => row >= 0))];
    const edges = [];
    columns.forEach((column, left) => rows.forEach((row, right) => {
      if (cascade.fires(row, column)) edges.push({ column, row, left, right });
    }));
    if (!rows.length || columns.length > MOST_SAMPLES || edges.length > MOST_EDGES) return;

    const width = 1000, height = 300, top = 40, bottom = 250;
    const across = (place, number) => ((place + 0.5) * width) / number;
    const svg = draw("svg", { viewBox: `-16 0 ${width + 32} ${height}`, role: "img", class: "chart" });
    for (const edge of edges) {
      edge.line = draw("line", { x1: across(edge.left, columns.length), y1: top, x2: across(edge.right, rows.length), y2: bottom });
      svg.append(edge.line);
    }
    const size = Math.min(11, width / (3 * columns.length) + 3), every = Math.ceil(columns.length / 32);
    const circles = columns.map((column, place) => draw("circle", { cx: across(place, columns.length), cy: top, r: size }));
    const squares = rows.map((row, place) => draw("rect", { x: across(place, rows.length) - size * 0.8, y: bottom - size * 0.8, width: size * 1.6, height: size * 1.6 }));
    svg.append(...circles, ...squares);
    columns.forEach((column, place) => {
      if (place % every === 0) svg.append(draw("text", { x: across(place, columns.length), y: top - 18, "text-anchor": "middle" }, String(samples[column])));
    });
    rows.forEach((row, place) => {
      if (place % every === 0) svg.append(draw("text", { x: across(place, rows.length), y: bottom + 28, "text-anchor": "middle" }, String(neurons[row])));
    });
    const figure = document.getElementById("graph");
    figure.hidden = false;
    figure.querySelector(".scroll").append(svg);

    cascade.watch((state) => {
      for (const { line, column, row } of edges) {
        const kind = !state.live[column] ? "cut" : state.degrees[row] === 1 ? "reads" : "";
        line.setAttribute("class", `edge ${kind}`);
      }
      circles.forEach((circle, place) => {
        const column = columns[place];
        circle.setAttribute("class", `node ${!state.live[column] ? "out" : state.falling[column] ? "lit" : ""}`);
      });
      squares.forEach((square, place) => {
        const degree = state.degrees[rows[place]];
        square.setAttribute("class", `node ${degree === 0 ? "out" : degree === 1 ? "lit" : ""}`);
      });
      const left = columns.filter((column) => state.live[column]).length;
      const ready = rows.filter((row) => state.degrees[row] === 1).length;
      svg.setAttribute("aria-label", `${left} of ${columns.length} samples are left; ${ready} of ${rows.length} neurons have one edge left.`);
    });
  }

  function mosaic() {
    const canvas = document.getElementById("mosaic");
    if (!canvas) return;
    const { columns, rows, places } = page.mosaic;
    const images = new Map();
    let tile = 0, waiting = 0;
    for (const sample of page.samples) {
      if (sample.rebuilt === null || images.has(sample.rebuilt)) continue;
      const image = new Image();
      waiting++;
      image.addEventListener("load", () => { if (--waiting === 0) paint(); });
      image.src = page.pictures[sample.rebuilt];
      images.set(sample.rebuilt, image);
    }
    function paint() {
      if (waiting) return;
      const first = images.values().next().value;
      tile = tile || Math.max(16, Math.min(64, first ? first.naturalWidth : 16));
      canvas.width = columns * tile;
      canvas.height = rows * tile;
      const context = canvas.getContext("2d");
      context.fillStyle = colour("gone");
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.imageSmoothingEnabled = false;
      let drawn = 0;
      page.samples.forEach((sample, place) => {
        if (sample.rebuilt === null || sample.round > cascade.state.round) return;
        const x = (places[place] % columns) * tile, y = Math.floor(places[place] / columns) * tile;
        context.drawImage(images.get(sample.rebuilt), x, y, tile, tile);
        drawn++;
      });
      canvas.dataset.drawn = drawn;
      canvas.setAttribute("aria-label", `What the server has rebuilt so far: ${drawn} of ${page.samples.length} samples`);
    }
    cascade.watch(paint);
    onThemeChange(paint);
  }

  graph();
  mosaic();
})();
