"use strict";
// The pictures side by side, and what is drawn over them. Coordinates are pixels of the source until they are drawn.

const TRAIL = 12;
const state = {
  frame: 0,
  playing: false,
  speed: 1,
  selected: null, // the key of an identity
  show: { boxes: true, ids: true, trails: true, where: false, uncertainty: false },
};

let theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "line", "paper", "card", "accent", "bar-edge"]) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
}
readTheme();

// A canvas as sharp as the screen; returns its context with units of CSS pixels, and its size.
function sharpen(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d");
  context.setTransform(w / width, 0, 0, h / height, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

class Panel {
  constructor(spec, index) {
    this.spec = spec;
    this.index = index;
    this.canvas = make("canvas", { role: "img", "aria-label": spec.name });
    this.badge = make("span", { className: "badge" });
    const caption = make("figcaption", {}, make("span", { textContent: spec.name }), this.badge);
    this.figure = make("figure", { className: "panel" }, caption, this.canvas);
    this.canvas.style.aspectRatio = `${head.size[1]} / ${head.size[0]}`;
    this.limit(head.size[1] / head.size[0]);
    this.canvas.addEventListener("click", (event) => this.choose(event));
  }

  // A tall picture must not push the controls off the screen.
  limit(aspect) {
    this.figure.style.maxWidth = `${70 * aspect}vh`;
  }

  rows(frame) {
    return rowsAt(frame).filter((row) => row.group === this.spec.group);
  }

  // Where the source's frame lies in this panel, and how large one of its pixels is.
  place() {
    const width = this.canvas.clientWidth;
    return { left: 0, top: 0, zoom: width / head.size[1], width, height: (width * head.size[0]) / head.size[1] };
  }

  choose(event) {
    const at = this.place();
    const x = (event.offsetX - at.left) / at.zoom;
    const y = (event.offsetY - at.top) / at.zoom;
    const reach = 4 / at.zoom;
    const holds = ([l, t, w, h]) => x >= l - reach && x <= l + w + reach && y >= t - reach && y <= t + h + reach;
    const hits = this.rows(state.frame).filter((row) => row.box && holds(row.box));
    hits.sort((a, b) => a.box[2] * a.box[3] - b.box[2] * b.box[3]);
    select(hits.length ? keyOf(hits[0]) : null);
  }

  draw(frame) {
    const at = this.place();
    if (!at.width) return;
    const context = sharpen(this.canvas, at.width, at.height);
    this.paint(context, frame, at);
    const rows = this.rows(frame);
    if (state.show.trails) for (const row of rows) drawTrail(context, row, frame, at);
    if (state.show.where) for (const row of rows) drawRectangle(context, row.where, row, at, 1, [2, 3]);
    if (state.show.uncertainty) for (const row of rows) drawSpread(context, row, at);
    if (state.show.boxes) for (const row of rows) if (row.box) drawBox(context, row, at);
    if (state.show.ids) for (const row of rows) if (row.box) drawLabel(context, row, at);
    if (head.observed !== null) this.badge.textContent = this.statusAt(frame);
  }

  statusAt(frame) {
    if (frame < head.observed) return "observed";
    return this.spec.group < 0 ? "" : "predicted";
  }

  paint(context, frame, at) {
    const picture = pictureAt(this.index, frame);
    if (!picture) return;
    const [left, top, width, height] = this.spec.content;
    context.imageSmoothingEnabled = !this.spec.exact;
    context.drawImage(picture.image, picture.x + left, picture.y + top, width, height, 0, 0, at.width, at.height);
  }

  describe(frame) {
    const rows = this.rows(frame);
    const names = rows.map((row) => (row.box ? `${row.id}` : `${row.id} (out of sight)`));
    const found = rows.length ? `objects ${names.join(", ")}` : "no objects";
    this.canvas.setAttribute("aria-label", `${this.spec.name}, frame ${frame + 1}: ${found}`);
  }
}

// A long clip: one panel, a video that already has its boxes; only what is chosen is drawn over it.
class VideoPanel extends Panel {
  constructor(spec) {
    super({ ...spec, name: "clip" }, 0);
    this.video = make("video", { src: head.video.name, muted: true, playsInline: true, preload: "auto", tabIndex: -1 });
    this.video.setAttribute("aria-hidden", "true");
    this.figure.classList.add("film");
    this.figure.append(make("div", { className: "screen" }, this.video, this.canvas));
    this.canvas.style.aspectRatio = "auto";
    this.video.addEventListener("loadedmetadata", () => {
      this.limit(this.video.videoWidth / this.video.videoHeight);
      redraw();
    });
    this.video.addEventListener("error", () => {
      this.badge.textContent = `${head.video.name} cannot be played; the timeline still works`;
    });
  }

  place() {
    const zoom = this.video.videoWidth ? this.video.clientWidth / this.video.videoWidth : 0;
    const { left, top } = head.video;
    return {
      left: left * zoom,
      top: top * zoom,
      zoom: head.video.zoom * zoom,
      width: this.video.clientWidth,
      height: this.video.clientHeight,
    };
  }

  paint() {}

  draw(frame) {
    const at = this.place();
    if (!at.zoom) return;
    const context = sharpen(this.canvas, at.width, at.height);
    const rows = this.rows(frame);
    if (state.show.where) for (const row of rows) drawRectangle(context, row.where, row, at, 1, [2, 3]);
    if (state.show.uncertainty) for (const row of rows) drawSpread(context, row, at);
    for (const row of rows) if (row.box && keyOf(row) === state.selected) drawBox(context, row, at);
  }

  // Show a frame that is not played to: the middle of its time, so that rounding cannot hit a neighbour.
  seek(frame) {
    this.video.currentTime = (frame + 0.5) / head.rate;
  }

  frame() {
    return Math.min(head.frames - 1, Math.floor(this.video.currentTime * head.rate + 1e-3));
  }
}

function drawRectangle(context, [left, top, width, height], row, at, line, dash) {
  context.lineWidth = line;
  context.setLineDash(dash);
  context.strokeStyle = colourOf(row.id);
  context.strokeRect(at.left + left * at.zoom, at.top + top * at.zoom, width * at.zoom, height * at.zoom);
  context.setLineDash([]);
}

// Twice: a dark line below makes every colour stand out on every picture.
function drawBox(context, row, at) {
  const chosen = keyOf(row) === state.selected;
  const line = chosen ? 3.5 : 2;
  const edge = 1 / at.zoom;
  const grown = [row.box[0] - edge, row.box[1] - edge, row.box[2] + 2 * edge, row.box[3] + 2 * edge];
  context.lineWidth = line + 2;
  context.strokeStyle = chosen ? "rgba(255, 255, 255, 0.95)" : "rgba(0, 0, 0, 0.55)";
  context.strokeRect(at.left + grown[0] * at.zoom, at.top + grown[1] * at.zoom, grown[2] * at.zoom, grown[3] * at.zoom);
  drawRectangle(context, grown, row, at, line, dashOf(row.id));
}

function drawLabel(context, row, at) {
  const told = state.show.uncertainty && Number.isFinite(row.presence);
  const label = told ? `${row.id} · ${Math.round(row.presence * 100)}%` : `${row.id}`;
  context.font = "600 12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const width = context.measureText(label).width + 10;
  const x = Math.min(Math.max(at.left + row.box[0] * at.zoom - 2, 0), at.width - width);
  const above = at.top + row.box[1] * at.zoom - 21;
  const y = above >= 0 ? above : Math.min(at.top + (row.box[1] + row.box[3]) * at.zoom + 4, at.height - 18);
  context.fillStyle = colourOf(row.id);
  context.beginPath();
  context.roundRect(x, y, width, 17, 4);
  context.fill();
  context.fillStyle = textOn(colourOf(row.id));
  context.fillText(label, x + 5, y + 9);
}

function textOn(colour) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255);
  return 0.3 * r + 0.59 * g + 0.11 * b > 0.45 ? "#111" : "#fff";
}

