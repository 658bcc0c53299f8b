'use strict';
// The attention maps of a trace in one page: an atlas of heads on the left, one map with pan, zoom and
// hover on the right. Everything is in the page: #page-data holds JSON, #map-N the weights of head N.
//
// A map is the lower triangle of a matrix of cells, `block` x `block` weights each. Row r holds the
// cells firstColumn(r) .. r as 16-bit numbers (little-endian, base64): 0 no weight to be seen, 1 below
// the floor, else floor^(1 - (code - 2) / 65533).
(() => {
  const data = JSON.parse(document.getElementById('page-data').textContent);
  const $ = (id) => document.getElementById(id);
  const n = data.cells, block = data.block, nTokens = data.tokens;
  const logFloor = Math.log(data.floor);
  const weightOf = (code) => code < 2 ? (code ? 0 : NaN) : Math.exp(logFloor * (1 - (code - 2) / 65533));
  const firstColumn = (head, r) =>
    head.window === null ? 0 : Math.max(0, Math.floor((r * block - head.window + 1) / block));

  // ---- weights ------------------------------------------------------------------------------------
  // Level 0 is as written; a cell of the next level is the largest of 2 x 2 cells, for drawing alone.
  const loaded = new Map();
  function levelsOf(index) {
    if (loaded.has(index)) return loaded.get(index);
    const head = data.heads[index];
    const bytes = atob($('map-' + index).textContent.trim());
    let size = n, cells = new Uint16Array(n * n), at = 0;
    for (let r = 0; r < n; ++r) {
      for (let c = firstColumn(head, r); c <= r; ++c, at += 2)
        cells[r * n + c] = bytes.charCodeAt(at) | bytes.charCodeAt(at + 1) << 8;
    }
    const levels = [{ size, cells, span: 1 }];
    while (size > 32) {
      const half = (size + 1) >> 1, next = new Uint16Array(half * half);
      for (let r = 0; r < size; ++r) {
        for (let c = 0; c <= r; ++c) {
          const to = (r >> 1) * half + (c >> 1), code = cells[r * size + c];
          if (code > next[to]) next[to] = code;
        }
      }
      levels.push({ size: size = half, cells: cells = next, span: 2 ** levels.length });
    }
    if (loaded.size > 8) loaded.delete(loaded.keys().next().value);  // 8 heads in memory
    loaded.set(index, levels);
    return levels;
  }

  // ---- colours: the figures' own table, logarithmic from `low` to 1 ---------------------------------
  const rgb = data.colours.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  let table = null;  // colour of each code, as 0xAABBGGRR
  function makeTable(low) {
    table = new Uint32Array(65536);
    for (let code = 1; code < 65536; ++code) {
      const share = 1 - Math.log(Math.max(weightOf(code), 1e-300)) / Math.log(low);
      const [r, g, b] = rgb[Math.max(0, Math.min(255, Math.round(255 * share)))];
      table[code] = 0xff000000 | b << 16 | g << 8 | r;
    }
  }
  function paint(canvas, level, view) {
    const context = canvas.getContext('2d');
    const w = canvas.width, h = canvas.height, image = context.createImageData(w, h);
    const out = new Uint32Array(image.data.buffer);
    const columns = Int32Array.from({ length: w }, (_, x) => Math.floor((view.x + (x + .5) / w * view.size) / level.span));
    for (let y = 0; y < h; ++y) {
      const r = Math.floor((view.y + (y + .5) / h * view.size) / level.span);
      if (r < 0 || r >= level.size) continue;
      for (let x = 0; x < w; ++x) {
        const c = columns[x];
        if (c >= 0 && c < level.size) out[y * w + x] = table[level.cells[r * level.size + c]];
      }
    }
    context.putImageData(image, 0, 0);
  }

  // ---- what is shown ------------------------------------------------------------------------------
  const state = { head: 0, view: { x: 0, y: 0, size: n }, cell: null };
  const map = $('map');
  // Positions of tokens at steps of 1, 2 or 5 times a power of ten, at most six along each side.
  function drawTicks() {
    const { x, y, size } = state.view, tokens = size * block;
    const power = 10 ** Math.floor(Math.log10(Math.max(1, tokens / 6)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => tokens / s <= 6);
    for (const [id, from, side] of [['key-ticks', x, 'left'], ['query-ticks', y, 'top']]) {
      const place = $(id);
      place.textContent = '';
      for (let at = Math.max(0, Math.ceil(from * block / step) * step); at < Math.min(nTokens, from * block + tokens); at += step) {
        append(place, 'span', String(at));
        place.lastChild.style[side] = (at / block - from) / size * 100 + '%';
      }
    }
    // A finger on the whole map scrolls the page; on a part of it, it moves the part.
    map.style.touchAction = size >= n ? 'pan-y' : 'none';
  }
  function draw() {
    drawTicks();
    const levels = levelsOf(state.head);
    const cellsPerPixel = state.view.size / map.width;
    const level = Math.max(0, Math.min(levels.length - 1, Math.floor(Math.log2(Math.max(1, cellsPerPixel)))));
    paint(map, levels[level], state.view);
    if (!state.cell) return;
    const px = map.width / state.view.size, context = map.getContext('2d');
    context.strokeStyle = '#d55e00';
    context.lineWidth = 1.5;
    context.strokeRect((state.cell.k - state.view.x) * px, (state.cell.q - state.view.y) * px, Math.max(px, 3), Math.max(px, 3));
  }
  let waiting = false;
  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }
  // Signs that nobody sees or that turn the line around are written out.
  const shown = (text) => text.replace(/\n/g, '\u21b5').replace(/\t/g, '\u2192')
    .replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
      (c) => '<U+' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0') + '>');
  function tokensOf(first, last) {
    if (!data.texts) return 'token ' + data.ids.slice(first, last).join(' ');
    const all = data.texts.slice(first, last), most = 24;
    return shown(all.slice(0, most).join('')) + (all.length > most ? ' \u2026' : '');
  }
  const number = (x) => x === null ? '\u2013' : x < 1e-3 && x !== 0 ? x.toExponential(3) : x.toPrecision(4);
  const range = (first, last) => last - first > 1 ? `${first}\u2013${last - 1}` : `${first}`;
  function append(parent, name, text, kind) {
    const element = document.createElement(name);
    element.textContent = text;
    if (kind) element.className = kind;
    parent.append(element);
  }
  function valueAt(index, q, k) {
    return q < 0 || k < 0 || q >= n || k >= n ? NaN : weightOf(levelsOf(index)[0].cells[q * n + k]);
  }
  function tell() {
    const out = $('readout'), cell = state.cell;
    out.textContent = '';
    delete out.dataset.weight;
    if (!cell) return append(out, 'span', 'Move over the map: weight, query and key of the cell. Drag to move, wheel, two fingers or + and \u2212 to zoom, 0 for all, arrows for the cell, click to hold it.', 'soft');
    const value = valueAt(state.head, cell.q, cell.k);
    const place = (i) => [i * block, Math.min(nTokens, (i + 1) * block)];
    const q = place(cell.q), k = place(cell.k);
    out.dataset.weight = value;
    const what = block === 1 ? 'weight' : data.pooling === 'max' ? `largest of ${block} \u00d7 ${block} weights` : `mean of ${block} \u00d7 ${block} weights`;
    append(out, 'b', Number.isNaN(value) ? 'not visible' : value === 0 ? '< ' + data.floor : number(value));
    append(out, 'span', Number.isNaN(value) ? '\nquery ' : ` ${what}\nquery `);
    append(out, 'span', range(...q) + ' ');
    append(out, 'span', tokensOf(...q), 'token');
    append(out, 'span', '\nkey ' + range(...k) + ' ');
    append(out, 'span', tokensOf(...k), 'token');
  }
  function tellHead() {
    const head = data.heads[state.head];
    $('which').textContent = `Layer ${head.layer}, query head ${head.head}` + (head.window === null ? '' : ` (window of ${head.window})`);
    $('numbers').textContent = data.measures.map((m) => `${m.label}: ${number(head.numbers[m.name])}`).join(' \u00b7 ');
    document.querySelectorAll('.head').forEach((b) => b.setAttribute('aria-pressed', Number(b.dataset.index) === state.head));
    const place = state.cell ? `&query=${state.cell.q * block}&key=${state.cell.k * block}` : '';
    history.replaceState(null, '', `#layer=${head.layer}&head=${head.head}${state.held ? place : ''}`);
  }
  function select(index) {
    state.head = index;
    tellHead();
    tell();
    redraw();
  }

  // ---- atlas --------------------------------------------------------------------------------------
  const atlas = $('atlas'), order = $('order');
  const buttons = data.heads.map((head, index) => {
    const button = document.createElement('button');
    button.className = 'head';
    button.dataset.index = index;
    button.append(document.createElement('canvas'));
    append(button, 'span', `L${head.layer} H${head.head}`);
    button.firstChild.width = button.firstChild.height = 52;
    button.onclick = () => select(index);
    return button;
  });
  function arrange() {
    const by = order.value, value = (i) => data.heads[i].numbers[by] ?? -Infinity;
    const indices = buttons.map((_, i) => i);
    if (by) indices.sort((a, b) => value(b) - value(a) || a - b);
    atlas.style.gridTemplateColumns = `repeat(${by ? 8 : data.columns}, 60px)`;
    atlas.replaceChildren(...indices.map((i) => buttons[i]));
    buttons.forEach((button, i) => {
      button.lastChild.textContent = `L${data.heads[i].layer} H${data.heads[i].head}` + (by ? ' ' + (data.heads[i].numbers[by] === null ? '\u2013' : Number(data.heads[i].numbers[by].toPrecision(2))) : '');
    });
  }
  append(order, 'option', 'layer and head');
  order.lastChild.value = '';
  for (const m of data.measures) {
    append(order, 'option', m.label);
    order.lastChild.value = m.name;
  }
  order.onchange = arrange;
  const small = data.heads.map(() => null);  // coarse levels, kept when the colours change
  function paintSmall(i) {
    if (!small[i]) {
      const levels = levelsOf(i);
      small[i] = levels[Math.max(0, Math.min(levels.length - 1, Math.floor(Math.log2(Math.max(1, n / 52)))))];
    }
    paint(buttons[i].firstChild, small[i], { x: 0, y: 0, size: n });
  }
  // Thumbnails are painted when they come into sight, one at a time, so that the page answers meanwhile.
  const inSight = new Set();
  let painting = false;
  function paintNext() {
    const [i] = inSight;
    painting = i !== undefined;
    if (!painting) return;
    inSight.delete(i);
    paintSmall(i);
    setTimeout(paintNext, 0);
  }
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const i = Number(entry.target.dataset.index);
      if (entry.isIntersecting) inSight.add(i);
      else inSight.delete(i);
    }
    if (!painting) paintNext();
  });
  function paintAtlas() {  // observing anew tells of all that are in sight
    for (const button of buttons) { watch.unobserve(button); watch.observe(button); }
  }

  // ---- mouse, wheel, keys ---------------------------------------------------------------------------
  const cellUnder = (event) => {
    const box = map.getBoundingClientRect();
    const at = (p, length, from) => Math.floor(from + p / length * state.view.size);
    const k = at(event.clientX - box.left, box.width, state.view.x), q = at(event.clientY - box.top, box.height, state.view.y);
    return q >= 0 && k >= 0 && q < n && k < n ? { q, k } : null;
  };
  function zoom(factor, x, y) {  // x, y: what stays, as parts of the map
    const size = Math.max(4, Math.min(n * 1.05, state.view.size * factor)), view = state.view;
    state.view = { x: view.x + x * (view.size - size), y: view.y + y * (view.size - size), size };
    redraw();
  }
  // One pointer drags, two zoom about the point between them; each is known by its id.
  const pointers = new Map();
  let drag = null;  // where the pointers were when their number last changed
  function begin(moved) {
    const all = [...pointers.values()];
    const middle = (of) => all.reduce((sum, p) => sum + p[of], 0) / all.length;
    const apart = all.length > 1 ? Math.hypot(all[0].x - all[1].x, all[0].y - all[1].y) : 0;
    return all.length ? { x: middle('x'), y: middle('y'), apart, view: state.view, moved } : null;
  }
  map.onpointerdown = (event) => {
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    drag = begin(pointers.size > 1);
    map.setPointerCapture(event.pointerId);
  };
  map.onpointermove = (event) => {
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    if (drag) {
      const box = map.getBoundingClientRect(), now = begin(false), from = drag.view;
      drag.moved = drag.moved || Math.abs(now.x - drag.x) + Math.abs(now.y - drag.y) > 3;
      if (drag.moved) {
        const size = Math.max(4, Math.min(n * 1.05, from.size * (drag.apart && now.apart ? drag.apart / now.apart : 1)));
        // what lay between the fingers stays between them
        const along = (was, is, start, length) => start + was / length * from.size - is / length * size;
        state.view = { x: along(drag.x - box.left, now.x - box.left, from.x, box.width),
          y: along(drag.y - box.top, now.y - box.top, from.y, box.height), size };
      }
    }
    if (!state.held) state.cell = cellUnder(event);
    tell();
    redraw();
  };
  map.onpointerup = map.onpointercancel = (event) => {
    const isClick = event.type === 'pointerup' && drag && !drag.moved;
    pointers.delete(event.pointerId);
    drag = begin(true);
    if (!isClick) return;
    state.held = !state.held;  // a click holds the cell, the next one lets it go
    state.cell = cellUnder(event);
    tell();
    tellHead();
    redraw();
  };
  map.onpointerleave = () => {
    if (!state.held && !drag) { state.cell = null; tell(); redraw(); }
  };
  map.addEventListener('wheel', (event) => {
    event.preventDefault();
    const box = map.getBoundingClientRect();
    zoom(Math.exp(event.deltaY * .002), (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  }, { passive: false });
  map.onkeydown = (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) {
      const cell = state.cell ?? { q: n - 1, k: 0 }, inside = (i) => Math.max(0, Math.min(n - 1, i));
      state.cell = { q: inside(cell.q + step[0]), k: inside(cell.k + step[1]) };
      state.held = true;
      tell();
      tellHead();
      redraw();
    } else if (event.key === '+' || event.key === '=') zoom(.7, .5, .5);
    else if (event.key === '-') zoom(1 / .7, .5, .5);
    else if (event.key === '0') { state.view = { x: 0, y: 0, size: n }; redraw(); }
    else return;
    event.preventDefault();
  };
  $('low').onchange = () => {
    makeTable(Number($('low').value));
    redraw();
    paintAtlas();
  };

  // ---- begin: the head and cell of the address, else the head that retrieves most ---------------------
  // (where nothing repeats, the one that looks farthest back: often a flat one)
  makeTable(Number($('low').value));
  $('scale').style.background = `linear-gradient(to right, ${data.colours.join(',')})`;
  arrange();
  const wanted = new URLSearchParams(location.hash.slice(1));
  let first = data.heads.findIndex((h) => h.layer === Number(wanted.get('layer')) && h.head === Number(wanted.get('head')));
  if (!wanted.has('layer') || first < 0) {
    const by = data.measures.some((m) => m.name === 'retrieval') ? 'retrieval' : 'distance';
    first = data.heads.reduce((best, h, i) => (h.numbers[by] ?? -1) > (data.heads[best].numbers[by] ?? -1) ? i : best, 0);
  }
  if (wanted.has('query') && wanted.has('key')) {
    state.cell = { q: Math.floor(Number(wanted.get('query')) / block), k: Math.floor(Number(wanted.get('key')) / block) };
    state.held = true;
  }
  select(first);
  paintAtlas();
  window.kvscopePage = { state, valueAt, select, draw };  // for tests and the curious
})();
