"use strict";
// Playing, stepping, choosing, keys; and the words of the page.

const last = head.frames - 1;
let shown = 0; // counts calls of show: only the newest may draw
let begun = null; // the time and the frame at which playing began

function redraw() {
  for (const panel of panels) panel.draw(state.frame);
  drawTimeline();
  updateDetail();
}

async function show(frame, { seek = true } = {}) {
  if (!head.frames) return;
  const mine = ++shown;
  state.frame = Math.min(Math.max(0, frame), Math.max(0, last));
  element("scrub").value = state.frame;
  if (film && seek) film.seek(state.frame);
  try {
    await prepare(state.frame);
  } catch (error) {
    say(error.message);
    return;
  }
  if (mine !== shown) return;
  for (const panel of panels) panel.draw(state.frame);
  if (follow()) drawTimeline();
  else drawPlayhead();
  drawClock();
  updateDetail();
  if (!state.playing) announce();
}

function drawClock() {
  element("clock").textContent = `${state.frame + 1} / ${head.frames}`;
  const found = counts.map((values) => values[state.frame]).join(", ");
  element("scrub").setAttribute("aria-valuetext", `frame ${state.frame + 1} of ${head.frames}, objects: ${found}`);
}

// Said once after things have come to rest, and never while the clip plays.
let pending = 0;
function announce() {
  clearTimeout(pending);
  pending = setTimeout(() => {
    for (const panel of panels) panel.describe(state.frame);
    const chosen = state.selected ? `, ${nameOf(lives.get(state.selected))} chosen` : "";
    const found = rowsAt(state.frame).length;
    say(`Frame ${state.frame + 1} of ${head.frames}, ${found} ${found === 1 ? "object" : "objects"}${chosen}`);
  }, 600);
}

function say(text) {
  element("live").textContent = text;
}

function select(key) {
  state.selected = key !== null && lives.has(key) ? key : null;
  redraw();
  if (!state.playing) announce();
}

// --- playing

function play() {
  if (state.frame >= last) show(0);
  state.playing = true;
  begun = { time: performance.now(), frame: state.frame >= last ? 0 : state.frame };
  if (film) {
    film.video.playbackRate = state.speed;
    film.video.play().catch(() => pause());
  }
  updatePlay();
  requestAnimationFrame(tick);
}

function pause() {
  if (!state.playing) return;
  state.playing = false;
  if (film) {
    film.video.pause();
    film.seek(state.frame);
  }
  updatePlay();
  announce();
}

function updatePlay() {
  element("play").setAttribute("aria-label", state.playing ? "Pause" : "Play");
  document.body.classList.toggle("playing", state.playing);
}

let busy = false;
async function tick(time) {
  if (!state.playing) return;
  requestAnimationFrame(tick);
  if (busy) return;
  const wanted = film ? film.frame() : begun.frame + Math.floor(((time - begun.time) / 1000) * head.rate * state.speed);
  const ended = film ? film.video.ended : wanted > last;
  if (ended && element("loop").checked) {
    begun = { time, frame: 0 };
    if (film) film.video.play().catch(() => pause());
  }
  if (ended && !element("loop").checked) {
    await show(last);
    pause();
    return;
  }
  const frame = ended ? 0 : wanted;
  if (frame === state.frame) return;
  busy = true;
  const asked = performance.now();
  await show(frame, { seek: false });
  const delay = performance.now() - asked;
  if (delay > 250) begun.time += delay; // a part came late: go on from here rather than jump
  busy = false;
  if (hasPictures && frame + 1 < head.frames) prepare(Math.min(last, frame + 16)).catch(() => {});
}

function step(by) {
  pause();
  show(state.frame + by);
}

function setSpeed() {
  state.speed = Number(element("speed").value);
  begun = { time: performance.now(), frame: state.frame };
  if (film) film.video.playbackRate = state.speed;
}

// --- keys

const TOGGLES = { b: "boxes", i: "ids", t: "trails", g: "where", u: "uncertainty" };

function nextObject() {
  const rows = rowsAt(state.frame);
  const at = rows.findIndex((row) => keyOf(row) === state.selected);
  if (rows.length) select(keyOf(rows[(at + 1) % rows.length]));
}

function toggle(name) {
  const box = document.querySelector(`[data-show="${name}"]`);
  if (!box.disabled) box.click();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || element("help").open) return;
  const { target, key } = event;
  const onRange = target.id === "scrub";
  if (target.tagName === "SELECT") return;
  if (key === " " && (target.type === "checkbox" || ["BUTTON", "SUMMARY"].includes(target.tagName))) return;
  if (onRange && ["ArrowLeft", "ArrowRight", "Home", "End"].includes(key) && !event.shiftKey) return;
  const stride = event.shiftKey ? 10 : 1;
  const actions = {
    " ": () => (state.playing ? pause() : play()),
    ArrowLeft: () => step(-stride),
    ArrowRight: () => step(stride),
    Home: () => step(-head.frames),
    End: () => step(head.frames),
    n: nextObject,
    "?": () => element("help").showModal(),
    "+": () => zoomTimeline(0.5),
    "-": () => zoomTimeline(2),
    0: () => zoomTimeline(Infinity),
    Escape: () => select(null),
  };
  const name = key.length === 1 ? key.toLowerCase() : key;
  if (name in TOGGLES) toggle(TOGGLES[name]);
  else if (name in actions) actions[name]();
  else return;
  event.preventDefault();
}

