"use strict";
// The clip's data: the head, which is always there, and parts of rows and frames, which come when they are needed.
// Embedded parts are elements of this page; the others are scripts beside it, since a page opened from disk may load
// nothing else. Only the parts used last are kept.

const KEPT_PARTS = 12;

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function imageOf(address) {
  const image = new Image();
  image.src = address;
  return image.decode().then(() => image);
}

const waiting = new Map();

// Called by the scripts beside the page.
function deliver(name, value) {
  const found = waiting.get(name);
  waiting.delete(name);
  if (found) found(value);
}

function fetchPart(name) {
  if (head.inOne) return Promise.resolve(JSON.parse(document.getElementById(name).textContent));
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    waiting.set(name, (value) => {
      script.remove();
      resolve(value);
    });
    script.onerror = () => {
      waiting.delete(name);
      script.remove();
      reject(new Error(`page/${name}.js is missing`));
    };
    script.src = `page/${name}.js`;
    document.head.append(script);
  });
}

// The objects of up to 256 frames, as columns.
class Rows {
  constructor(part, index) {
    this.first = index * head.part;
    this.offsets = new Uint32Array(bytesOf(part.offsets).buffer);
    this.ids = new Int32Array(bytesOf(part.ids).buffer);
    this.groups = bytesOf(part.groups);
    this.numbers = new Float32Array(bytesOf(part.numbers).buffer);
    this.what = bytesOf(part.what);
    this.columns = part.columns;
    this.sheet = part.glimpses;
  }

  async open() {
    this.glimpses = this.sheet ? await imageOf(this.sheet) : null;
    this.sheet = null;
    return this;
  }

  row(i) {
    const n = this.numbers.subarray(i * 10, i * 10 + 10);
    const box = Number.isNaN(n[0]) ? null : [n[0], n[1], n[2], n[3]];
    return {
      id: this.ids[i],
      group: this.groups[i],
      box,
      where: [n[4], n[5], n[6], n[7]],
      presence: n[8],
      spread: n[9],
      part: this,
      index: i,
    };
  }

  at(frame) {
    const t = frame - this.first;
    const rows = [];
    for (let i = this.offsets[t]; i < this.offsets[t + 1]; i++) rows.push(this.row(i));
    return rows;
  }
}

// Parts of one kind that were used last; `make` turns what was fetched into what is kept.
class Cache {
  constructor(kind, make) {
    this.kind = kind;
    this.make = make;
    this.ready = new Map();
    this.coming = new Map();
  }

  peek(index) {
    const found = this.ready.get(index);
    if (found !== undefined) {
      this.ready.delete(index);
      this.ready.set(index, found);
    }
    return found;
  }

  get(index) {
    const found = this.peek(index);
    if (found !== undefined) return Promise.resolve(found);
    if (!this.coming.has(index)) this.coming.set(index, this.load(index));
    return this.coming.get(index);
  }

  async load(index) {
    try {
      const value = await this.make(await fetchPart(`${this.kind}-${String(index).padStart(5, "0")}`), index);
      this.ready.set(index, value);
      for (const old of this.ready.keys()) if (this.ready.size > KEPT_PARTS) this.ready.delete(old);
      return value;
    } finally {
      this.coming.delete(index);
    }
  }
}

const rowCache = new Cache("rows", (part, index) => new Rows(part, index).open());
// Of each panel the sheets, each as its address until it is decoded.
const frameCache = new Cache("frames", (part) =>
  part.map((sheets) => sheets.map((address) => ({ address, image: null }))),
);

const partOf = (frame) => Math.floor(frame / head.part);
const hasPictures = head.video === null;

// Everything that frame `frame` needs to be drawn.
async function prepare(frame) {
  const part = partOf(frame);
  const rows = rowCache.get(part);
  if (hasPictures) {
    const panels = await frameCache.get(part);
    await Promise.all(head.panels.map((panel, p) => openSheet(panels[p][sheetOf(panel, frame)])));
  }
  await rows;
}

function sheetOf(panel, frame) {
  return Math.floor((frame % head.part) / panel.perSheet);
}

async function openSheet(sheet) {
  if (sheet.image === null) sheet.image = await imageOf(sheet.address);
}

// The picture of a panel: an image, and where in it the frame begins. Null while it is not there.
function pictureAt(p, frame) {
  const panels = hasPictures ? frameCache.peek(partOf(frame)) : undefined;
  const panel = head.panels[p];
  const image = panels ? panels[p][sheetOf(panel, frame)].image : null;
  if (!image) return null;
  const i = (frame % head.part) % panel.perSheet;
  const [height, width] = panel.size;
  return { image, x: (i % panel.columns) * width, y: Math.floor(i / panel.columns) * height };
}

// The objects of a frame that is loaded; none if it is not.
function rowsAt(frame) {
  const part = frame >= 0 && frame < head.frames ? rowCache.peek(partOf(frame)) : undefined;
  return part ? part.at(frame) : [];
}

const counts = head.counts.map(bytesOf);
const groupCount = counts.length;

const keyOf = (object) => `${object.group}:${object.id}`;
const lives = new Map(head.lives.map((life) => [keyOf(life), life]));
const colourOf = (id) => head.colours[(((id - 1) % head.colours.length) + head.colours.length) % head.colours.length];
// Beyond the seventh identity colours repeat: the dashes of boxes tell them apart, as the numbers do.
const DASHES = [[], [7, 4], [2, 3]];
const dashOf = (id) => DASHES[Math.max(0, Math.floor((id - 1) / head.colours.length)) % DASHES.length];

function groupName(group) {
  const panel = head.panels.find((each) => each.group === group);
  return groupCount > 1 && panel ? panel.name : "";
}

function nameOf(object) {
  const group = groupName(object.group);
  return group ? `Object ${object.id}, ${group}` : `Object ${object.id}`;
}
