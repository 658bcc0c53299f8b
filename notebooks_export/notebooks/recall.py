# kvscope notebook recall: cells about a sweep written as HDF5.

# %% [markdown] title
# # What selectors keep, by budget and by bytes
#
# Three numbers are called recall elsewhere; here they are apart: the **attention kept** (probability mass on the kept keys), the
# **top-10 recall** (share of the ten heaviest keys that were kept), and the **relative output error**. The replay is open loop: every layer
# sees the dense model's tensors, so errors do not compound.

# %% parameters tags=parameters
RESULTS = []  # of sweep --out X.h5; relative to this notebook
TRACES = []  # the recorded traces
EXPECTED = {}  # what these files were when the notebook was written
WRITTEN_BY = ""

# %% table
result = results["sweep"]
summary, config = summary_of(result), config_of(result)
columns = rows_of_results["sweep"]
# Whole layers, without those that a sliding window keeps dense whatever the selector.
layer_rows = np.isnan(columns["q_head"]) & (columns["window"] == 0)
assert layer_rows.any(), "the sweep has no layer with full attention"
# Some methods leave their first layers dense; only layers that all of them thin are compared, if there are any.
thinned = layer_rows & (columns["selector"] != "full")
left_dense = np.unique(columns["layer"][thinned & (columns["dense"] != 0)])
if (thinned & ~np.isin(columns["layer"], left_dense)).any():
    layer_rows &= ~np.isin(columns["layer"], left_dense)
    if len(left_dense):
        print("left out, because a method keeps them dense: layers", " ".join(f"{x:g}" for x in left_dense))


def series(selector, kind, x, y):
    """Mean over layers (and traces) of columns x and y at each budget."""
    chosen = layer_rows & (columns["selector"] == selector) & (columns["budget_kind"] == kind)
    budgets = np.unique(columns["budget"][chosen])
    budgets = budgets[np.isfinite(budgets)] if np.isfinite(budgets).any() else [np.nan]
    points = []
    for budget in budgets:
        here = chosen & (np.isnan(columns["budget"]) if np.isnan(budget) else columns["budget"] == budget)
        points.append([np.nanmean(columns[name][here]) if np.isfinite(columns[name][here]).any() else np.nan for name in (x,) + y])
    return np.array(points).T


lines = []  # selectors in the sweep's order, once per kind of budget
for selector, kind in zip(columns["selector"], columns["budget_kind"]):
    if (selector, kind) not in lines:
        lines.append((selector, kind))


def draw(panel, x, y, band=(), x_scale=1.0):
    for (selector, kind), look in zip(lines, looks_of([selector for selector, kind in lines])):
        points = series(selector, kind, x, (y,) + band)
        if selector == "full":
            panel.axhline(points[1][0], color="#999999", lw=1, ls=":", label="full")
            continue
        order = np.argsort(points[0])
        points[0] *= x_scale
        name = selector if kind in ("tokens", "none") else f"{selector} ({kind})"
        panel.plot(points[0][order], points[1][order], ms=4, lw=1.2, label=name, **look)
        if band:
            panel.fill_between(points[0][order], points[2][order], points[3][order], color=look["color"], alpha=0.15, lw=0)


n_layers = len(np.unique(columns["layer"][layer_rows]))
n_calls = int(np.nanmax(columns["calls"][layer_rows]))

# %% budget-figure
figure, panels = plt.subplots(1, 3, figsize=(10.5, 3.2))
draw(panels[0], "kept", "mass_mean", ("mass_low", "mass_high"))
draw(panels[1], "kept", "recall10")
draw(panels[2], "kept", "output_error_rel")
for panel, label in zip(panels, ("attention kept", "top-10 recall", "relative output error")):
    panel.set(xlabel="keys kept per row (measured)", ylabel=label, xscale="log")
    plain_numbers(panel.xaxis)
handles, labels = panels[0].get_legend_handles_labels()
figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=min(6, len(labels)), fontsize=8)
figure.suptitle(f"{config['phase']}: mean over {n_layers} layers and {n_calls} calls; band: 95 % bootstrap over calls, averaged over layers",
                fontsize=9)
plt.show()

# %% bytes-figure
figure, panel = plt.subplots(figsize=(5.6, 3.4))
draw(panel, "bytes", "mass_mean", ("mass_low", "mass_high"), x_scale=1 / 1024)
panel.set(xlabel="KiB read per layer and call (scoring, keys and values)", ylabel="attention kept", xscale="log")
plain_numbers(panel.xaxis)
panel.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
plt.show()