// --- words

function readable(value) {
  if (typeof value === "number" && !Number.isInteger(value)) return value.toPrecision(4).replace(/\.?0+$/, "");
  if (Array.isArray(value)) return value.map(readable).join(", ");
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

// The summary's facts as pairs, tables in it with dots; what is long or said elsewhere is left out.
function factsOf(table, prefix = "") {
  return Object.entries(table).flatMap(([name, value]) => {
    if (value === null || value === head.title || name === "remarks") return [];
    if (typeof value === "object" && !Array.isArray(value)) return factsOf(value, `${prefix}${name} `);
    if (Array.isArray(value) && (value.length > 8 || value.some((each) => typeof each === "object"))) return [];
    return [[`${prefix}${name}`.replaceAll("_", " "), readable(value)]];
  });
}

const IN_HEADER = 6;
function writeFacts() {
  const size = `${head.size[1]} × ${head.size[0]}`;
  const first = [
    ["model", head.model],
    ["frames", head.frames],
    ["identities", lives.size],
    ["size", size],
  ];
  const known = new Set(first.map(([name]) => name));
  const facts = [...first, ...factsOf(head.summary).filter(([name]) => !known.has(name))];
  element("facts").replaceChildren(...facts.slice(0, IN_HEADER).map(fact));
  element("all-facts").replaceChildren(...facts.map(fact));
  const remarks = Array.isArray(head.summary.remarks) ? head.summary.remarks : [];
  element("remarks").hidden = !remarks.length;
  element("remarks").replaceChildren(...remarks.map((text) => make("li", { textContent: text })));
}

function writeWords() {
  element("kind").textContent = `sqair ${head.kind}`;
  element("title").textContent = head.title;
  element("footer").textContent = `Made by sqair ${head.version}. Nothing on this page leaves this machine.`;
  element("scale-low").textContent = `−${head.whatRange}`;
  element("scale-high").textContent = `+${head.whatRange}`;
  writeFacts();
}

const MOST_IN_TABLE = 500;
function writeTable() {
  const rows = head.lives.slice(0, MOST_IN_TABLE).map((life) => {
    const hidden = life.out.map(([first, end]) => (first === end ? first + 1 : `${first + 1}–${end + 1}`)).join(", ");
    return [nameOf(life), life.first + 1, life.last + 1, life.last - life.first + 1, hidden || "never"];
  });
  const names = ["object", "first frame", "last frame", "frames", "out of sight"];
  element("table").replaceChildren(tableOf(names, rows));
  if (lives.size <= MOST_IN_TABLE) return;
  const rest = `The first ${MOST_IN_TABLE} of ${lives.size}; all are in tracks.csv.`;
  element("table").append(make("p", { textContent: rest }));
}

// --- start

function listen() {
  element("play").addEventListener("click", () => (state.playing ? pause() : play()));
  element("back").addEventListener("click", () => step(-1));
  element("forward").addEventListener("click", () => step(1));
  element("scrub").addEventListener("input", () => {
    pause();
    show(Number(element("scrub").value));
  });
  element("speed").addEventListener("change", setSpeed);
  element("help-button").addEventListener("click", () => element("help").showModal());
  document.addEventListener("keydown", onKey);
  element("table").parentElement.addEventListener("toggle", writeTable, { once: true });
  for (const box of document.querySelectorAll("[data-show]")) {
    state.show[box.dataset.show] = box.checked;
    box.addEventListener("change", () => {
      state.show[box.dataset.show] = box.checked;
      redraw();
    });
  }
  new ResizeObserver(() => redraw()).observe(element("player"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    story = null; // its colours are those of the other theme
    redraw();
  });
}

function forbid(name, why) {
  const box = document.querySelector(`[data-show="${name}"]`);
  box.disabled = true;
  box.parentElement.title = why;
}

function start() {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  element("loop").checked = !calm && head.frames / head.rate < 20;
  element("scrub").max = Math.max(0, last);
  for (const name of film ? ["boxes", "ids", "trails"] : []) forbid(name, "part of the video");
  if (!head.hasSpread) forbid("uncertainty", "known when several particles were used");
  writeWords();
  listRows();
  listen();
  drawTimeline();
  show(0);
}

start();
