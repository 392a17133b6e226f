"use strict";
// One bar for each identity, and the number of objects over time. Only the rows that can be seen exist, and only those
// identities have a row that live in the time shown, so that an hour of video is as quick as a second.

const ROW = 30;
const OVERVIEW = 3000; // frames; of a longer clip a part is shown at first
const shownAtFirst = head.frames > OVERVIEW ? OVERVIEW / 2 : Math.max(1, head.frames);
const timeline = { start: 0, end: shownAtFirst, rows: [], active: 0 };
const mostObjects = Math.max(1, ...counts.map((each) => each.reduce((a, b) => Math.max(a, b), 0)));
const bars = element("bars");
const tall = element("tall");

element("lanes").classList.toggle("grouped", groupCount > 1);
const laneWidth = () => element("axis").clientWidth;
const xOf = (frame) => ((frame - timeline.start) / (timeline.end - timeline.start)) * laneWidth();
const frameAtX = (x) => Math.floor(timeline.start + (x / laneWidth()) * (timeline.end - timeline.start));

function listRows() {
  timeline.rows = head.lives.filter((life) => life.last >= timeline.start && life.first < timeline.end);
  timeline.active = Math.max(0, Math.min(timeline.active, timeline.rows.length - 1));
  tall.style.height = `${timeline.rows.length * ROW}px`;
}

// Where identities are born in the middle of a long clip, the bars follow the playhead.
function zoomTimeline(factor) {
  const length = Math.min(head.frames, Math.max(Math.min(10, head.frames), (timeline.end - timeline.start) * factor));
  const start = Math.min(Math.max(0, state.frame - length / 2), head.frames - length);
  timeline.start = start;
  timeline.end = start + length;
  listRows();
  drawTimeline();
}

function follow() {
  const length = timeline.end - timeline.start;
  if (state.frame >= timeline.start && state.frame < timeline.end) return false;
  timeline.start = Math.min(Math.max(0, state.frame - length * 0.1), head.frames - length);
  timeline.end = timeline.start + length;
  listRows();
  return true;
}

function describeLife(life) {
  const when = life.first === life.last ? `frame ${life.first + 1}` : `frames ${life.first + 1} to ${life.last + 1}`;
  const hidden = life.out.reduce((sum, [first, last]) => sum + last - first + 1, 0);
  return `${nameOf(life)}, ${when}${hidden ? `, out of sight in ${hidden}` : ""}`;
}

function drawTimeline() {
  drawAxis();
  drawCount();
  drawBars();
  drawPlayhead();
}

function drawPlayhead() {
  const playhead = element("playhead");
  const x = xOf(state.frame + 0.5);
  playhead.hidden = x < 0 || x > laneWidth();
  playhead.style.transform = `translateX(${element("axis").offsetLeft + x}px)`;
}

function drawAxis() {
  const canvas = element("axis");
  const width = laneWidth();
  const context = sharpen(canvas, width, 22);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "center";
  context.fillStyle = theme.soft;
  const named = ticks(timeline.start + 1, timeline.end, width / 90).filter(Number.isInteger);
  for (const number of named) {
    context.fillText(String(number), Math.max(10, Math.min(width - 16, xOf(number - 0.5))), 12);
  }
  if (head.observed !== null) drawObserved(context, 22);
}

// From here on frames are predicted.
function drawObserved(context, height) {
  const x = xOf(head.observed);
  context.strokeStyle = theme.accent;
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(x, 0);
  context.lineTo(x, height);
  context.stroke();
  context.setLineDash([]);
}

function drawCount() {
  const width = laneWidth();
  const height = 56;
  const context = sharpen(element("count"), width, height);
  const y = (count) => height - 6 - (count / mostObjects) * (height - 26);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = theme.soft;
  for (const level of [0, mostObjects]) {
    context.strokeStyle = theme.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(0, y(level) + 0.5);
    context.lineTo(width, y(level) + 0.5);
    context.stroke();
    context.fillText(String(level), 2, y(level) - 4);
  }
  counts.forEach((values, group) => {
    context.strokeStyle = group ? colourOf(group + 1) : theme.accent;
    context.setLineDash(DASHES[group % DASHES.length]);
    context.lineWidth = 1.75;
    drawSteps(context, values, y, width);
  });
  context.setLineDash([]);
  if (head.observed !== null) drawObserved(context, height);
}

// Where a pixel holds several frames, its highest and lowest count are both reached.
function drawSteps(context, values, y, width) {
  const perPixel = (timeline.end - timeline.start) / width;
  context.beginPath();
  if (perPixel <= 1) {
    for (let t = Math.floor(timeline.start); t < Math.min(values.length, timeline.end); t++) {
      context.lineTo(xOf(t), y(values[t]));
      context.lineTo(xOf(t + 1), y(values[t]));
    }
  } else {
    for (let x = 0; x < width; x++) {
      const from = Math.floor(timeline.start + x * perPixel);
      let [low, high] = [255, 0];
      for (let t = from; t < Math.min(values.length, from + perPixel); t++) {
        low = Math.min(low, values[t]);
        high = Math.max(high, values[t]);
      }
      if (low <= high) {
        context.lineTo(x, y(low));
        context.lineTo(x, y(high));
      }
    }
  }
  context.stroke();
}

