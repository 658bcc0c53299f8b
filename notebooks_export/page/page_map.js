// A map of one head: pan, zoom, hover, what methods keep.
const rgb = data.colours.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
const tableFrom = remembered((low) => {  // the figures' own colours, logarithmic from `low` to 1, as 0xAABBGGRR
  const table = new Uint32Array(65536);
  for (let code = 1; code < 65536; ++code) {
    const share = 1 - Math.log(Math.max(weightOf(code), 1e-300)) / Math.log(low);
    const [r, g, b] = rgb[Math.max(0, Math.min(255, Math.round(255 * share)))];
    table[code] = 0xff000000 | b << 16 | g << 8 | r;
  }
  return table;
});
/** Paints cells onto an image. view: { x, y, size }, the first key and query and tokens per side.
    kept: null, or shares of level 0, by which what is dropped fades into the ground. */
function paintCells(image, index, view, table, kept, ground) {
  const head = data.heads[index], { width: w, height: h } = image, out = new Uint32Array(image.data.buffer);
  const levels = levelsOf(index), cellsPerPixel = view.size / head.block / w;
  const at = kept ? 0 : Math.max(0, Math.min(levels.length - 1, Math.floor(Math.log2(Math.max(1, cellsPerPixel)))));
  const level = levels[at], side = head.block * 2 ** at;
  const columns = Int32Array.from({ length: w }, (_, x) => Math.floor((view.x + (x + .5) / w * view.size) / side));
  for (let y = 0; y < h; ++y) {
    const r = Math.floor((view.y + (y + .5) / h * view.size) / side);
    if (r < 0 || r >= level.side) continue;
    for (let x = 0; x < w; ++x) {
      const c = columns[x];
      if (c < 0 || c >= level.side) continue;
      const code = level.cells[r * level.side + c];
      if (!code) continue;
      let colour = table[code];
      const share = kept ? kept[r * head.side + c] : 1;
      if (share < 1) {  // not where it is not known
        const fade = .86 * (1 - share);
        const mix = (shift, i) => Math.round((colour >> shift & 255) * (1 - fade) + ground[i] * fade) << shift;
        colour = 0xff000000 | mix(16, 2) | mix(8, 1) | mix(0, 0);
      }
      out[y * w + x] = colour;
    }
  }
}

class MapPanel {
  /** onhold() is called when a cell is held or let go. */
  constructor(root, index, method, onhold) {
    Object.assign(this, { root, method, onhold, low: 1e-4, cell: null, held: false });  // cell: { query, key } under the pointer or held
    this.build(data.heads[index].methods);
    this.show(index);
  }

  build(methods) {
    const bar = make(this.root, 'div', undefined, 'bar');
    this.which = make(bar, 'b');
    if (methods.length) this.methods = methodSwitch(bar, methods, this.method, (m) => this.onmethod(m));
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
    this.queryTicks.ariaHidden = this.keyTicks.ariaHidden = true;
    this.canvas.width = this.canvas.height = 720;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    this.readout = make(this.root, 'div', undefined, 'readout');
    this.readout.setAttribute('aria-live', 'polite');
    this.listen();
  }

  show(index) {
    this.index = index;
    this.head = data.heads[index];
    if (this.home?.size !== this.head.tokens) {
      this.home = { x: 0, y: 0, size: this.head.tokens };
      this.view = { ...this.home };
    }
    const { layer, head, window, block, numbers } = this.head;
    this.which.textContent = `Layer ${layer}, query head ${head}` + (window === null ? '' : ` (window of ${window})`) + (block > 1 ? `, cells of ${block} \u00d7 ${block}` : '');
    this.numbers.textContent = numbers ? data.measures.map((m) => `${m.label}: ${number(numbers[m.name])}`).join(' \u00b7 ') : '';
    this.canvas.setAttribute('aria-label', `Attention map of layer ${layer}, query head ${head}: queries downwards, keys to the right. ` +
      'Arrows move over the cells, plus and minus zoom, 0 shows all.');
    this.tell();
    this.redraw();
  }
  place(pair) { return pair && this.head.cellOf(pair); }
  onmethod(m) { this.setMethod(m); }
  setMethod(m) {
    this.method = m;
    this.methods?.(m);
    this.tell();
    this.redraw();
  }
  get kept() { return this.method < 0 ? null : keptOf(this.index, this.method); }

