"use strict";
// The page of a training.

const head = JSON.parse(document.getElementById("head").textContent);
const element = (id) => document.getElementById(id);

function table(names, rows, target) {
  const header = make("tr", {}, ...names.map((name) => make("th", { textContent: name, scope: "col" })));
  const body = make("tbody");
  for (const [name, value] of rows) {
    const shown = typeof value === "number" ? short(value) : value;
    body.append(make("tr", {}, make("th", { textContent: name, scope: "row" }), make("td", { textContent: shown })));
  }
  target.replaceChildren(make("table", {}, make("thead", {}, header), body));
}

function picture({ name, address }, words) {
  return make("figure", {}, make("figcaption", { textContent: name }), make("img", { src: address, alt: `${words}, ${name}` }));
}

function showMoment() {
  const chosen = head.pictures[Number(element("moment").value)];
  const step = chosen.name.replace(/^step-0*(?=\d)/, "step ");
  element("moment-name").textContent = step;
  element("moment").setAttribute("aria-valuetext", step);
  const figure = picture(chosen, "Held-out sequences and what the model finds in them");
  figure.querySelector("figcaption").remove();
  element("pictures").replaceChildren(figure);
}

function start() {
  element("title").textContent = head.title;
  element("facts").append(...head.facts.map(([name, value]) => make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }))));
  const moments = head.alarms.map((alarm) => alarm.step).filter(Number.isFinite);
  element("curves").append(...head.charts.map((spec) => new Chart(spec, moments).card));
  element("alarms-card").hidden = !head.alarms.length;
  element("alarms").append(...head.alarms.map((alarm) => make("li", { textContent: alarm.text })));
  element("pictures-card").hidden = !head.pictures.length;
  if (head.pictures.length) {
    element("moment").max = head.pictures.length - 1;
    element("moment").value = head.pictures.length - 1;
    element("moment").addEventListener("input", showMoment);
    showMoment();
  }
  element("failures-card").hidden = !head.failures.length;
  element("failures").append(...head.failures.map((each) => picture(each, "A failure")));
  table(["number", "value"], head.results, element("results"));
  table(["setting", "value"], head.settings, element("settings"));
  element("command").textContent = head.command;
  element("footer").textContent = `Made by sqair ${head.version}. Nothing on this page leaves this machine.`;
}

start();
