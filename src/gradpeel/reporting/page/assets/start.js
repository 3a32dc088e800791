// What the other scripts share. Texts reach the page as text nodes and attributes, never as markup:
// names come from files.
"use strict";
window.gradpeel = (() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

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
  const number = (value) => value.toLocaleString("en-US");
  const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
  // 2.2e-13 as people write it, on one line.
  function scientific(value) {
    if (value === 0) return "0";
    const [digits, exponent] = value.toExponential(1).split("e");
    const raised = [...String(Math.abs(exponent))].map((digit) => RAISED[digit]).join("");
    return `${digits}\u00a0×\u00a010${exponent < 0 ? "⁻" : ""}${raised}`;
  }
  // The colours of the style sheet, which change with the reader's light or dark.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  function onThemeChange(redraw) {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    matchMedia("print").addEventListener("change", redraw);
  }

  return { page, make, draw, number, counted, scientific, colour, onThemeChange };
})();
