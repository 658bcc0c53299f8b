// A map of one head: pan, zoom, hover, what methods keep, arrows and boxes. Drawn from the coarsest
// of its maps to the finest: a step about a part of the context has the whole behind it.
const rgb = data.colours.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
const tables = new Map();
function tableFrom(low) {  // the figures' own colours, logarithmic from `low` to 1, as 0xAABBGGRR
  if (tables.has(low)) return tables.get(low);
  const table = new Uint32Array(65536);
  for (let code = 1; code < 65536; ++code) {
    const share = 1 - Math.log(Math.max(weightOf(code), 1e-300)) / Math.log(low);
    const [r, g, b] = rgb[Math.max(0, Math.min(255, Math.round(255 * share)))];
    table[code] = 0xff000000 | b << 16 | g << 8 | r;
  }
  tables.set(low, table);
  return table;
}
/** Paints cells onto a canvas. view: { x, y, size }, the first key and query and tokens per side.
    kept: null, or shares of level 0, by which what is dropped fades into the ground. */
function paintCells(image, index, view, table, kept, ground) {
  const map = data.maps[index], { width: w, height: h } = image, out = new Uint32Array(image.data.buffer);
  const levels = levelsOf(index), cellsPerPixel = view.size / map.block / w;
  const at = kept ? 0 : Math.max(0, Math.min(levels.length - 1, Math.floor(Math.log2(Math.max(1, cellsPerPixel)))));
  const level = levels[at], side = map.block * level.span;
  const columns = Int32Array.from({ length: w }, (_, x) => Math.floor((view.x + (x + .5) / w * view.size - map.keys[0]) / side));
  for (let y = 0; y < h; ++y) {
    const r = Math.floor((view.y + (y + .5) / h * view.size - map.queries[0]) / side);
    if (r < 0 || r >= level.rows) continue;
    for (let x = 0; x < w; ++x) {
      const c = columns[x];
      if (c < 0 || c >= level.cols) continue;
      const code = level.cells[r * level.cols + c];
      if (!code) continue;
      let colour = table[code];
      if (kept) {
        const share = kept[r * map.cols + c], fade = .86 * (1 - (Number.isNaN(share) ? 0 : share));
        if (!Number.isNaN(share) && fade > 0) {
          const mix = (shift, i) => Math.round((colour >> shift & 255) * (1 - fade) + ground[i] * fade) << shift;
          colour = 0xff000000 | mix(16, 2) | mix(8, 1) | mix(0, 0);
        }
      }
      out[y * w + x] = colour;
    }
  }
}

class MapPanel {
  constructor(root, step, story) {
    Object.assign(this, { root, step, story, method: step.methods.length && step.panels[0] !== 'atlas' ? 0 : -1, low: 1e-4 });
    this.all = data.traces[step.trace].tokens;
    this.cell = null;  // { query, key } under the pointer or held
    this.held = false;
    this.build();
    this.show(step.maps, step.query === null ? null : { query: step.query, key: step.key ?? this.heaviest(step.query) });
  }

