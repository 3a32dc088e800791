// What the other scripts share. Texts reach the page as text nodes and attributes, never as markup:
// names come from files.
"use strict";
window.gradpeel = (() => {
  const page = JSON.parse(document.getElementById("data").textContent);

  function make(tag, attributes = {}, ...children) {
    return fill(document.createElement(tag), attributes, children);
  }
  function draw(tag, attributes = {}, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  }
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const scientific = (value) => (value === 0 ? "0" : value.toExponential(1));
  // The colours of the style sheet, which change with the reader's light or dark.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  function onThemeChange(redraw) {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    matchMedia("print").addEventListener("change", redraw);
  }

  // Paper has no summary to click on.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details.numbers:not([open])")];
    for (const details of closed) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
  });

  return { page, make, draw, counted, scientific, colour, onThemeChange };
})();
