// The numbers of the page. #page-data holds JSON; elements map-I, kept-I-M, mass-I-M, reads-I and
// read-masses-I hold numbers, little-endian, base64.
//
// A map has cells of `block` x `block` pairs over [queries) x [keys). Row r holds the cells that some
// query of it sees, 16 bits each: 0 no weight to be seen, 1 below the floor, else
// floor^(1 - (code - 2) / 65533). What a method keeps of a cell has two bits where a cell is one pair
// (0 not known, 1 dropped, 2 kept), else a byte (0 not known, else 1 + 254 times the share).
const data = JSON.parse(document.getElementById('page-data').textContent);
const logFloor = Math.log(data.floor);
const weightOf = (code) => code < 2 ? (code ? 0 : NaN) : Math.exp(logFloor * (1 - (code - 2) / 65533));
const shareOf = (code) => code ? (code - 1) / 65534 : NaN;
const bytesOf = (id) => Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
const word16 = (bytes, at) => bytes[at] | bytes[at + 1] << 8;

for (const map of data.maps) {
  map.rows = Math.ceil((map.queries[1] - map.queries[0]) / map.block);
  map.cols = Math.ceil((map.keys[1] - map.keys[0]) / map.block);
  // the columns that some query of row r sees: from the first one up to, but not including, the last
  map.seen = (r) => {
    const begin = map.queries[0] + r * map.block, end = Math.min(map.queries[1], begin + map.block);
    const firstKey = map.window === null ? 0 : Math.max(0, begin - map.window + 1);
    const first = Math.floor(Math.max(0, firstKey - map.keys[0]) / map.block);
    const lastKey = Math.min(end, map.keys[1]) - 1;
    const last = lastKey < map.keys[0] ? 0 : Math.floor((lastKey - map.keys[0]) / map.block) + 1;
    return [Math.min(first, last), last];
  };
  map.cellOf = (query, key) => {
    const inside = (at, range) => at >= range[0] && at < range[1];
    if (!inside(query, map.queries) || !inside(key, map.keys)) return null;
    return { r: Math.floor((query - map.queries[0]) / map.block), c: Math.floor((key - map.keys[0]) / map.block) };
  };
  map.queriesOf = (r) => [map.queries[0] + r * map.block, Math.min(map.queries[1], map.queries[0] + (r + 1) * map.block)];
  map.keysOf = (c) => [map.keys[0] + c * map.block, Math.min(map.keys[1], map.keys[0] + (c + 1) * map.block)];
}

// Level 0 is as written; a cell of the next level is the largest of 2 x 2 cells, for drawing alone.
const loaded = new Map();
function levelsOf(index) {
  if (loaded.has(index)) return loaded.get(index);
  const map = data.maps[index], bytes = bytesOf('map-' + index);
  let rows = map.rows, cols = map.cols, cells = new Uint16Array(rows * cols), at = 0;
  for (let r = 0; r < rows; ++r) {
    const [first, last] = map.seen(r);
    for (let c = first; c < last; ++c, at += 2) cells[r * cols + c] = word16(bytes, at);
  }
  const levels = [{ rows, cols, cells, span: 1 }];
  while (Math.max(rows, cols) > 32) {
    const halfRows = (rows + 1) >> 1, halfCols = (cols + 1) >> 1, next = new Uint16Array(halfRows * halfCols);
    for (let r = 0; r < rows; ++r) {
      for (let c = 0; c < cols; ++c) {
        const to = (r >> 1) * halfCols + (c >> 1), code = cells[r * cols + c];
        if (code > next[to]) next[to] = code;
      }
    }
    rows = halfRows, cols = halfCols, cells = next;
    levels.push({ rows, cols, cells, span: 2 ** levels.length });
  }
  if (loaded.size > 12) loaded.delete(loaded.keys().next().value);  // 12 heads in memory
  loaded.set(index, levels);
  return levels;
}
const valueAt = (index, r, c) => {
  const map = data.maps[index];
  return r < 0 || c < 0 || r >= map.rows || c >= map.cols ? NaN : weightOf(levelsOf(index)[0].cells[r * map.cols + c]);
};

// What method m of a map keeps: the share of each cell, NaN where it is not known; the mass of a row.
const loadedKept = new Map();
function keptOf(index, m) {
  const name = index + '-' + m;
  if (loadedKept.has(name)) return loadedKept.get(name);
  const map = data.maps[index], bytes = bytesOf('kept-' + name), masses = bytesOf('mass-' + name);
  const shares = new Float32Array(map.rows * map.cols).fill(NaN);
  let at = 0;
  for (let r = 0; r < map.rows; ++r) {
    const [first, last] = map.seen(r);
    for (let c = first; c < last; ++c, ++at) {
      const code = map.block === 1 ? bytes[at >> 2] >> 2 * (at & 3) & 3 : bytes[at];
      if (code) shares[r * map.cols + c] = map.block === 1 ? code - 1 : (code - 1) / 254;
    }
  }
  const kept = { shares, mass: (r) => shareOf(word16(masses, 2 * r)) };
  if (loadedKept.size > 12) loadedKept.delete(loadedKept.keys().next().value);
  loadedKept.set(name, kept);
  return kept;
}

// The heaviest keys of a word, heaviest first: position, weight, whether each method keeps it, and
// whether it does so by rule, whatever its score (bit m).
const loadedReads = new Map();
function readsOf(index) {
  if (loadedReads.has(index)) return loadedReads.get(index);
  const reads = data.reads[index], bytes = bytesOf('reads-' + index), masses = bytesOf('read-masses-' + index);
  const n = reads.methods.length;
  const row = (query) => query < reads.queries[0] || query >= reads.queries[1] ? -1 : query - reads.queries[0];
  const loadedOne = {
    of(query) {
      const r = row(query), list = [];
      for (let j = 0; r >= 0 && j < reads.most; ++j) {
        const at = (r * reads.most + j) * 8, key = bytes[at] | bytes[at + 1] << 8 | bytes[at + 2] << 16 | bytes[at + 3] << 24;
        if (key >= 0) list.push({ key, weight: weightOf(word16(bytes, at + 4)), kept: bytes[at + 6], ruled: bytes[at + 7] });
      }
      return list;
    },
    mass: (query, m) => row(query) < 0 ? NaN : shareOf(word16(masses, 2 * (row(query) * n + m))),
  };
  loadedReads.set(index, loadedOne);
  return loadedOne;
}

// ---- words ------------------------------------------------------------------------------------------
// Signs that nobody sees or that turn the line around are written out.
const shown = (text) => text.replace(/\n/g, '\u21b5').replace(/\t/g, '\u2192')
  .replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (c) => '<U+' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0') + '>');
function tokensOf(trace, [first, last], most = 24) {
  const of = data.traces[trace];
  if (!of.texts) return 'token ' + of.ids.slice(first, Math.min(last, first + most)).join(' ');
  return shown(of.texts.slice(first, Math.min(last, first + most)).join('')) + (last - first > most ? ' \u2026' : '');
}
const number = (x) => x === null || Number.isNaN(x) ? '\u2013' : x < 1e-3 && x !== 0 ? x.toExponential(3) : x.toPrecision(4);
const weightWords = (x) => Number.isNaN(x) ? 'not visible' : x === 0 ? '< ' + data.floor : number(x);
const percent = (x) => x === null || Number.isNaN(x) ? 'not known' : (100 * x).toFixed(1) + ' %';
const range = ([first, last]) => last - first > 1 ? `${first}\u2013${last - 1}` : `${first}`;
function make(parent, name, text, kind) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  parent.append(element);
  return element;
}