  build() {
    const bar = make(this.root, 'div', undefined, 'bar');
    this.which = make(bar, 'b');
    if (this.step.methods.length) this.methods = methodSwitch(bar, this.step, (m) => { this.method = m; this.tell(); this.redraw(); });
    const label = make(bar, 'label', 'colours from ', 'small'), low = make(label, 'select');
    for (const value of ['1e-6', '1e-5', '1e-4', '1e-3', '1e-2']) make(low, 'option', value).selected = value === '1e-4';
    low.onchange = () => { this.low = Number(low.value); this.redraw(); this.onlow?.(); };
    make(bar, 'span', undefined, 'scale').style.background = `linear-gradient(to right, ${data.colours.join(',')})`;
    make(bar, 'span', 'to 1', 'small');
    this.numbers = make(this.root, 'div', undefined, 'soft small numbers');
    const framed = make(this.root, 'div', undefined, 'framed');
    this.queryTicks = make(framed, 'div', undefined, 'ticks query-ticks');
    this.canvas = make(framed, 'canvas', undefined, 'map');
    this.keyTicks = make(framed, 'div', undefined, 'ticks key-ticks');
    this.queryTicks.setAttribute('aria-hidden', true);
    this.keyTicks.setAttribute('aria-hidden', true);
    this.canvas.width = this.canvas.height = 720;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', (this.root.dataset.alt || 'Attention map: queries downwards, keys to the right.') +
      ' Arrows move over the cells, plus and minus zoom, 0 shows all.');
    this.readout = make(this.root, 'div', undefined, 'readout');
    this.readout.setAttribute('aria-live', 'polite');
    this.listen();
  }

  /** maps: indices, the whole context first; held: a pair or null. */
  show(maps, held) {
    this.maps = maps;
    this.map = data.maps[maps[maps.length - 1]];
    const [q0, q1] = this.map.queries, [k0, k1] = this.map.keys, size = Math.max(q1 - q0, k1 - k0);
    // a part is shown with a little of what lies around it
    const room = maps.length > 1 ? .04 * size : 0;
    if (!this.home || this.home.of !== `${q0} ${k0} ${size}`) {
      this.home = { of: `${q0} ${k0} ${size}`, x: k0 - room - (size - (k1 - k0)) / 2, y: q0 - room - (size - (q1 - q0)) / 2, size: size + 2 * room };
      this.view = { ...this.home };
    }
    if (held) { this.cell = held; this.held = true; }
    this.tellHead();
    this.tell();
    this.redraw();
  }

  /** The first key of the heaviest cell in the row of a query. */
  heaviest(query) {
    const index = this.step.maps[this.step.maps.length - 1], map = data.maps[index], at = map.cellOf(query, map.keys[0]);
    if (!at) return map.keys[0];
    const row = levelsOf(index)[0].cells.subarray(at.r * map.cols, (at.r + 1) * map.cols);
    return map.keysOf(row.indexOf(Math.max(...row)))[0];
  }
  /** Index and cell of the finest map that holds the pair; null beyond them. */
  place(pair) {
    for (let i = this.maps.length - 1; pair && i >= 0; --i) {
      const map = data.maps[this.maps[i]], cell = map.cellOf(pair.query, pair.key);
      if (cell) return { index: this.maps[i], map, ...cell };
    }
    return null;
  }

  keptAt(index) {  // of the chosen method; null without one, or where it was not exported
    if (this.method < 0) return null;
    const m = data.maps[index].kept.findIndex((one) => one.method === this.step.methods[this.method]);
    return m < 0 ? null : { of: data.maps[index].kept[m], ...keptOf(index, m) };
  }

  // ---- drawing ----
  draw() {
    const canvas = this.canvas, context = canvas.getContext('2d');
    const image = context.createImageData(canvas.width, canvas.height);
    const ground = getComputedStyle(document.body).getPropertyValue('--ground').trim();
    const rgbGround = [1, 3, 5].map((i) => parseInt(ground.slice(i, i + 2), 16));
    for (const index of this.maps) paintCells(image, index, this.view, tableFrom(this.low), this.keptAt(index)?.shares, rgbGround);
    context.putImageData(image, 0, 0);
    this.drawTicks();
    const px = canvas.width / this.view.size, x = (key) => (key - this.view.x) * px, y = (query) => (query - this.view.y) * px;
    context.lineWidth = 2;
    for (const mark of this.step.marks) {
      if (mark.kind === 'box') this.drawBox(context, x(mark.keys[0]), y(mark.queries[0]), x(mark.keys[1]), y(mark.queries[1]), mark.label);
      if (mark.kind === 'arrow') this.drawArrow(context, x(mark.from[1] + .5), y(mark.from[0] + .5), x(mark.to[1] + .5), y(mark.to[0] + .5), mark.label);
    }
    const at = this.place(this.cell);
    if (!at) return;
    const [k0] = at.map.keysOf(at.c), [q0] = at.map.queriesOf(at.r), side = Math.max(at.map.block * px, 4);
    context.strokeStyle = '#fff';
    context.lineWidth = 3.5;
    context.strokeRect(x(k0), y(q0), side, side);
    context.strokeStyle = '#d55e00';
    context.lineWidth = 2;
    context.strokeRect(x(k0), y(q0), side, side);
  }
  stroke(context, path) {  // an orange line that is seen on every ground
    for (const [style, width] of [['rgba(0,0,0,.75)', 5], ['#ff9d3c', 2.5]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.beginPath();
      path();
      context.stroke();
    }
  }
  drawLabel(context, x, y, right, bottom, label) {
    if (!label) return;
    context.font = `${Math.round(15 * this.canvas.width / Math.max(320, this.canvas.clientWidth || 720))}px system-ui, "DejaVu Sans", sans-serif`;
    const size = parseInt(context.font, 10), w = context.measureText(label).width + 10, h = 1.5 * size;
    // beside its box where there is room, else above or below it
    const fits = right + 6 + w <= this.canvas.width, left = Math.max(2, Math.min(this.canvas.width - w - 2, fits ? right + 6 : x));
    const above = y - h - 4 >= 2 ? y - h - 4 : bottom + 4;
    const top = Math.max(2, Math.min(this.canvas.height - h - 2, fits ? y - 4 : above));
    context.fillStyle = 'rgba(0,0,0,.78)';
    context.fillRect(left, top, w, h);
    context.fillStyle = '#ffd9b0';
    context.textBaseline = 'middle';
    context.fillText(label, left + 5, top + h / 2 + 1);
  }
  drawBox(context, x0, y0, x1, y1, label) {
    const grow = (a, b) => b - a < 12 ? [(a + b) / 2 - 6, (a + b) / 2 + 6] : [a, b];  // a pair stays seen
    [x0, x1] = grow(x0, x1);
    [y0, y1] = grow(y0, y1);
    this.stroke(context, () => context.rect(x0, y0, x1 - x0, y1 - y0));
    this.drawLabel(context, x0, y0, x1, y1, label);
  }
  drawArrow(context, x0, y0, x1, y1, label) {
    const angle = Math.atan2(y1 - y0, x1 - x0), head = 15;
    this.stroke(context, () => {
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
      for (const turn of [-.45, .45]) {
        context.moveTo(x1, y1);
        context.lineTo(x1 - head * Math.cos(angle + turn), y1 - head * Math.sin(angle + turn));
      }
    });
    this.drawLabel(context, x0, y0 - 6, x0, y0, label);
  }
  // Positions of tokens at steps of 1, 2 or 5 times a power of ten, at most six along each side.
  drawTicks() {
    const { x, y, size } = this.view, power = 10 ** Math.floor(Math.log10(Math.max(1, size / 6)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => size / s <= 6);
    for (const [place, from, side] of [[this.keyTicks, x, 'left'], [this.queryTicks, y, 'top']]) {
      place.textContent = '';
      for (let at = Math.max(0, Math.ceil(from / step) * step); at < Math.min(this.all, from + size); at += step)
        make(place, 'span', String(at)).style[side] = (at - from) / size * 100 + '%';
    }
    // A finger on the whole map scrolls the page; on a part of it, it moves the part.
    this.canvas.style.touchAction = size >= this.home.size ? 'pan-y' : 'none';
  }
  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  // ---- words ----
  tellHead() {
    const map = this.map;
    this.which.textContent = `Layer ${map.layer}, query head ${map.head}` + (map.window === null ? '' : ` (window of ${map.window})`) + (map.block > 1 ? `, cells of ${map.block} \u00d7 ${map.block}` : '');
    this.numbers.textContent = map.numbers ? data.measures.map((m) => `${m.label}: ${number(map.numbers[m.name])}`).join(' \u00b7 ') : '';
  }
  tell() {
    const out = this.readout, at = this.place(this.cell);
    out.textContent = '';
    delete out.dataset.weight;
    delete out.dataset.kept;
    this.onpair?.(at ? this.cell : null);
    const kept = this.keptAt(this.maps[this.maps.length - 1]);
    const note = this.method >= 0 ? data.methods[this.step.methods[this.method]].note : '';
    if (kept && kept.of.mass !== null)
      make(out, 'span', `${data.methods[kept.of.method].words}: ${percent(kept.of.mass)} of the attention kept, ${number(kept.of.keys)} keys per query; the rest is faded.\n`, 'soft');
    if (note) make(out, 'span', note + '.\n', 'soft');
    if (!at) return make(out, 'span', 'Move over the map: weight, query and key of the cell. Drag to move, wheel, two fingers or + and \u2212 to zoom, 0 for all, arrows for the cell, click to hold it.', 'soft');
    const value = valueAt(at.index, at.r, at.c), block = at.map.block, q = at.map.queriesOf(at.r), k = at.map.keysOf(at.c);
    out.dataset.weight = value;
    const what = block === 1 ? 'weight' : data.pooling === 'max' ? `largest of ${block} \u00d7 ${block} weights` : `mean of ${block} \u00d7 ${block} weights`;
    make(out, 'b', weightWords(value));
    make(out, 'span', Number.isNaN(value) ? '' : ' ' + what);
    const own = this.keptAt(at.index);
    if (own && !Number.isNaN(value)) {
      const share = own.shares[at.r * at.map.cols + at.c], mass = own.mass(at.r);
      out.dataset.kept = share;
      const words = Number.isNaN(share) ? 'not known' : block === 1 ? (share ? 'kept' : 'dropped') : `${percent(share)} of its pairs kept`;
      make(out, 'span', `, ${words} by ${data.methods[own.of.method].words}`, share > 0 ? 'kept' : 'dropped');
      if (!Number.isNaN(mass)) make(out, 'span', `, which keeps ${percent(mass)} of ${q[1] - q[0] > 1 ? 'these queries\u2019' : 'this query\u2019s'} attention`);
    }
    for (const [name, place] of [['query', q], ['key', k]]) {
      make(out, 'span', `\n${name} ${range(place)} `);
      make(out, 'span', tokensOf(at.map.trace, place), 'token');
    }
  }

  // ---- mouse, wheel, keys ----
  pairUnder(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = (p, length, from) => Math.floor(from + p / length * this.view.size);
    const pair = { query: at(event.clientY - box.top, box.height, this.view.y), key: at(event.clientX - box.left, box.width, this.view.x) };
    return this.place(pair) ? pair : null;
  }
  size(wanted) { return Math.max(4, Math.min(this.all * 1.05, wanted)); }
  zoom(factor, x, y) {  // x, y: what stays, as parts of the map
    const size = this.size(this.view.size * factor), view = this.view;
    this.view = { x: view.x + x * (view.size - size), y: view.y + y * (view.size - size), size };
    this.redraw();
  }
  hold(pair, held) {
    this.cell = pair;
    this.held = held;
    this.tell();
    this.story.address();
    this.redraw();
  }
  listen() {
    const canvas = this.canvas, pointers = new Map();  // each is known by its id: one drags, two zoom
    let drag = null;  // where the pointers were when their number last changed
    const begin = (moved) => {
      const all = [...pointers.values()], middle = (of) => all.reduce((sum, p) => sum + p[of], 0) / all.length;
      const apart = all.length > 1 ? Math.hypot(all[0].x - all[1].x, all[0].y - all[1].y) : 0;
      return all.length ? { x: middle('x'), y: middle('y'), apart, view: this.view, moved } : null;
    };
    canvas.onpointerdown = (event) => {
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      drag = begin(pointers.size > 1);
      canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = (event) => {
      if (pointers.has(event.pointerId)) pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      if (drag) {
        const box = canvas.getBoundingClientRect(), now = begin(false), from = drag.view;
        drag.moved = drag.moved || Math.abs(now.x - drag.x) + Math.abs(now.y - drag.y) > 3;
        if (drag.moved) {
          const size = this.size(from.size * (drag.apart && now.apart ? drag.apart / now.apart : 1));
          // what lay between the fingers stays between them
          const along = (was, is, start, length) => start + was / length * from.size - is / length * size;
          this.view = { x: along(drag.x - box.left, now.x - box.left, from.x, box.width),
            y: along(drag.y - box.top, now.y - box.top, from.y, box.height), size };
        }
      }
      if (!this.held) this.cell = this.pairUnder(event);
      this.tell();
      this.redraw();
    };
    canvas.onpointerup = canvas.onpointercancel = (event) => {
      const isClick = event.type === 'pointerup' && drag && !drag.moved;
      pointers.delete(event.pointerId);
      drag = begin(true);
      if (isClick) this.hold(this.pairUnder(event), !this.held);  // a click holds, the next one lets go
    };
    canvas.onpointerleave = () => {
      if (!this.held && !drag) { this.cell = null; this.tell(); this.redraw(); }
    };
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      this.zoom(Math.exp(event.deltaY * .002), (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    }, { passive: false });
    canvas.onkeydown = (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (step) {
        const [q0, q1] = this.map.queries, [k0, k1] = this.map.keys, block = this.map.block;
        const pair = this.cell ?? { query: q1 - 1, key: k0 }, inside = (at, a, b) => Math.max(a, Math.min(b - 1, at));
        this.hold({ query: inside(pair.query + step[0] * block, q0, q1), key: inside(pair.key + step[1] * block, k0, k1) }, true);
      } else if (event.key === '+' || event.key === '=') this.zoom(.7, .5, .5);
      else if (event.key === '-') this.zoom(1 / .7, .5, .5);
      else if (event.key === '0') { this.view = { ...this.home }; this.redraw(); }
      else if (event.key === 'Escape') { this.held = false; this.hold(null, false); canvas.blur(); }
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
  }
}

/** Buttons of the step's methods and of none; chosen(m) gets the place among them, -1 for none. */
function methodSwitch(parent, step, chosen) {
  const group = make(parent, 'div', undefined, 'methods');
  group.setAttribute('role', 'group');
  group.setAttribute('aria-label', 'what a method keeps');
  const names = ['every key', ...step.methods.map((m) => data.methods[m].words)];
  const buttons = names.map((name, i) => {
    const button = make(group, 'button', name);
    button.onclick = () => { set(i - 1); chosen(i - 1); };
    return button;
  });
  const set = (m) => buttons.forEach((b, i) => b.setAttribute('aria-pressed', i - 1 === m));
  set(0);
  return { set };
}

/** Many heads beside one map: a grid of small maps, ordered by what the heads do. */
class AtlasPanel {
  constructor(root, step, story) {
    Object.assign(this, { step, story });
    root.classList.add('atlas-panel');
    const list = make(root, 'div', undefined, 'heads'), shownRoot = make(root, 'div', undefined, 'shown');
    const bar = make(list, 'div', undefined, 'bar'), label = make(bar, 'label', 'Heads by ');
    this.order = make(label, 'select', undefined, 'order');
    this.grid = make(list, 'div', undefined, 'atlas');
    this.panel = new MapPanel(shownRoot, { ...step, maps: [step.maps[0]] }, story);
    this.buttons = step.maps.map((index, at) => {
      const button = document.createElement('button'), map = data.maps[index];
      button.className = 'head';
      button.dataset.index = at;
      const canvas = make(button, 'canvas');
      canvas.width = canvas.height = 52;
      make(button, 'span', `L${map.layer} H${map.head}`);
      button.onclick = () => { this.select(at); story.address(); };
      return button;
    });
    make(this.order, 'option', 'layer and head').value = '';
    for (const m of data.measures) make(this.order, 'option', m.label).value = m.name;
    this.order.onchange = () => this.arrange();
    this.arrange();
    this.watch();
    this.panel.onlow = () => this.repaint();
    this.select(this.first());
    this.repaint();
  }
  numbersOf(at) { return data.maps[this.step.maps[at]].numbers; }
  // the step's own head, else the one that retrieves most (where nothing repeats, that looks farthest back)
  first() {
    if (this.step.first !== null) return this.step.first;
    const by = data.measures.some((m) => m.name === 'retrieval') ? 'retrieval' : 'distance';
    return this.step.maps.reduce((best, _, at) => (this.numbersOf(at)[by] ?? -1) > (this.numbersOf(best)[by] ?? -1) ? at : best, 0);
  }
  select(at) {
    this.head = at;
    this.buttons.forEach((b) => b.setAttribute('aria-pressed', Number(b.dataset.index) === at));
    this.panel.show([this.step.maps[at]], null);
  }
  arrange() {
    const by = this.order.value, value = (at) => this.numbersOf(at)[by] ?? -Infinity;
    const order = this.buttons.map((_, at) => at);
    if (by) order.sort((a, b) => value(b) - value(a) || a - b);
    this.grid.style.gridTemplateColumns = `repeat(${by ? 8 : this.step.columns}, 60px)`;
    this.grid.replaceChildren(...order.map((at) => this.buttons[at]));
    this.buttons.forEach((button, at) => {
      const map = data.maps[this.step.maps[at]], x = this.numbersOf(at)[by] ?? null;
      button.lastChild.textContent = `L${map.layer} H${map.head}` + (by ? ' ' + (x === null ? '\u2013' : Number(x.toPrecision(2))) : '');
    });
  }
  // Small maps are painted when they come into sight, one at a time, so that the page answers meanwhile.
  watch() {
    const inSight = new Set();
    let painting = false;
    const next = () => {
      const [at] = inSight;
      painting = at !== undefined;
      if (!painting) return;
      inSight.delete(at);
      const context = this.buttons[at].firstChild.getContext('2d'), image = context.createImageData(52, 52);
      paintCells(image, this.step.maps[at], { x: 0, y: 0, size: this.panel.all }, tableFrom(this.panel.low), null, null);
      context.putImageData(image, 0, 0);
      setTimeout(next, 0);
    };
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const at = Number(entry.target.dataset.index);
        if (entry.isIntersecting) inSight.add(at);
        else inSight.delete(at);
      }
      if (!painting) next();
    });
  }
  repaint() {  // observing anew tells of all that are in sight
    for (const button of this.buttons) { this.observer.unobserve(button); this.observer.observe(button); }
  }
  draw() { this.panel.draw(); }
}
