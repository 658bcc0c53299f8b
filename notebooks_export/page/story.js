// The steps: one is shown at a time, on paper all of them. Arrows, Home, End and the number keys go
// through them; the address names the step, its head and the held pair.
const sections = [...document.querySelectorAll('.step')];
const story = {
  at: 0,
  views: sections.map(() => null),

  /** The panels of a step, made when it is first shown. */
  view(i) {
    if (this.views[i]) return this.views[i];
    const step = data.steps[i], view = this.views[i] = { map: null, text: null, atlas: null, figure: null, all: [] };
    for (const root of sections[i].querySelectorAll('.panel')) {
      const Kind = { map: MapPanel, text: TextPanel, atlas: AtlasPanel, figure: FigurePanel }[root.dataset.panel];
      view.all.push(view[root.dataset.panel] = new Kind(root, step, this));
    }
    const { map, text } = view;
    if (map && text) this.link(map, text);
    return view;
  },
  // What is under the pointer in one is shown in the other.
  link(map, text) {
    let busy = false;
    const once = (work) => { if (busy) return; busy = true; work(); busy = false; };
    map.onpair = (pair) => once(() => { if (pair && text.word(pair.query)) text.point(pair.query, map.held, pair.key); });
    text.onread = (pair) => once(() => { map.cell = pair; map.held = text.held; map.tell(); map.redraw(); });
    const follow = (from, to) => {
      if (!from.methods) return;
      for (const [i, button] of [...from.root.querySelectorAll('.methods button')].entries())
        button.addEventListener('click', () => { const m = i - 1; to.method = m; to.methods.set(m); to.shade?.(); to.tell?.(); to.redraw?.(); to.point?.(to.query); });
    };
    follow(map, text);
    follow(text, map);
  },

  show(i, focus = false) {
    i = Math.max(0, Math.min(sections.length - 1, i));
    const had = sections[this.at].contains(document.activeElement);
    sections.forEach((section, at) => { section.hidden = at !== i; });
    this.at = i;
    const step = data.steps[i];
    for (const panel of this.view(i).all) panel.draw();
    buttons.forEach((button, at) => {
      if (at === i) button.setAttribute('aria-current', 'step');
      else button.removeAttribute('aria-current');
    });
    if (sections.length > 1) {
      back.disabled = i === 0;
      on.disabled = i === sections.length - 1;
      document.getElementById('said').textContent = `Step ${i + 1} of ${sections.length}: ${step.title}. ${sections[i].querySelector('.note').innerText.split('\n').slice(2).join(' ')}`;
      document.title = `${step.title} \u00b7 ${document.querySelector('h1').textContent}`;
    }
    if (had || focus) sections[i].querySelector('h2').focus({ preventScroll: true });
    this.address();
  },

  /** #step=2&layer=5&head=6&query=40&key=3: what is needed to come back. */
  address() {
    const view = this.views[this.at], panel = view.atlas?.panel ?? view.map, words = [];
    if (sections.length > 1) words.push(`step=${this.at + 1}`);
    if (view.atlas) words.push(`layer=${panel.map.layer}`, `head=${panel.map.head}`);
    if (panel?.held && panel.cell) words.push(`query=${panel.cell.query}`, `key=${panel.cell.key}`);
    else if (view.text?.held && view.text.query !== null) words.push(`query=${view.text.query}`);
    // where pages may not change their address (file: in some browsers), it stays as it is
    try { history.replaceState(null, '', '#' + words.join('&')); } catch { /* no address */ }
  },
  open() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    this.show(Math.max(0, (Number(wanted.get('step')) || 1) - 1));
    const view = this.views[this.at], at = view.atlas ? view.atlas.step.maps.findIndex((index) =>
      data.maps[index].layer === Number(wanted.get('layer')) && data.maps[index].head === Number(wanted.get('head'))) : -1;
    if (wanted.has('layer') && at >= 0) view.atlas.select(at);
    const panel = view.atlas?.panel ?? view.map, query = Number(wanted.get('query')), key = Number(wanted.get('key'));
    if (wanted.has('query') && wanted.has('key') && panel?.place({ query, key })) panel.hold({ query, key }, true);
    else if (wanted.has('query') && view.text?.word(query)) view.text.point(query, true);
    else this.address();
  },
};

// ---- going through the steps -------------------------------------------------------------------------
const nav = document.getElementById('steps');
const step = (name, label, by) => {
  const button = make(nav, 'button', name, 'turn');
  button.setAttribute('aria-label', label);
  button.onclick = () => story.show(story.at + by);
  return button;
};
const back = step('\u2039', 'previous step', -1);
const list = make(nav, 'ol');
const buttons = data.steps.map((one, i) => {
  const button = make(make(list, 'li'), 'button', String(i + 1));
  make(button, 'span', ' ' + one.title, 'step-title');
  button.title = one.title;
  button.onclick = () => story.show(i);
  return button;
});
const on = step('\u203a', 'next step', 1);
document.addEventListener('keydown', (event) => {
  if (sections.length < 2 || event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const to = { ArrowRight: story.at + 1, PageDown: story.at + 1, ArrowLeft: story.at - 1, PageUp: story.at - 1, Home: 0, End: sections.length - 1 }[event.key]
    ?? (/^[1-9]$/.test(event.key) ? Number(event.key) - 1 : undefined);
  if (to === undefined || to >= sections.length) return;
  story.show(to);
  event.preventDefault();
});

// ---- ground, paper, size ------------------------------------------------------------------------------
const ground = document.getElementById('ground');
const redraw = () => story.views[story.at].all.forEach((panel) => panel.draw());
ground.onchange = () => {
  document.documentElement.dataset.ground = ground.value;
  redraw();
};
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
addEventListener('resize', redraw);
addEventListener('beforeprint', () => {  // paper is white and holds every step
  document.documentElement.dataset.ground = 'light';
  sections.forEach((section, i) => {
    section.hidden = false;
    story.view(i).all.forEach((panel) => panel.draw());
  });
});
addEventListener('afterprint', () => {
  document.documentElement.dataset.ground = ground.value;
  story.show(story.at);
});

story.open();
window.kvscopePage = { story, data, valueAt, keptOf, readsOf };  // for tests and the curious