const centre = (row) => (row.box ? [row.box[0] + row.box[2] / 2, row.box[1] + row.box[3] / 2] : null);

function drawTrail(context, row, frame, at) {
  context.strokeStyle = colourOf(row.id);
  context.lineWidth = 2;
  context.lineCap = "round";
  let last = centre(row);
  for (let age = 1; age <= TRAIL && frame - age >= 0; age++) {
    const then = rowsAt(frame - age).find((each) => keyOf(each) === keyOf(row));
    const point = then ? centre(then) : null;
    if (!then) break;
    if (point && last) {
      context.globalAlpha = 0.8 * (1 - age / (TRAIL + 1));
      context.beginPath();
      context.moveTo(at.left + last[0] * at.zoom, at.top + last[1] * at.zoom);
      context.lineTo(at.left + point[0] * at.zoom, at.top + point[1] * at.zoom);
      context.stroke();
    }
    last = point;
  }
  context.globalAlpha = 1;
}

// A ring of two standard deviations around the centre.
function drawSpread(context, row, at) {
  const point = centre(row);
  if (!point || Number.isNaN(row.spread)) return;
  context.beginPath();
  const radius = Math.max(2, 2 * row.spread * at.zoom);
  context.ellipse(at.left + point[0] * at.zoom, at.top + point[1] * at.zoom, radius, radius, 0, 0, 7);
  context.fillStyle = colourOf(row.id);
  context.globalAlpha = 0.25;
  context.fill();
  context.globalAlpha = 1;
  context.lineWidth = 1.5;
  context.strokeStyle = colourOf(row.id);
  context.stroke();
}

const panels = hasPictures ? head.panels.map((spec, i) => new Panel(spec, i)) : [new VideoPanel(head.panels[0])];
const film = hasPictures ? null : panels[0];
element("panels").append(...panels.map((panel) => panel.figure));
