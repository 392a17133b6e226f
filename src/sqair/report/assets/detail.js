"use strict";
// The chosen object: facts, glimpses, latents and path, over its whole life, or the part around the present frame of a
// long one.

const SPAN = 240;
const LONGEST_GLIMPSES = 10;
let story = null; // what is shown: the key, the span of frames, and a row or null for each of them

// Latents on the scale that the legend shows: purple below zero, green above, so that red and green never meet.
function latentColour(byte, dark) {
  const value = byte / 127.5 - 1;
  const strength = Math.min(1, Math.abs(value) * 1.6);
  const middle = dark ? [38, 42, 50] : [245, 245, 242];
  const end = value < 0 ? (dark ? [190, 132, 232] : [106, 44, 145]) : dark ? [92, 204, 160] : [0, 104, 72];
  return middle.map((from, i) => Math.round(from + (end[i] - from) * strength));
}

// Pixels of `wide` columns of bytes, `high` each, as a canvas to be enlarged.
function latentImage(wide, high, byteAt) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const image = new ImageData(wide, high);
  for (let x = 0; x < wide; x++) {
    for (let y = 0; y < high; y++) {
      const byte = byteAt(x, y);
      if (byte !== null) image.data.set([...latentColour(byte, dark), 255], 4 * (y * wide + x));
    }
  }
  const canvas = make("canvas", { width: wide, height: high });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function spanOf(life) {
  if (life.last - life.first < SPAN) return [life.first, life.last];
  const half = SPAN / 2;
  const middle = Math.round(Math.min(Math.max(state.frame, life.first), life.last) / half) * half;
  const first = Math.min(Math.max(life.first, middle - half), life.last - SPAN + 1);
  return [first, first + SPAN - 1];
}

async function tell(key) {
  const life = lives.get(key);
  const [first, last] = spanOf(life);
  const parts = [];
  for (let part = partOf(first); part <= partOf(last); part++) parts.push(rowCache.get(part));
  await Promise.all(parts);
  if (key !== state.selected) return;
  const rows = [];
  for (let t = first; t <= last; t++) rows.push(rowsAt(t).find((row) => keyOf(row) === key) || null);
  const what = (t, d) => (rows[t] ? rows[t].part.what[rows[t].index * head.whatSize + d] : null);
  const strip = head.whatSize ? latentImage(rows.length, head.whatSize, what) : null;
  story = { key, life, first, last, rows, strip };
  drawDetail();
}

function updateDetail() {
  const chosen = state.selected !== null;
  element("detail-body").hidden = !chosen;
  element("detail-hint").hidden = chosen;
  element("detail-title").textContent = chosen ? nameOf(lives.get(state.selected)) : "No object chosen";
  if (!chosen) {
    story = null;
    return;
  }
  element("detail-title").style.setProperty("--mark", colourOf(lives.get(state.selected).id));
  element("detail-title").classList.toggle("marked", chosen);
  const [first, last] = spanOf(lives.get(state.selected));
  if (story && story.key === state.selected && story.first === first && story.last === last) drawDetail();
  else tell(state.selected);
}

function drawDetail() {
  const row = rowsAt(state.frame).find((each) => keyOf(each) === story.key) || null;
  drawFacts(row);
  drawGlimpses();
  if (story.strip) drawWhat();
  drawPath(row);
}

const digits = (value, count = 1) => (Number.isFinite(value) ? value.toFixed(count) : "–");

function drawFacts(row) {
  const { life } = story;
  const status = !row ? "not alive in this frame" : row.box ? "in sight" : "alive, out of sight";
  const entries = [
    ["life", `frames ${life.first + 1}–${life.last + 1}`],
    ["now", status],
  ];
  if (row && Number.isFinite(row.presence)) entries.push(["presence", `${digits(row.presence * 100, 0)}%`]);
  if (row && row.box) {
    entries.push([
      "centre",
      centre(row)
        .map((v) => digits(v))
        .join(", "),
    ]);
    entries.push(["size", `${digits(row.box[2])} × ${digits(row.box[3])}`]);
  }
  if (row && head.hasSpread) entries.push(["spread", `${digits(row.spread, 2)} px`]);
  element("detail-facts").replaceChildren(...entries.map(fact));
}

