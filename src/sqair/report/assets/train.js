"use strict";
// The page of a training.

function picture({ name, address }, words) {
  const image = make("img", { src: address, alt: `${words}, ${name}` });
  return make("figure", {}, make("figcaption", { textContent: name }), image);
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
  element("facts").append(...head.facts.map(fact));
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
  const results = head.results.map(([name, value]) => [name, short(value)]);
  element("results").append(tableOf(["number", "value"], results));
  element("settings").append(tableOf(["setting", "value"], head.settings));
  element("command").textContent = head.command;
  element("footer").textContent = `Made by sqair ${head.version}. Nothing on this page leaves this machine.`;
}

start();
