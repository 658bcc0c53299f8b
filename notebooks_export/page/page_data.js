// The numbers of the page. #page-data holds JSON; of head I the elements map-I, heaviest-I and, of its
// method M, kept-I-M and mass-I-M hold numbers, little-endian, base64.
//
// A map has cells of `block` x `block` pairs. Row r holds the cells that some query of it sees, 16 bits
// each: 0 no weight to be seen, 1 below the floor, else floor^(1 - (code - 2) / 65533). What a method keeps
// of a cell is a byte: 0 not known, else 1 + 254 times the share.
const data = JSON.parse(document.getElementById('page-data').textContent);
const logFloor = Math.log(data.floor);
const weightOf = (code) => code < 2 ? (code ? 0 : NaN) : Math.exp(logFloor * (1 - (code - 2) / 65533));
const shareOf = (code) => code ? (code - 1) / 65534 : NaN;
const bytesOf = (id) => Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
const word16 = (bytes, at) => bytes[at] | bytes[at + 1] << 8;

for (const head of data.heads) {
  head.tokens = data.traces[head.trace].tokens;
  head.side = Math.ceil(head.tokens / head.block);
  // the columns that some query of row r sees: from the first one up to, but not including, the last
  head.seen = (r) => [head.window === null ? 0 : Math.floor(Math.max(0, r * head.block - head.window + 1) / head.block), r + 1];
  // the positions of a row's queries, or of a column's keys
  head.range = (cell) => [cell * head.block, Math.min(head.tokens, (cell + 1) * head.block)];
  head.cellOf = ({ query, key }) => {
    const inside = (at) => at >= 0 && at < head.tokens;
    return inside(query) && inside(key) ? { r: Math.floor(query / head.block), c: Math.floor(key / head.block) } : null;
  };
}

/** What make(...words) gives, the last 12 answers of which are kept. */
function remembered(make) {
  const known = new Map();
  return (...words) => {
    const name = words.join();
    if (!known.has(name)) {
      if (known.size >= 12) known.delete(known.keys().next().value);
      known.set(name, make(...words));
    }
    return known.get(name);
  };
}

// Level 0 is as written; a cell of the next level is the largest of 2 x 2 cells, for drawing alone.
const levelsOf = remembered((index) => {
  const head = data.heads[index], bytes = bytesOf('map-' + index);
  let side = head.side, cells = new Uint16Array(side * side), at = 0;
  for (let r = 0; r < side; ++r) {
    const [first, last] = head.seen(r);
    for (let c = first; c < last; ++c, at += 2) cells[r * side + c] = word16(bytes, at);
  }
  const levels = [{ side, cells }];
  while (side > 32) {
    const half = (side + 1) >> 1, next = new Uint16Array(half * half);
    for (let r = 0; r < side; ++r) {
      for (let c = 0; c < side; ++c) {
        const to = (r >> 1) * half + (c >> 1), code = cells[r * side + c];
        if (code > next[to]) next[to] = code;
      }
    }
    side = half;
    cells = next;
    levels.push({ side, cells });
  }
  return levels;
});
const valueAt = (index, r, c) => weightOf(levelsOf(index)[0].cells[r * data.heads[index].side + c]);

// What method m of a head keeps: the share of each cell, NaN where it is not known; the mean mass of
// queries, NaN unless all were answered.
const keptOf = remembered((index, m) => {
  const head = data.heads[index], bytes = bytesOf(`kept-${index}-${m}`), codes = bytesOf(`mass-${index}-${m}`);
  const shares = new Float32Array(head.side * head.side).fill(NaN);
  let at = 0;
  for (let r = 0; r < head.side; ++r) {
    const [first, last] = head.seen(r);
    for (let c = first; c < last; ++c, ++at) if (bytes[at]) shares[r * head.side + c] = (bytes[at] - 1) / 254;
  }
  const masses = Float64Array.from({ length: head.tokens }, (_, query) => shareOf(word16(codes, 2 * query)));
  const mean = (list) => list.reduce((sum, x) => sum + x, 0) / list.length;
  return { shares, mass: ([first, last]) => mean(masses.subarray(first, last)), all: mean(masses.filter((x) => !Number.isNaN(x))) };
});

// The heaviest keys of a query, heaviest first: position, weight, and whether each method keeps it (bit m).
const heaviestBytes = remembered((index) => bytesOf('heaviest-' + index));
function heaviestOf(index, query) {
  const bytes = heaviestBytes(index), most = data.heads[index].heaviest, list = [];
  for (let at = query * most * 7; at < (query + 1) * most * 7; at += 7) {
    const key = word16(bytes, at) | word16(bytes, at + 2) << 16;
    if (key >= 0) list.push({ key, weight: weightOf(word16(bytes, at + 4)), kept: bytes[at + 6] });
  }
  return list;
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
const percent = (x) => Number.isNaN(x) ? 'not known' : (100 * x).toFixed(1) + ' %';
const range = ([first, last]) => last - first > 1 ? `${first}\u2013${last - 1}` : `${first}`;
function make(parent, name, text, kind) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  parent.append(element);
  return element;
}