// Evenly over the life, the present one largest when there is one.
function drawGlimpses() {
  const canvas = element("glimpses");
  const width = canvas.clientWidth;
  const [high, wide] = head.glimpse;
  const columns = Math.min(LONGEST_GLIMPSES, story.rows.length, Math.max(3, Math.floor(width / 44)));
  const gap = 4;
  const each = Math.min(52, (width - gap * (columns - 1)) / columns);
  const tallness = (each * high) / wide;
  canvas.style.height = `${tallness + 16}px`;
  const context = sharpen(canvas, width, tallness + 16);
  context.imageSmoothingEnabled = false;
  context.font = "10px system-ui, sans-serif";
  context.textAlign = "center";
  const here = columns === 1 ? 0 : Math.round(((state.frame - story.first) / (story.rows.length - 1)) * (columns - 1));
  for (let i = 0; i < columns; i++) {
    const now = i === here && state.frame >= story.first && state.frame <= story.last;
    const t = now ? state.frame - story.first : Math.round((i / Math.max(1, columns - 1)) * (story.rows.length - 1));
    const row = story.rows[t];
    const x = i * (each + gap);
    context.fillStyle = theme.line;
    context.fillRect(x, 0, each, tallness);
    if (row && row.part.glimpses) {
      const left = (row.index % row.part.columns) * wide;
      const top = Math.floor(row.index / row.part.columns) * high;
      context.drawImage(row.part.glimpses, left, top, wide, high, x, 0, each, tallness);
    }
    if (now) {
      context.strokeStyle = theme.accent;
      context.lineWidth = 2;
      context.strokeRect(x + 1, 1, each - 2, tallness - 2);
    }
    context.fillStyle = now ? theme.ink : theme.soft;
    context.fillText(String(story.first + t + 1), x + each / 2, tallness + 12);
  }
}

function drawWhat() {
  const canvas = element("what");
  const width = canvas.clientWidth;
  const height = Math.min(180, Math.max(60, head.whatSize * 3));
  canvas.style.height = `${height}px`;
  const context = sharpen(canvas, width, height);
  context.imageSmoothingEnabled = false;
  context.drawImage(story.strip, 0, 0, width, height);
  if (state.frame >= story.first && state.frame <= story.last) {
    context.strokeStyle = theme.accent;
    context.lineWidth = 2;
    const across = width / story.rows.length;
    context.strokeRect((state.frame - story.first) * across, 0, Math.max(across, 2), height);
  }
  sharpen(element("scale"), 90, 8).drawImage(
    latentImage(90, 8, (x) => (x / 89) * 255),
    0,
    0,
  );
}

// The path of the centre in the frame: pale in the past, dark later, a dot where it is now.
function drawPath(row) {
  const canvas = element("path");
  const [high, wide] = head.size;
  const width = Math.min(canvas.parentElement.clientWidth, (300 * wide) / high);
  const zoom = width / wide;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${high * zoom}px`;
  const context = sharpen(canvas, width, high * zoom);
  context.lineWidth = 2.5;
  context.lineCap = "round";
  context.strokeStyle = colourOf(story.life.id);
  const points = story.rows.map((each) => (each ? centre(each) : null));
  points.forEach((point, t) => {
    if (!t || !point || !points[t - 1]) return;
    context.globalAlpha = 0.3 + (0.7 * t) / points.length;
    context.beginPath();
    context.moveTo(points[t - 1][0] * zoom, points[t - 1][1] * zoom);
    context.lineTo(point[0] * zoom, point[1] * zoom);
    context.stroke();
  });
  context.globalAlpha = 1;
  const now = row ? centre(row) : null;
  if (!now) return;
  context.beginPath();
  context.arc(now[0] * zoom, now[1] * zoom, 5, 0, 7);
  context.fillStyle = theme.ink;
  context.fill();
}
