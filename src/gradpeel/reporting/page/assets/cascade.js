// The cascade: the state after each round, and how it is drawn. `gradpeel.cascade.state` is the very
// object that is drawn, so whoever wants to check the picture can compare it with the trace.
"use strict";
gradpeel.cascade = (() => {
  const { page, draw, make, number, counted, colour, onThemeChange } = gradpeel;
  const { neurons, samples, rounds, copies, sources, steps } = page.cascade;
  const rows = neurons.length, columns = samples.length, last = steps.length - 1;
  const BINS = [[0, 0], [1, 1], [2, 2], [3, 4], [5, 8], [9, 16], [17, 32], [33, Infinity]];
  const PAUSE = 1100;

  const grid = unpack(page.cascade.bits);
  const watchers = [];
  const cascade = { state: null, fires: (row, column) => grid[row * columns + column] === 1, show, watch };

  function unpack(bits) {
    const bytes = atob(bits), width = Math.ceil(columns / 8), cells = new Uint8Array(rows * columns);
    for (let row = 0, at = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++, at++) {
        cells[at] = (bytes.charCodeAt(row * width + (column >> 3)) >> (7 - (column & 7))) & 1;
      }
    }
    return cells;
  }

  // After `round` rounds: who is left, and how many of them fire each neuron. Copies are one sample.
  function stateAfter(round) {
    const left = rounds.map((one) => one === 0 || one > round);
    const degrees = new Array(rows).fill(0), alone = new Array(rows).fill(-1);
    for (let row = 0, at = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++, at++) {
        if (grid[at] && left[column] && !copies[column]) {
          degrees[row]++;
          alone[row] = column;
        }
      }
    }
    const singletons = [];
    for (let row = 0; row < rows; row++) if (degrees[row] === 1) singletons.push(row);
    return { round, left, degrees, singletons, alone, next: rounds.map((one) => one === round + 1) };
  }

  // The grid as a picture of at most as many pixels as there is room for. Neighbours are averaged:
  // to drop rows would make rare firings vanish.
  function picture(state, width, height) {
    const paints = ["silent", "fires", "gone", "spent", "going"].map((name) => rgb(colour(name)));
    const sums = new Float32Array(width * height * 3), sizes = new Float32Array(width * height);
    const across = Uint32Array.from({ length: columns }, (_, column) => Math.floor((column * width) / columns));
    for (let row = 0, at = 0; row < rows; row++) {
      const line = Math.floor((row * height) / rows) * width;
      for (let column = 0; column < columns; column++, at++) {
        const kind = !state.left[column] ? 2 + grid[at] : grid[at] ? 1 : state.next[column] ? 4 : 0;
        const place = line + across[column], paint = paints[kind];
        sums[3 * place] += paint[0];
        sums[3 * place + 1] += paint[1];
        sums[3 * place + 2] += paint[2];
        sizes[place]++;
      }
    }
    const image = new ImageData(width, height);
    for (let place = 0; place < width * height; place++) {
      for (let part = 0; part < 3; part++) image.data[4 * place + part] = sums[3 * place + part] / sizes[place];
      image.data[4 * place + 3] = 255;
    }
    return image;
  }

  function rgb(hex) {
    const full = hex.length === 4 ? [...hex.slice(1)].map((digit) => digit + digit).join("") : hex.slice(1);
    return [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16));
  }

  const canvas = document.getElementById("grid");
  function paint() {
    const ratio = devicePixelRatio || 1;
    const width = Math.max(1, Math.round(canvas.clientWidth * ratio));
    const height = Math.max(1, Math.round(canvas.clientHeight * ratio));
    canvas.width = width;
    canvas.height = height;
    const small = make("canvas");
    small.width = Math.min(columns, width);
    small.height = Math.min(rows, height);
    small.getContext("2d").putImageData(picture(cascade.state, small.width, small.height), 0, 0);
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, width, height);
    context.fillStyle = colour("hit");
    const radius = Math.max(2.2 * ratio, Math.min(width / columns, height / rows) / 3);
    for (const row of cascade.state.singletons) {
      context.beginPath();
      const x = ((cascade.state.alone[row] + 0.5) * width) / columns, y = ((row + 0.5) * height) / rows;
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
    }
  }

  // What a round did, in a sentence; numbers come from the payload, not from the drawing.
  function describe({ round }) {
    const step = steps[round], next = steps[round + 1], known = columns - step.left;
    const isAll = step.by_rows === step.recovered;
    const rows = step.by_rows ? ` by the row cascade${isAll ? "" : ` (${number(step.by_rows)} of them)`}` : "";
    const now = round ? `After round ${round} of ${last}: ${counted(step.recovered, "sample")} recovered${rows} in this round, ${number(known)} of ${number(columns)} so far.`
      : `At the start: ${counted(columns, "sample")}, none recovered.`;
    if (next) return `${now} ${counted(step.singletons, "neuron")} ${step.singletons === 1 ? "is" : "are"} left with a single sample.`;
    return step.left ? `${now} The cascade stops here with ${counted(step.left, "sample")} left. Not recovered is not safe.` : `${now} Nothing is left.`;
  }
  function count({ round }) {
    const step = steps[round];
    const shown = {
      "samples recovered": `${number(columns - step.left)} of ${number(columns)}`,
      "samples left": number(step.left),
      "neurons with one sample left": number(step.singletons),
      "neurons with none left": number(step.silent),
      "mean degree of the others": step.degree.toFixed(1),
    };
    const parts = Object.entries(shown).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
    document.getElementById("counts").replaceChildren(...parts);
  }

  function histogram(state) {
    const counts = BINS.map(([low, high]) => state.degrees.filter((degree) => degree >= low && degree <= high).length);
    const svg = document.getElementById("degrees-now"), step = 260 / BINS.length, highest = Math.max(...counts);
    svg.replaceChildren();
    BINS.forEach(([low, high], place) => {
      const height = (84 * counts[place]) / highest, middle = (place + 0.5) * step;
      const name = high === Infinity ? `${low}+` : low === high ? `${low}` : `${low}–${high}`;
      svg.append(
        draw("rect", { class: low === 1 && high === 1 ? "hit" : "bar", x: place * step + 3, width: step - 6, y: 102 - height, height }),
        draw("text", { x: middle, y: 97 - height, "text-anchor": "middle", class: "small" }, number(counts[place])),
        draw("text", { x: middle, y: 118, "text-anchor": "middle", class: "small" }, name),
      );
    });
    const listed = BINS.map(([low, high], place) => `${counts[place]} of degree ${high === Infinity ? `${low} or more` : low === high ? low : `${low} to ${high}`}`);
    svg.setAttribute("aria-label", `Degrees of the neurons in this round: ${listed.join(", ")}`);
  }

  const slider = document.getElementById("round"), play = document.getElementById("play");
  const back = document.getElementById("back"), forth = document.getElementById("forth");
  let timer = 0;

  function show(round) {
    cascade.state = stateAfter(Math.min(Math.max(round, 0), last));
    const sentence = describe(cascade.state);
    document.getElementById("state").textContent = sentence;
    slider.value = cascade.state.round;
    slider.setAttribute("aria-valuetext", sentence);
    count(cascade.state);
    back.disabled = cascade.state.round === 0;
    forth.disabled = cascade.state.round === last;
    canvas.dataset.round = cascade.state.round;
    name();
    histogram(cascade.state);
    paint();
    for (const watcher of watchers) watcher(cascade.state);
  }
  function watch(watcher) {
    watchers.push(watcher);
    watcher(cascade.state);
  }
  const name = () => (play.textContent = timer ? "Pause" : cascade.state.round === last ? "Replay" : "Play");
  function stop() {
    clearInterval(timer);
    timer = 0;
    name();
  }
  function start() {
    if (cascade.state.round === last) show(0);
    timer = setInterval(() => {
      show(cascade.state.round + 1);
      if (cascade.state.round === last) stop();
    }, PAUSE);
    name();
  }

  play.addEventListener("click", () => (timer ? stop() : start()));
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  back.addEventListener("click", () => { stop(); show(cascade.state.round - 1); });
  forth.addEventListener("click", () => { stop(); show(cascade.state.round + 1); });
  if (last === 0) for (const control of [play, slider, back, forth]) control.disabled = true;
  addEventListener("resize", paint);

  // A label beside the pointer, and a click that shows a sample's chain. `find` takes shares of width
  // and height and returns a text and a sample, or null.
  function point(target, find) {
    const label = make("output", { class: "pointed", hidden: "" });
    target.parentElement.append(label);
    const found = (event) => find(event.offsetX / target.clientWidth, event.offsetY / target.clientHeight);
    target.addEventListener("pointermove", (event) => {
      const one = found(event);
      label.hidden = one === null;
      if (one === null) return;
      label.textContent = one.text;
      const room = target.clientWidth - label.offsetWidth;
      label.style.left = `${Math.max(0, Math.min(event.offsetX + 14, room))}px`;
      label.style.top = `${event.offsetY + 18}px`;
    });
    target.addEventListener("pointerleave", () => (label.hidden = true));
    target.addEventListener("click", (event) => { const one = found(event); if (one) gradpeel.chain?.show(one.sample); });
  }
  gradpeel.point = point;
  point(canvas, (across, down) => {
    const row = Math.floor(down * rows), column = Math.floor(across * columns);
    if (row < 0 || row >= rows || column < 0 || column >= columns) return null;
    const fate = rounds[column] ? `recovered in round ${rounds[column]}` : "not recovered";
    const source = sources[column] === row ? "; read from this neuron" : "";
    const fires = cascade.fires(row, column) ? "fires" : "does not fire";
    return { text: `Sample ${samples[column]} ${fires} neuron ${neurons[row]}; ${fate}${source}`, sample: samples[column] };
  });
  const every = Math.ceil((last + 1) / 14);
  const isNamed = (round) => round === last || (round % every === 0 && last - round >= every);
  document.getElementById("ticks").append(...steps.map((_, round) => make("span", {}, isNamed(round) ? String(round) : "")));
  onThemeChange(paint);
  show(last);
  return cascade;
})();
