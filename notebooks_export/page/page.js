// What the page consists of: an atlas, or steps that unfold one by one (on paper all of them).
const views = new Map();  // by step, made when it first unfolds
let atlas = null;

/** Map and text of a step: what is under the pointer in one is shown in the other, under the same method. */
function unfold(section) {
  const at = Number(section.dataset.step), step = data.steps[at];
  if (views.has(at)) return views.get(at).map.draw();
  const root = (panel) => section.querySelector(`[data-panel=${panel}]`), method = step.method ?? -1;
  const map = new MapPanel(root('map'), step.head, method), text = new TextPanel(root('text'), step.head, method);
  let busy = false;
  const once = (work) => { if (busy) return; busy = true; work(); busy = false; };
  map.onpair = (pair) => once(() => text.point(pair?.query ?? null, map.held, pair?.key ?? null));
  text.onread = (pair, held) => once(() => map.hold(pair, held));
  map.onmethod = (m) => { map.setMethod(m); text.setMethod(m); };
  views.set(at, { map, text });
  text.point(step.query, true, step.key);
  text.scrollTo(step.query);
}
const steps = [...document.querySelectorAll('.step')];
for (const step of steps) step.ontoggle = () => { if (step.open) unfold(step); };

// The address of an atlas names its head and the held pair: what is needed to come back.
function address() {
  const { held, cell, head } = atlas.panel;
  const words = [`layer=${head.layer}`, `head=${head.head}`, ...held && cell ? [`query=${cell.query}`, `key=${cell.key}`] : []];
  // where pages may not change their address (file: in some browsers), it stays as it is
  try { history.replaceState(null, '', '#' + words.join('&')); } catch { /* no address */ }
}
for (const root of document.querySelectorAll('[data-panel=atlas]')) {
  const wanted = Object.fromEntries([...new URLSearchParams(location.hash.slice(1))].map(([name, text]) => [name, Number(text)]));
  atlas = new AtlasPanel(root, address);
  const at = data.heads.findIndex((one) => one.layer === wanted.layer && one.head === wanted.head);
  if (at >= 0) atlas.select(at);
  if (atlas.panel.place(wanted)) atlas.panel.hold({ query: wanted.query, key: wanted.key }, true);
  address();
}

// ---- ground, paper, size ------------------------------------------------------------------------------
const ground = document.getElementById('ground');
const redraw = () => { atlas?.draw(); for (const { map } of views.values()) map.draw(); };
const setGround = (name) => { document.documentElement.dataset.ground = name; redraw(); };
ground.onchange = () => setGround(ground.value);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
addEventListener('resize', redraw);
addEventListener('beforeprint', () => {  // paper is white and holds every step
  for (const step of steps) { step.open = true; unfold(step); }
  setGround('light');
});
addEventListener('afterprint', () => setGround(ground.value));
if (steps.length) unfold(steps[0]);
window.kvscopePage = { data, atlas, views };  // for tests and the curious