# %% layer-figure
# Where a selector loses attention: layer by head, at the middle one of its budgets.
pairs = summary["pairs"]
worst = [p for p, name in enumerate(pairs) if not name.startswith(("full", "oracle"))] or list(range(len(pairs)))
figure, panels = plt.subplots(1, min(3, len(worst)), figsize=(3.5 * min(3, len(worst)), 3.0), squeeze=False)
chosen = {}
for p in worst:
    chosen.setdefault(pairs[p].split(" ")[0], []).append(p)
for panel, p in zip(panels[0], [own[len(own) // 2] for own in chosen.values()][:3]):
    mass = known_mean(result[f"t0/p{p}/mass"][()], axis=2)
    heat_map(panel, mass, list(result["t0/q_head"][()]), list(result["t0/layer"][()]), "attention kept").set_clim(0, 1)
    panel.set(title=pairs[p], xlabel="query head", ylabel="layer")
for panel in panels[0][len(chosen):]:
    panel.set_visible(False)
plt.show()

# %% table-check
# The table's rows are means of the unaggregated arrays.
means, stored = [], []
for t, name in enumerate(summary["traces"]):
    for p, pair in enumerate(pairs):
        grid = result[f"t{t}/p{p}/mass"][()].astype(np.float64)
        # rows come trace by trace, pair by pair, layer by layer: a layer's row, then its heads
        n_heads = grid.shape[1]
        first = (t * len(pairs) + p) * grid.shape[0] * (n_heads + 1)
        own = slice(first, first + grid.shape[0] * (n_heads + 1), n_heads + 1)
        if t > 0 and result["t0/layer"].shape != result[f"t{t}/layer"].shape:
            continue  # traces of different shape: rows are not where this formula looks
        assert np.all(columns["trace"][own] == name) and np.all(np.isnan(columns["q_head"][own]))
        means.extend(grid.mean(axis=(1, 2)))
        stored.extend(columns["mass_mean"][own])
check_close("mean attention kept of every pair and layer", means, stored, rtol=1e-5)

# %% [markdown] recompute-text
# ## One number again, from the trace
#
# Methods whose choice needs no search are replayed here: `streamingllm` (sinks and the latest keys), `oracle-topk` (the $k$ heaviest keys) and
# `full`. The mean attention kept over the measured rows of one call and head must equal the sweep's.

# %% recompute
trace = traces[0] if traces else None


def kept_mass(selector, budget, weights):
    if selector == "full":
        return 1.0
    if selector == "oracle-topk":
        return np.sort(weights)[::-1][:budget].sum()
    n_sink = min(4, budget, len(weights))
    recent = max(n_sink, len(weights) - (budget - n_sink))
    return weights[:n_sink].sum() + weights[recent:].sum()


def measured_rows(begin, end):
    """The rows of a call that the sweep measured: evenly spaced, the last one among them."""
    n, wanted = end - begin, config["rows_per_chunk"]
    count = n if wanted is None else min(wanted, n)
    return [end - 1] if count == 1 else [begin + i * (n - 1) // (count - 1) for i in range(count)]


if trace is None:
    print("no trace: skipped")
else:
    begins, ends = result["t0/call_begin"][()], result["t0/call_end"][()]
    calls = [c for c in range(len(begins)) if trace.has_row(begins[c]) and trace.has_row(ends[c] - 1)]
    layer, q_head = int(result["t0/layer"][-1]), int(result["t0/q_head"][0])
    replayed = 0
    for p, pair in enumerate(pairs):
        selector, _, budget = pair.partition(" ")
        if selector not in ("streamingllm", "oracle-topk", "full") or not calls or trace.windows[layer] > 0:
            continue
        if (config["dense_layers"] or 0) > layer:
            continue  # left dense by order
        if budget and not budget.startswith("tokens="):
            continue
        c = calls[-1]
        keys = int(float(budget.partition("=")[2] or 0))
        ours = [kept_mass(selector, keys, trace.attention(layer, q_head, pos)[1]) for pos in measured_rows(begins[c], ends[c])]
        check_close(f"{pair}: layer {layer}, head {q_head}, call {c}", np.mean(ours), result[f"t0/p{p}/mass"][-1, 0, c], rtol=1e-5)
        replayed += 1
    print(replayed, "pairs replayed from q and k")

assert n_checked > 0
