"use strict";
// What all pages use: their data, elements, round numbers.

const head = JSON.parse(document.getElementById("head").textContent);
const element = (id) => document.getElementById(id);

// A new element. Text comes in as textContent, never as markup.
function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A name and its value, in a list of facts.
function fact([name, value]) {
  return make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }));
}

// A table; the first cell of a row names it.
function tableOf(names, rows) {
  const cell = (value, i) => make(i ? "td" : "th", { textContent: value, ...(i ? {} : { scope: "row" }) });
  const header = make("tr", {}, ...names.map((name) => make("th", { textContent: name, scope: "col" })));
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell))));
  return make("table", {}, make("thead", {}, header), body);
}

// Round numbers from `low` to `high`, about as many as `most`.
function ticks(low, high, most) {
  const raw = Math.max(1e-12, (high - low) / Math.max(1, most));
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= raw * 0.999);
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) values.push(i * step);
  return values;
}
