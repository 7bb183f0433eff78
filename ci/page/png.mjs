// Makes a picture of a page small: its colours, few by nature, become a palette of 256.

import { deflateSync, inflateSync } from "node:zlib";

// A PNG of a screenshot, which has 8 bits of red, green, and blue, as one with a palette.
export function shrink(png) {
  const { width, height, rows } = decode(png);
  const counts = new Map();
  for (const row of rows) {
    for (let x = 0; x < row.length; x += 3) {
      const colour = row.readUIntBE(x, 3);
      counts.set(colour, (counts.get(colour) ?? 0) + 1);
    }
  }
  const palette = [...counts].sort(([, a], [, b]) => b - a).map(([colour]) => colour);
  palette.length = Math.min(palette.length, 256);
  const index = new Map(palette.map((colour, i) => [colour, i]));
  const nearest = (colour) => {
    const distances = palette.map((other) => distance(colour, other));
    return distances.indexOf(Math.min(...distances));
  };
  const lines = Buffer.alloc((width + 1) * height);
  rows.forEach((row, y) => {
    for (let x = 0; x < width; x++) {
      const colour = row.readUIntBE(3 * x, 3);
      if (!index.has(colour)) index.set(colour, nearest(colour));
      lines[y * (width + 1) + 1 + x] = index.get(colour);
    }
  });
  const head = Buffer.from(png.subarray(16, 29));
  // A byte for each point, an index of the palette.
  [head[8], head[9]] = [8, 3];
  const colours = Buffer.alloc(3 * palette.length);
  palette.forEach((colour, i) => colours.writeUIntBE(colour, 3 * i, 3));
  return Buffer.concat([
    png.subarray(0, 8),
    chunk("IHDR", head),
    chunk("PLTE", colours),
    chunk("IDAT", deflateSync(lines, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function decode(png) {
  const [width, height] = [png.readUInt32BE(16), png.readUInt32BE(20)];
  if (png[24] !== 8 || png[25] !== 2 || png[28] !== 0) throw new Error("not such a picture");
  const data = [];
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
    const body = png.subarray(at + 8, at + 8 + png.readUInt32BE(at));
    if (png.toString("latin1", at + 4, at + 8) === "IDAT") data.push(body);
  }
  const raw = inflateSync(Buffer.concat(data));
  const rows = [];
  let above = Buffer.alloc(3 * width);
  for (let y = 0; y < height; y++) {
    const from = y * (3 * width + 1);
    const row = Buffer.from(raw.subarray(from + 1, from + 1 + 3 * width));
    for (let x = 0; x < row.length; x++) {
      const [a, b, c] = x < 3 ? [0, above[x], 0] : [row[x - 3], above[x], above[x - 3]];
      row[x] += [0, a, b, (a + b) >> 1, paeth(a, b, c)][raw[from]];
    }
    rows.push(row);
    above = row;
  }
  return { width, height, rows };
}

function paeth(a, b, c) {
  const [pa, pb, pc] = [b - c, a - c, a + b - 2 * c].map(Math.abs);
  if (pa <= pb && pa <= pc) return a;
  return pb <= pc ? b : c;
}

function distance(a, b) {
  return [16, 8, 0].reduce(
    (sum, bit) => sum + Math.abs(((a >> bit) & 255) - ((b >> bit) & 255)),
    0,
  );
}

function chunk(name, body) {
  const named = Buffer.concat([Buffer.from(name, "latin1"), body]);
  const out = Buffer.alloc(named.length + 8);
  out.writeUInt32BE(body.length, 0);
  named.copy(out, 4);
  out.writeUInt32BE(crc32(named), named.length + 4);
  return out;
}

function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
