// The text of a step: each word shaded by what the chosen method loses there; hovering or walking with
// the arrows lights up what a word reads, and strikes out what the method drops of it.
class TextPanel {
  constructor(root, step, story) {
    Object.assign(this, { root, step, story, method: step.methods.length ? 0 : -1 });
    this.trace = data.traces[step.trace];
    this.reads = data.reads[step.reads];
    this.query = null;
    this.held = false;
    const bar = make(root, 'div', undefined, 'bar');
    make(bar, 'b', `Text, read by layer ${this.reads.layer}, query head ${this.reads.head}`);
    if (step.methods.length) this.methods = methodSwitch(bar, step, (m) => { this.method = m; this.shade(); this.point(this.query); });
    this.legend = make(root, 'div', undefined, 'soft small');
    this.page = make(root, 'div', undefined, 'text');
    this.page.tabIndex = 0;
    this.page.setAttribute('role', 'group');
    this.page.setAttribute('aria-label', 'the text; arrows move from word to word and say what it reads');
    this.readout = make(root, 'div', undefined, 'readout');
    this.readout.setAttribute('aria-live', 'polite');
    this.build();
    this.shade();
    this.listen();
    this.point(step.query, step.query !== null);
  }

  /** The chosen method's place among the methods of the reads; -1 without one. */
  get m() { return this.method < 0 ? -1 : this.reads.methods.indexOf(this.step.methods[this.method]); }

  build() {
    const [begin, end] = this.step.words, places = this.step.marks.flatMap((m) => m.kind === 'words' ? [...m.words, ...(m.arrow ?? [])] : []);
    if (this.step.query !== null) places.push(this.step.query);
    const near = places.length ? [Math.min(...places) - 250, Math.max(...places) + 120] : [begin, begin + 600];
    const all = document.createDocumentFragment();
    this.words = [];
    const fold = this.step.fold ?? [-1, -1], folded = make(document.createElement('div'), 'span', undefined, 'folded');
    for (let i = begin; i < end; ++i) {
      if (i === fold[0]) this.addFold(all, folded, fold);
      const raw = this.trace.texts ? this.trace.texts[i] : ' ' + this.trace.ids[i];
      // a line break stays one, behind its word
      const word = make(i >= fold[0] && i < fold[1] ? folded : all, 'span', raw.split('\n').map(shown).join('\u21b5\n'), 'word');
      word.dataset.at = i;
      if (i < near[0] || i > near[1]) word.classList.add('far');  // left out in print
      this.words.push(word);
    }
    this.page.append(all);
    for (const mark of this.step.marks) {
      if (mark.kind !== 'words') continue;
      for (const [from, to] of [mark.words, mark.arrow ?? [0, 0]]) {
        for (let i = from; i < to; ++i) this.word(i)?.classList.add('marked', i === from ? 'first' : 'inner', i === to - 1 ? 'last' : 'inner');
      }
      if (mark.label && this.word(mark.words[0])) {
        const label = document.createElement('span');
        label.className = 'label';
        label.textContent = mark.label;
        this.word(mark.words[0]).before(label);
      }
    }
    this.arrows = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    this.arrows.setAttribute('class', 'arrows');
    this.arrows.setAttribute('aria-hidden', true);
    this.page.append(this.arrows);
  }
  addFold(all, folded, [from, to]) {
    folded.hidden = true;
    const button = make(all, 'button', `\u2026 ${to - from} words \u2026`, 'fold');
    button.setAttribute('aria-expanded', false);
    button.onclick = () => {
      folded.hidden = !folded.hidden;
      button.setAttribute('aria-expanded', !folded.hidden);
      this.drawArrows();
    };
    all.append(folded);
  }
  word(at) { return this.words[at - this.step.words[0]]; }

