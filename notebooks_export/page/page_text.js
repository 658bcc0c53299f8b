// The text of a head: each word shaded by what the chosen method loses there; hovering or walking with
// the arrows lights up what a word reads, and strikes out what the method drops of it.
class TextPanel {
  constructor(root, index, method) {
    Object.assign(this, { root, index, method, head: data.heads[index], query: null, key: null, held: false, lit: [] });
    const bar = make(root, 'div', undefined, 'bar');
    make(bar, 'b', `Text, read by layer ${this.head.layer}, query head ${this.head.head}`);
    this.legend = make(root, 'div', undefined, 'soft small');
    this.page = make(root, 'div', undefined, 'text');
    this.page.tabIndex = 0;
    this.page.setAttribute('role', 'group');
    this.page.setAttribute('aria-label', 'the text; arrows move from word to word and say what it reads');
    this.readout = make(root, 'div', undefined, 'readout');
    this.readout.setAttribute('aria-live', 'polite');
    const { texts, ids } = data.traces[this.head.trace];
    this.words = Array.from({ length: this.head.tokens }, (_, i) => {
      // a line break stays one, behind its word
      const word = make(this.page, 'span', (texts ? texts[i] : ' ' + ids[i]).split('\n').map(shown).join('\u21b5\n'), 'word');
      word.dataset.at = i;
      return word;
    });
    this.listen();
    this.setMethod(method);
  }

  /** The background of every word: what the method loses there. */
  setMethod(m) {
    this.method = m;
    const method = this.head.methods[m], kept = method && keptOf(this.index, m);
    this.words.forEach((word, i) => {
      const lost = method ? 1 - kept.mass([i, i + 1]) : 0;
      word.style.setProperty('--lost', Number.isNaN(lost) ? 0 : lost.toFixed(3));
    });
    this.legend.textContent = !method ? 'Hover a word: what it reads lights up.'
      : method.keys === null ? method.note + '.'
        : `Shaded by the attention that ${method.words} loses at a word. Hover a word: what it reads lights up; a line is under what is kept, and what is dropped is struck out.`;
    this.point(this.query, this.held, this.key);
  }

  /** Shows what a word reads; key: one of those, or null. */
  point(query, held, key = null) {
    for (const word of this.lit) {
      word.classList.remove('query', 'read', 'dropped', 'kept', 'key');
      word.style.removeProperty('--read');
    }
    this.lit = [];
    Object.assign(this, { query, held, key });
    const out = this.readout, method = this.head.methods[this.method];
    out.textContent = '';
    for (const name of ['weight', 'mass', 'key']) delete out.dataset[name];
    if (query === null) return make(out, 'span', 'Hover a word or press the arrows; click to hold it.', 'soft');
    const light = (at, ...kinds) => {
      this.words[at].classList.add(...kinds);
      this.lit.push(this.words[at]);
    };
    const mass = method ? keptOf(this.index, this.method).mass([query, query + 1]) : NaN;
    const list = heaviestOf(this.index, query);
    const endOf = (one) => Number.isNaN(mass) ? [] : [one.kept >> this.method & 1 ? 'kept' : 'dropped'];
    for (const one of list) {
      light(one.key, 'read', ...endOf(one));
      this.words[one.key].style.setProperty('--read', (.15 + .85 * Math.sqrt(one.weight / list[0].weight)).toFixed(3));
    }
    light(query, 'query');
    if (key !== null) light(key, 'key');
    const token = (at) => make(out, 'span', tokensOf(this.head.trace, [at, at + 1]), 'token');
    make(out, 'span', `Word ${query} `);
    token(query);
    make(out, 'span', ` reads ${list.length} words with ${percent(list.reduce((sum, one) => sum + one.weight, 0))} of its attention`);
    if (!Number.isNaN(mass)) {
      out.dataset.mass = mass;
      make(out, 'span', `; ${method.words} keeps ${percent(mass)}`);
    }
    const told = key === null ? list.slice(0, 4) : list.filter((one) => one.key === key);
    if (!told.length) make(out, 'span', `\n${key} ${key > query ? 'comes after it' : `less than ${number(list[list.length - 1].weight)}`} `);
    for (const one of told) {
      if (one === told[0]) Object.assign(out.dataset, { weight: one.weight, key: one.key });
      make(out, 'span', `\n${weightWords(one.weight)} to ${one.key} `);
      token(one.key);
      for (const end of endOf(one)) make(out, 'span', ' ' + end, end);
    }
    this.onread?.({ query, key: key ?? list[0].key }, held);
  }
  // to a word of the page, without moving the window
  scrollTo(at) { this.page.scrollTop = this.words[at].offsetTop - this.page.clientHeight / 2; }

  listen() {
    const under = (event) => event.target.dataset?.at === undefined ? null : Number(event.target.dataset.at);
    this.page.onpointermove = (event) => {
      const at = under(event);
      if (at === null) return;
      if (this.held) this.point(this.query, true, at);
      else this.point(at, false);
    };
    this.page.onpointerleave = () => { if (!this.held) this.point(null, false); };
    this.page.onclick = (event) => {
      const at = under(event);
      if (at !== null) this.point(at, !(this.held && at === this.query));
    };
    this.page.onkeydown = (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10 }[event.key];
      if (event.key === 'Escape') { this.point(null, false); this.page.blur(); }
      else if (by) {
        this.point(Math.max(0, Math.min(this.words.length - 1, this.query === null ? 0 : this.query + by)), true);
        this.scrollTo(this.query);
      } else return;
      event.preventDefault();
    };
  }
}