function drawBars() {
  const first = Math.max(0, Math.floor(bars.scrollTop / ROW) - 2);
  const last = Math.min(timeline.rows.length, Math.ceil((bars.scrollTop + bars.clientHeight) / ROW) + 2);
  const wanted = new Map();
  for (let i = first; i < last; i++) wanted.set(keyOf(timeline.rows[i]), i);
  const present = new Map();
  for (const option of [...tall.children]) {
    if (wanted.has(option.dataset.key)) present.set(option.dataset.key, option);
    else option.remove();
  }
  for (const [key, i] of wanted) {
    const option = present.get(key) || makeBar(timeline.rows[i]);
    option.style.transform = `translateY(${i * ROW}px)`;
    option.setAttribute("aria-posinset", i + 1);
    option.setAttribute("aria-setsize", timeline.rows.length);
    option.setAttribute("aria-selected", key === state.selected);
    option.classList.toggle("active", i === timeline.active);
    if (!present.has(key)) tall.append(option);
    drawBar(option.lastChild, timeline.rows[i]);
  }
  const active = timeline.rows[timeline.active];
  if (active && wanted.has(keyOf(active))) bars.setAttribute("aria-activedescendant", `bar-${keyOf(active)}`);
  else bars.removeAttribute("aria-activedescendant");
}

// A narrow screen hides the word.
function barName(life) {
  if (groupCount === 1) return make("span", { textContent: life.id });
  const word = make("span", { className: "word", textContent: "object " });
  return make("span", {}, `${groupName(life.group)} · `, word, String(life.id));
}

function makeBar(life) {
  const label = make("span", { className: "bar-name" }, barName(life));
  const option = make("div", { id: `bar-${keyOf(life)}`, role: "option", className: "bar" }, label, make("canvas"));
  option.dataset.key = keyOf(life);
  option.setAttribute("aria-label", describeLife(life));
  label.style.setProperty("--mark", colourOf(life.id));
  return option;
}

function drawBar(canvas, life) {
  const width = laneWidth();
  const context = sharpen(canvas, width, ROW);
  const [left, right] = [Math.max(-4, xOf(life.first)), Math.min(width + 4, xOf(life.last + 1))];
  const chosen = keyOf(life) === state.selected;
  const outline = new Path2D();
  outline.roundRect(left + 0.5, 7.5, Math.max(2, right - left - 1), ROW - 15, 4);
  context.save();
  context.clip(outline);
  context.fillStyle = colourOf(life.id);
  context.fillRect(left, 0, Math.max(2, right - left), ROW);
  for (const [first, last] of life.out) {
    if (last >= timeline.start && first <= timeline.end) hatch(context, xOf(first), xOf(last + 1), width);
  }
  context.restore();
  context.lineWidth = chosen ? 2.5 : 1;
  context.strokeStyle = chosen ? theme.ink : theme["bar-edge"];
  context.stroke(outline);
}

function hatch(context, from, to, width) {
  const [left, right] = [Math.max(from, -ROW), Math.min(to, width + ROW)];
  context.save();
  context.beginPath();
  context.rect(left, 0, Math.max(1, right - left), ROW);
  context.clip();
  context.fillStyle = theme.card;
  context.fillRect(left, 0, right - left, ROW);
  context.strokeStyle = theme.soft;
  context.lineWidth = 1.2;
  context.beginPath();
  for (let x = Math.floor(left / 6) * 6 - ROW; x < right + ROW; x += 6) {
    context.moveTo(x, ROW);
    context.lineTo(x + ROW, 0);
  }
  context.stroke();
  context.restore();
}

function moveActive(to) {
  timeline.active = Math.max(0, Math.min(timeline.rows.length - 1, to));
  const top = timeline.active * ROW;
  if (top < bars.scrollTop) bars.scrollTop = top;
  if (top + ROW > bars.scrollTop + bars.clientHeight) bars.scrollTop = top + ROW - bars.clientHeight;
  drawBars();
}

// Choose an identity, and go to a frame in which it lives if the present one has none of it.
function chooseLife(life) {
  select(keyOf(life));
  if (state.frame < life.first || state.frame > life.last) show(life.first);
}

bars.addEventListener("scroll", () => requestAnimationFrame(drawBars));
bars.addEventListener("click", (event) => {
  const option = event.target.closest(".bar");
  if (!option) return;
  moveActive(timeline.rows.findIndex((life) => keyOf(life) === option.dataset.key));
  const life = timeline.rows[timeline.active];
  select(keyOf(life));
  if (event.target.tagName === "CANVAS") show(frameAtX(event.offsetX));
  else chooseLife(life);
});
bars.addEventListener("keydown", (event) => {
  const page = Math.max(1, Math.floor(bars.clientHeight / ROW) - 1);
  const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page };
  if (event.key in moves) moveActive(timeline.active + moves[event.key]);
  else if ((event.key === "Enter" || event.key === " ") && timeline.rows.length)
    chooseLife(timeline.rows[timeline.active]);
  else return;
  event.preventDefault();
  event.stopPropagation();
});

// Pressing and drawing along the axis or the counts moves through the clip.
for (const id of ["axis", "count"]) {
  const canvas = element(id);
  const seek = (event) => show(frameAtX(event.offsetX));
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pause();
    seek(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (canvas.hasPointerCapture(event.pointerId)) seek(event);
  });
}
element("zoom-in").addEventListener("click", () => zoomTimeline(0.5));
element("zoom-out").addEventListener("click", () => zoomTimeline(2));
element("zoom-all").addEventListener("click", () => zoomTimeline(Infinity));