  drawArrows() {
    this.arrows.textContent = '';
    const page = this.page.getBoundingClientRect(), middle = (word) => {
      const box = word.getBoundingClientRect();
      return [box.left + box.width / 2 - page.left + this.page.scrollLeft, box.top - page.top + this.page.scrollTop, box.height];
    };
    this.arrows.style.height = '0px';
    this.arrows.style.height = this.page.scrollHeight + 'px';
    for (const mark of this.step.marks) {
      const from = mark.arrow && this.word(mark.words[0]), to = mark.arrow && this.word(mark.arrow[0]);
      if (!from || !to) continue;
      const [x0, y0, h0] = middle(from), [x1, y1, h1] = middle(to), down = y1 > y0;
      const start = down ? y0 + h0 : y0, end = down ? y1 - 2 : y1 + h1 + 2, bend = (start + end) / 2;
      const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
      const tip = down ? -9 : 9;
      path.setAttribute('d', `M${x0} ${start} C${x0} ${bend} ${x1} ${bend} ${x1} ${end} M${x1 - 6} ${end + tip} L${x1} ${end} L${x1 + 6} ${end + tip}`);
      this.arrows.append(path);
    }
  }

  /** The background of every word: what the method loses there. */
  shade() {
    const m = this.m, reads = readsOf(this.step.reads);
    let n = 0;
    this.words.forEach((word, i) => {
      const lost = m < 0 ? NaN : 1 - reads.mass(this.step.words[0] + i, m);
      n += !Number.isNaN(lost);
      word.style.setProperty('--lost', Number.isNaN(lost) ? 0 : Math.min(1, lost).toFixed(3));
    });
    const method = m < 0 ? null : data.methods[this.reads.methods[m]];
    this.legend.textContent = !method ? 'Hover a word: what it reads lights up.'
      : n ? `Shaded by the attention that ${method.words} loses at a word. Hover a word: what it reads lights up; a line is under what is kept for its score, dots under what is kept by rule (the first words, the latest ones), and what is dropped is struck out.` : '';
    if (method?.note) this.legend.textContent += ' ' + method.note + '.';
  }

  /** Shows what a word reads; key: one of those, or null. */
  point(query, held = this.held, key = null) {
    for (const word of this.lit ?? []) {
      word.classList.remove('query', 'read', 'dropped', 'ruled', 'scored', 'key');
      word.style.removeProperty('--read');
    }
    this.lit = [];
    this.query = query;
    this.held = held;
    const out = this.readout, reads = readsOf(this.step.reads), m = this.m;
    out.textContent = '';
    for (const name of ['weight', 'mass', 'key']) delete out.dataset[name];
    if (query === null) return make(out, 'span', 'Hover a word or press the arrows; click to hold it.', 'soft');
    const light = (at, ...kinds) => {
      const word = this.word(at);
      if (!word) return null;
      word.classList.add(...kinds);
      this.lit.push(word);
      return word;
    };
    // what the method does with a key: a class, and words
    const endOf = (one) => !(one.kept >> m & 1) ? ['dropped', 'dropped'] : one.ruled >> m & 1 ? ['ruled', 'kept by rule'] : ['scored', 'kept by score'];
    const mass = m < 0 ? NaN : reads.mass(query, m);
    const list = reads.of(query), top = list.length ? list[0].weight : 1;
    for (const one of list) {
      const word = light(one.key, 'read', ...(m < 0 || Number.isNaN(mass) ? [] : [endOf(one)[0]]));
      word?.style.setProperty('--read', (.15 + .85 * Math.sqrt(one.weight / top)).toFixed(3));
    }
    light(query, 'query');
    if (key !== null) light(key, 'key');
    make(out, 'span', `Word ${query} `);
    make(out, 'span', tokensOf(this.step.trace, [query, query + 1]), 'token');
    if (!list.length) return make(out, 'span', '\nWhat it reads is not in this page.', 'soft');
    const sum = list.reduce((s, one) => s + one.weight, 0);
    make(out, 'span', ` reads ${list.length} words with ${percent(sum)} of its attention`);
    if (!Number.isNaN(mass)) {
      out.dataset.mass = mass;
      make(out, 'span', `; ${data.methods[this.reads.methods[m]].words} keeps ${percent(mass)}`);
    }
    const told = key === null ? list.slice(0, 4) : list.filter((one) => one.key === key);
    if (key !== null && !told.length) make(out, 'span', `\n${key} ${key > query ? 'comes after it' : `less than ${number(list[list.length - 1].weight)}`} `);
    for (const one of told) {
      if (one === told[0]) { out.dataset.weight = one.weight; out.dataset.key = one.key; }
      make(out, 'span', `\n${weightWords(one.weight)} to ${one.key} `);
      make(out, 'span', tokensOf(this.step.trace, [one.key, one.key + 1]), 'token');
      if (m >= 0 && !Number.isNaN(mass)) make(out, 'span', ' ' + endOf(one)[1], endOf(one)[0]);
    }
    this.onread?.({ query, key: key ?? list[0].key });
  }
  // to a word of the page, without moving the window
  scrollTo(at) {
    const word = this.word(at);
    if (word) this.page.scrollTop = word.offsetTop - this.page.clientHeight / 2;
  }

