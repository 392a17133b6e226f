"use strict";
// Curves as SVG, with the values at one step read out in words, by the pointer or the arrow keys.

const SVG = "http://www.w3.org/2000/svg";
const SIDE = { left: 52, right: 12, top: 10, bottom: 28 };
const HEIGHT = 230;

function draw(tag, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

function short(value) {
  if (Math.abs(value) >= 1e4) return `${Number((value / 1000).toPrecision(4))}k`;
  return String(Number(value.toPrecision(4)));
}

class Chart {
  constructor(spec, alarms) {
    this.spec = spec;
    this.alarms = alarms;
    this.steps = [...new Set(spec.series.flatMap((each) => each.points.map(([step]) => step)))].sort((a, b) => a - b);
    this.at = null;
    this.svg = draw("svg", { role: "img", tabindex: "0" });
    this.svg.setAttribute(
      "aria-label",
      `${spec.title}: curves over ${this.steps.length} evaluations; arrow keys read values`,
    );
    this.readout = make("output", { className: "readout" });
    const fields = spec.fields.map((name, i) => make("span", {}, keyLine("currentColor", i > 0), name));
    const members = spec.members.map(({ name, colour }) => make("span", {}, keyLine(colour, false), name));
    const key = make("p", { className: "key" }, ...fields, ...members);
    this.card = make(
      "div",
      { className: "card chart" },
      make("h3", { textContent: spec.title }),
      key,
      this.svg,
      this.readout,
    );
    this.svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.svg.addEventListener("pointerdown", (event) => this.point(event.offsetX));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.card);
  }

  x(step) {
    const [first, end] = [this.steps[0] ?? 0, this.steps.at(-1) ?? 1];
    return SIDE.left + ((step - first) / (end - first || 1)) * (this.width - SIDE.left - SIDE.right);
  }

  y(value) {
    const [low, high] = this.spec.limits;
    return SIDE.top + ((high - value) / (high - low)) * (HEIGHT - SIDE.top - SIDE.bottom);
  }

  upright(step) {
    return { x1: this.x(step), x2: this.x(step), y1: SIDE.top, y2: HEIGHT - SIDE.bottom };
  }

  draw() {
    this.width = this.svg.clientWidth || 400;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.svg.replaceChildren();
    this.drawGrid();
    const clip = `clip-${this.spec.title.replace(/\W/g, "")}`;
    const room = draw("clipPath", { id: clip });
    room.append(
      draw("rect", { x: SIDE.left, y: 0, width: Math.max(0, this.width - SIDE.left), height: HEIGHT - SIDE.bottom }),
    );
    const lines = draw("g", { "clip-path": `url(#${clip})` });
    for (const step of this.alarms) lines.append(draw("line", { class: "alarm", ...this.upright(step) }));
    for (const each of [...this.spec.series].sort((a, b) => a.bold - b.bold)) this.drawSeries(lines, each);
    this.rule = draw("line", { class: "rule", visibility: "hidden" });
    this.svg.append(room, lines, this.rule);
    if (this.at !== null) this.read(this.at);
  }

  drawGrid() {
    const [low, high] = this.spec.limits;
    for (const value of ticks(low, high, 5)) {
      const y = this.y(value);
      this.svg.append(draw("line", { class: "grid", x1: SIDE.left, x2: this.width - SIDE.right, y1: y, y2: y }));
      this.svg.append(draw("text", { x: SIDE.left - 8, y: y + 4, "text-anchor": "end" }, short(value)));
    }
    this.svg.append(draw("text", { x: SIDE.left - 8, y: HEIGHT - 8, "text-anchor": "end" }, "step"));
    for (const step of ticks(this.steps[0] ?? 0, this.steps.at(-1) ?? 1, this.width / 110).filter(Number.isInteger)) {
      const x = Math.min(this.x(step), this.width - 14);
      this.svg.append(draw("text", { x, y: HEIGHT - 8, "text-anchor": "middle" }, short(step)));
    }
  }

  drawSeries(target, { points, colour, dashed, bold }) {
    const places = points.map(([step, value]) => `${this.x(step).toFixed(1)} ${this.y(value).toFixed(1)}`);
    if (places.length === 1) {
      const [x, y] = places[0].split(" ");
      target.append(draw("circle", { cx: x, cy: y, r: 3, fill: colour }));
    } else if (places.length) {
      const width = bold ? 2.2 : 1.2;
      const look = {
        stroke: colour,
        "stroke-width": width,
        opacity: bold ? 1 : 0.55,
        "stroke-dasharray": dashes(dashed),
      };
      target.append(draw("path", { d: `M${places.join("L")}`, ...look }));
    }
  }

  valueAt({ member, points }, step) {
    const point = points.find(([each]) => each === step);
    const value = point ? short(point[1]) : "–";
    return this.spec.members.length ? `${value} (${member})` : value;
  }

  point(x) {
    if (!this.steps.length) return;
    const gaps = this.steps.map((step) => Math.abs(this.x(step) - x));
    this.read(gaps.indexOf(Math.min(...gaps)));
  }

  key(event) {
    const moves = {
      ArrowLeft: (this.at ?? 0) - 1,
      ArrowRight: (this.at ?? -1) + 1,
      Home: 0,
      End: this.steps.length - 1,
    };
    if (!(event.key in moves) || !this.steps.length) return;
    event.preventDefault();
    this.read(Math.min(Math.max(0, moves[event.key]), this.steps.length - 1));
  }

  read(at) {
    this.at = at;
    const step = this.steps[at];
    const shown = { ...this.upright(step), visibility: "visible" };
    for (const [name, value] of Object.entries(shown)) this.rule.setAttribute(name, value);
    const words = this.spec.fields.map((field) => {
      const values = this.spec.series.filter((each) => each.field === field).map((each) => this.valueAt(each, step));
      return `${field} ${values.join(", ")}`;
    });
    this.readout.textContent = `step ${step.toLocaleString("en")}: ${words.join(" · ")}`;
  }
}

const dashes = (dashed) => (dashed ? "6 4" : "none");

function keyLine(colour, dashed) {
  const svg = draw("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" });
  svg.append(draw("path", { d: "M0 5H26", stroke: colour, "stroke-width": 2, "stroke-dasharray": dashes(dashed) }));
  return svg;
}