  // ---- drawing ----
  draw() {
    const canvas = this.canvas, context = canvas.getContext('2d');
    const image = context.createImageData(canvas.width, canvas.height);
    const ground = getComputedStyle(document.body).getPropertyValue('--ground').trim();
    const rgbGround = [1, 3, 5].map((i) => parseInt(ground.slice(i, i + 2), 16));
    paintCells(image, this.index, this.view, tableFrom(this.low), this.kept?.shares, rgbGround);
    context.putImageData(image, 0, 0);
    this.drawTicks();
    const at = this.place(this.cell);
    if (!at) return;
    const px = canvas.width / this.view.size, block = this.head.block, side = Math.max(block * px, 4);
    for (const [style, width] of [['#fff', 3.5], ['#d55e00', 2]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.strokeRect((at.c * block - this.view.x) * px, (at.r * block - this.view.y) * px, side, side);
    }
  }
  // Positions of tokens at steps of 1, 2 or 5 times a power of ten, at most six along each side.
  drawTicks() {
    const { x, y, size } = this.view, power = 10 ** Math.floor(Math.log10(Math.max(1, size / 6)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => size / s <= 6);
    for (const [place, from, side] of [[this.keyTicks, x, 'left'], [this.queryTicks, y, 'top']]) {
      place.textContent = '';
      for (let at = Math.max(0, Math.ceil(from / step) * step); at < Math.min(this.head.tokens, from + size); at += step)
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
  tell() {
    const out = this.readout, at = this.place(this.cell), kept = this.kept, method = this.head.methods[this.method];
    out.textContent = '';
    delete out.dataset.weight;
    delete out.dataset.kept;
    this.onpair?.(at ? this.cell : null);
    if (method && method.keys !== null)
      make(out, 'span', `${method.words}: ${percent(kept.all)} of the attention kept, ${number(method.keys)} keys per query; the rest is faded.\n`, 'soft');
    if (method?.note) make(out, 'span', method.note + '.\n', 'soft');
    if (!at) return make(out, 'span', 'Move over the map: weight, query and key of the cell. Drag to move, wheel, two fingers or + and \u2212 to zoom, 0 for all, arrows for the cell, click to hold it.', 'soft');
    const value = valueAt(this.index, at.r, at.c), block = this.head.block, queries = this.head.range(at.r);
    out.dataset.weight = value;
    make(out, 'b', weightWords(value));
    const what = block === 1 ? 'weight' : `${data.pooling === 'max' ? 'largest' : 'mean'} of ${block} \u00d7 ${block} weights`;
    if (!Number.isNaN(value)) make(out, 'span', ' ' + what);
    if (method && !Number.isNaN(value)) {
      const share = kept.shares[at.r * this.head.side + at.c], mass = kept.mass(queries);
      out.dataset.kept = share;
      const words = Number.isNaN(share) ? 'not known' : block === 1 ? (share ? 'kept' : 'dropped') : `${percent(share)} of its pairs kept`;
      make(out, 'span', `, ${words} by ${method.words}`, share > 0 ? 'kept' : 'dropped');
      if (!Number.isNaN(mass)) make(out, 'span', `, which keeps ${percent(mass)} of ${queries[1] - queries[0] > 1 ? 'these queries\u2019' : 'this query\u2019s'} attention`);
    }
    for (const [name, place] of [['query', queries], ['key', this.head.range(at.c)]]) {
      make(out, 'span', `\n${name} ${range(place)} `);
      make(out, 'span', tokensOf(this.head.trace, place), 'token');
    }
  }

  // ---- mouse, wheel, keys ----
  pairUnder(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = (p, length, from) => Math.floor(from + p / length * this.view.size);
    const pair = { query: at(event.clientY - box.top, box.height, this.view.y), key: at(event.clientX - box.left, box.width, this.view.x) };
    return this.place(pair) ? pair : null;
  }
  size(wanted) { return Math.max(4, Math.min(this.head.tokens * 1.05, wanted)); }
  zoom(factor, x, y) {  // x, y: what stays, as parts of the map
    const size = this.size(this.view.size * factor), view = this.view;
    this.view = { x: view.x + x * (view.size - size), y: view.y + y * (view.size - size), size };
    this.redraw();
  }
  hold(pair, held) {
    this.cell = pair;
    this.held = held;
    this.tell();
    this.redraw();
    this.onhold?.();
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
        const { tokens, block } = this.head, inside = (at) => Math.max(0, Math.min(tokens - 1, at));
        const pair = this.cell ?? { query: tokens - 1, key: 0 };
        this.hold({ query: inside(pair.query + step[0] * block), key: inside(pair.key + step[1] * block) }, true);
      } else if (event.key === '+' || event.key === '=') this.zoom(.7, .5, .5);
      else if (event.key === '-') this.zoom(1 / .7, .5, .5);
      else if (event.key === '0') { this.view = { ...this.home }; this.redraw(); }
      else if (event.key === 'Escape') { this.hold(null, false); canvas.blur(); }
      else return;
      event.preventDefault();
    };
  }
}

/** Buttons of the methods and of none; chosen(m) gets the place among them, -1 for none. Returns what presses one. */
function methodSwitch(parent, methods, first, chosen) {
  const group = make(parent, 'div', undefined, 'methods');
  group.setAttribute('role', 'group');
  group.setAttribute('aria-label', 'what a method keeps');
  const buttons = ['every key', ...methods.map((m) => m.words)].map((name, i) => {
    const button = make(group, 'button', name);
    button.onclick = () => chosen(i - 1);
    return button;
  });
  const press = (m) => buttons.forEach((b, i) => b.setAttribute('aria-pressed', i - 1 === m));
  press(first);
  return press;
}

/** All heads beside one map: a grid of small maps, ordered by what the heads do. */
class AtlasPanel {
  constructor(root, onchange) {
    this.onchange = onchange;
    root.classList.add('atlas-panel');
    const list = make(root, 'div', undefined, 'heads'), shownRoot = make(root, 'div', undefined, 'shown');
    const bar = make(list, 'div', undefined, 'bar'), label = make(bar, 'label', 'Heads by ');
    this.order = make(label, 'select', undefined, 'order');
    this.grid = make(list, 'div', undefined, 'atlas');
    this.panel = new MapPanel(shownRoot, 0, -1, onchange);
    this.buttons = data.heads.map((head, at) => {
      const button = document.createElement('button');
      button.className = 'head';
      button.dataset.index = at;
      const canvas = make(button, 'canvas');
      canvas.width = canvas.height = 52;
      make(button, 'span');
      button.onclick = () => { this.select(at); onchange(); };
      return button;
    });
    make(this.order, 'option', 'layer and head').value = '';
    for (const m of data.measures) make(this.order, 'option', m.label).value = m.name;
    this.order.onchange = () => this.arrange();
    this.arrange();
    this.panel.onlow = () => this.repaint();
    this.select(this.first());
    this.repaint();
  }
  // the head that retrieves most (where nothing repeats, that looks farthest back)
  first() {
    const by = data.measures.some((m) => m.name === 'retrieval') ? 'retrieval' : 'distance';
    return data.heads.reduce((best, head, at) => (head.numbers[by] ?? -1) > (data.heads[best].numbers[by] ?? -1) ? at : best, 0);
  }
  select(at) {
    this.head = at;
    this.buttons.forEach((b) => b.setAttribute('aria-pressed', Number(b.dataset.index) === at));
    this.panel.show(at);
  }
  arrange() {
    const by = this.order.value, value = (at) => data.heads[at].numbers[by] ?? -Infinity;
    const order = this.buttons.map((_, at) => at);
    if (by) order.sort((a, b) => value(b) - value(a) || a - b);
    this.grid.style.gridTemplateColumns = `repeat(${by ? 8 : data.columns}, 60px)`;
    this.grid.replaceChildren(...order.map((at) => this.buttons[at]));
    this.buttons.forEach((button, at) => {
      const { layer, head, numbers } = data.heads[at], x = numbers[by] ?? null;
      button.lastChild.textContent = `L${layer} H${head}` + (by ? ' ' + (x === null ? '\u2013' : Number(x.toPrecision(2))) : '');
    });
  }
  // Small maps are painted one at a time, as they stand in the grid, so that the page answers meanwhile.
  repaint() {
    const waiting = [...this.grid.children], table = tableFrom(this.panel.low);
    const next = () => {
      const button = waiting.shift();
      if (!button || table !== tableFrom(this.panel.low)) return;  // by now others are wanted
      const context = button.firstChild.getContext('2d'), image = context.createImageData(52, 52);
      paintCells(image, Number(button.dataset.index), this.panel.home, table, null, null);
      context.putImageData(image, 0, 0);
      setTimeout(next, 0);
    };
    next();
  }
  draw() { this.panel.draw(); }
}