  listen() {
    const under = (event) => event.target.dataset?.at === undefined ? null : Number(event.target.dataset.at);
    this.page.onpointermove = (event) => {
      const at = under(event);
      if (at === null) return;
      if (!this.held) this.point(at, false);
      else this.point(this.query, true, at);
    };
    this.page.onpointerleave = () => { if (!this.held) this.point(null, false); };
    this.page.onclick = (event) => {
      const at = under(event);
      if (at === null) return;
      this.point(at, !(this.held && at === this.query));
      this.story.address();
    };
    this.page.onkeydown = (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10 }[event.key];
      if (event.key === 'Escape') { this.point(null, false); this.page.blur(); }
      else if (by) {
        const [begin, end] = this.step.words, at = (this.query ?? begin) + (this.query === null ? 0 : by);
        this.point(Math.max(begin, Math.min(end - 1, at)), true);
        this.scrollTo(this.query);
        this.story.address();
      } else return;
      event.preventDefault();
      event.stopPropagation();
    };
  }

  draw() {
    this.drawArrows();
    const first = this.step.query ?? this.step.marks.find((m) => m.kind === 'words')?.words[0];
    if (first !== undefined && !this.scrolled) this.scrollTo(first);
    this.scrolled = true;
  }
}

/** A drawing whose marks say their numbers when the pointer is near. */
class FigurePanel {
  constructor(root) {
    const figure = JSON.parse(root.dataset.marks), drawing = root.querySelector('.drawing');
    const dot = make(drawing, 'span', undefined, 'dot'), readout = make(root, 'div', undefined, 'readout');
    dot.hidden = true;
    readout.setAttribute('aria-live', 'polite');
    const say = (mark) => {
      dot.hidden = !mark;
      readout.textContent = mark ? mark[2] : figure.marks.length ? 'Hover the drawing, or press the arrows on it: the numbers of the nearest mark.' : '';
      readout.className = mark ? 'readout' : 'readout soft';
      if (!mark) return;
      dot.style.left = mark[0] / figure.width * 100 + '%';
      dot.style.top = mark[1] / figure.height * 100 + '%';
    };
    say(null);
    let chosen = -1;
    drawing.tabIndex = 0;
    drawing.setAttribute('role', 'group');
    drawing.setAttribute('aria-label', 'figure; arrows move from mark to mark');
    drawing.onpointermove = (event) => {
      const box = drawing.getBoundingClientRect(), scale = figure.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      const far = (mark) => Math.hypot(mark[0] - x, mark[1] - y);
      chosen = figure.marks.reduce((best, mark, i) => best < 0 || far(mark) < far(figure.marks[best]) ? i : best, -1);
      say(chosen >= 0 && far(figure.marks[chosen]) < 22 ? figure.marks[chosen] : null);
    };
    drawing.onpointerleave = () => say(null);
    drawing.onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (event.key === 'Escape') return drawing.blur();
      if (!by || !figure.marks.length) return;
      chosen = (chosen + by + figure.marks.length) % figure.marks.length;
      say(figure.marks[chosen]);
      event.preventDefault();
      event.stopPropagation();
    };
  }
  draw() {}
}
