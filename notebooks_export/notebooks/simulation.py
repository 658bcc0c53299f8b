# kvscope notebook simulation: cells about results of simulate perplexity, passkey, needle, ruler and speculative.

# %% [markdown] title
# # A selector inside the model
#
# Here the loop is closed: layer $l+1$ sees what the sparse layer $l$ made, so errors compound, unlike in a replay of recorded tensors. Each
# figure belongs to one task and is skipped if its result was not given. Full attention is the reference, not a competitor.

# %% parameters tags=parameters
RESULTS = []  # of simulate; relative to this notebook
TRACES = []  # none: simulations run the model themselves
EXPECTED = {}  # what these files were when the notebook was written
WRITTEN_BY = ""

# %% tables
tables = {task_of(kind): table for kind, table in rows_of_results.items()}
for task, table in tables.items():
    print(f"{task}: {len(table['selector'])} rows, model {table['model'][0]}")


def methods_of(table):
    """Rows by selector and kind of budget, in the table's order."""
    found = {}
    for i, key in enumerate(zip(table["selector"], table["budget_kind"])):
        found.setdefault(key, []).append(i)
    return found


def label_of(table, i):
    budget = table["budget"][i]
    return table["selector"][i] if np.isnan(budget) else f"{table['selector'][i]} {table['budget_kind'][i]}={budget:g}"


# %% perplexity-figure
perplexity = tables.get("perplexity")
if perplexity is None:
    print("no result of simulate perplexity: skipped")
else:
    file = results.get("simulate-perplexity")
    has_curves = file is not None and "curve/log_perplexity" in file
    figure, panels = plt.subplots(1, 2 if has_curves else 1, figsize=(9.5 if has_curves else 5.0, 3.4), squeeze=False)
    methods = methods_of(perplexity)
    looks = looks_of([selector for selector, kind in methods])
    for ((selector, kind), rows), style in zip(methods.items(), looks):
        rows = sorted(rows, key=lambda i: perplexity["kv_reduction"][i])
        name = selector if kind in ("none", "tokens") else f"{selector} ({kind})"
        panels[0][0].plot(perplexity["kv_reduction"][rows], perplexity["perplexity"][rows], ms=5, label=name, **style)
    panels[0][0].set(xlabel="KV reduction", ylabel="perplexity")
    panels[0][0].xaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1))
    panels[0][0].legend(fontsize=8)
    if has_curves:
        position, curves = file["curve/position"][()], file["curve/log_perplexity"][()]
        for i, (curve, look) in enumerate(zip(curves, looks_of(list(perplexity["selector"])))):
            panels[0][1].plot(position, curve, lw=1.1, color=look["color"], ls=look["ls"], label=label_of(perplexity, i))
        panels[0][1].set(xlabel="position", ylabel="mean loss up to here (nat)", title="cumulative log-perplexity")
        panels[0][1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    plt.show()

# %% perplexity-check
# exp of the mean loss is the perplexity; the increase is relative to full attention.
if perplexity is not None:
    check_close("perplexity from the mean loss", np.exp(perplexity["log_perplexity"]), perplexity["perplexity"], rtol=1e-9)
    if has_curves:
        check_close("perplexity from the curves' ends", np.exp(curves[:, -1]), perplexity["perplexity"], rtol=1e-9)
    full = np.flatnonzero(perplexity["selector"] == "full")
    if len(full):
        check_close("relative increase", perplexity["perplexity"] / perplexity["perplexity"][full[0]] - 1, perplexity["relative_increase"])

# %% retrieval-figure
retrieval = {task: table for task, table in tables.items() if "accuracy" in table}
for task, table in retrieval.items():
    lengths = np.unique(table["length"])
    n_kinds = len(set(table["kind"]))
    title = task if n_kinds == 1 else f"{task}: mean over {n_kinds} kinds of prompts"
    figure, panel = plt.subplots(figsize=(6.6, 3.2))
    bars = []
    for i in range(len(table["selector"])):
        if label_of(table, i) not in bars:
            bars.append(label_of(table, i))
    width = 0.85 / len(bars)
    looks = looks_of([name.split(" ")[0] for name in bars])
    for n, name in enumerate(bars):
        own = np.array([i for i in range(len(table["selector"])) if label_of(table, i) == name])
        means = [table["accuracy"][own[table["length"][own] == length]].mean() if np.any(table["length"][own] == length) else np.nan
                 for length in lengths]
        at = np.arange(len(lengths)) + (n - (len(bars) - 1) / 2) * width
        panel.bar(at, means, width * 0.92, label=name, color=looks[n]["color"])
        for x, length in zip(at, lengths):
            rows = own[table["length"][own] == length]
            if len(rows) == 1 and "accuracy_low" in table:  # of a mean over kinds or depths the result has no interval
                low, high = table["accuracy_low"][rows[0]], table["accuracy_high"][rows[0]]
                panel.plot([x, x], [low, high], color="black", linewidth=0.8)
    panel.set_xticks(np.arange(len(lengths)), [f"{length:g}" for length in lengths])
    panel.set(xlabel="length of the prompt in tokens", ylabel="accuracy", ylim=(0, 1.02), title=title)
    panel.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    plt.show()

# %% grid-figure
# Depth by length, one map per method.
for task, table in retrieval.items():
    file = results.get(f"simulate-{task}")
    if file is None or "grid/depth" not in file:
        continue
    depths, lengths = file["grid/depth"][()], file["grid/length"][()]
    kinds = [name for name in file["grid"] if name not in ("pair", "length", "depth")]
    names = config_of(file).get("pairs") or list(dict.fromkeys(label_of(table, i) for i in range(len(table["selector"]))))
    for kind in kinds:
        grid = file[f"grid/{kind}"][()]
        shown = range(min(4, len(grid)))
        figure, panels = plt.subplots(1, len(shown), figsize=(2.9 * len(shown) + 0.6, 2.8), squeeze=False)
        for panel, p in zip(panels[0], shown):
            heat_map(panel, grid[p].T, list(lengths), [f"{depth:.0%}" for depth in depths], "accuracy", cmap="cividis").set_clim(0, 1)
            panel.set(xlabel="length", ylabel="depth of the fact", title=names[p] if p < len(names) else f"method {p}")
            panel.invert_yaxis()  # the beginning of the prompt is above, as in kvscope figure needle
        plt.show()

# %% retrieval-check
# The table's accuracies are cells of the grid, or means over its depths (results written as .h5 hold it).
for task, table in retrieval.items():
    file = results.get(f"simulate-{task}")
    n_rows, by_depth = len(table["selector"]), "depth" in table
    if file is None or "grid/depth" not in file:
        # No grid behind the rows (CSV): one prompt is right or wrong, so accuracies are whole counts over prompts.
        single = np.isin(table["kind"], ("passkey", "multi_key"))
        counts = np.round(table["accuracy"][single] * table["prompts"][single])
        check_close(f"{task}: accuracy as a count over prompts", counts / table["prompts"][single], table["accuracy"][single], rtol=1e-9)
        continue
    depths, lengths = list(file["grid/depth"][()]), list(file["grid/length"][()])
    ours = []
    for i in range(n_rows):
        # Rows of the same cell of the grid come in the order of its methods.
        same = (table["kind"] == table["kind"][i]) & (table["length"] == table["length"][i])
        if by_depth:
            same &= table["depth"] == table["depth"][i]
        p = int(np.flatnonzero(np.flatnonzero(same) == i)[0])
        cells = file[f"grid/{table['kind'][i]}"][p, lengths.index(table["length"][i])]
        ours.append(cells[depths.index(table["depth"][i])] if by_depth else cells.mean())
    check_close(f"{task}: accuracy from the grid of lengths and depths", ours, table["accuracy"], rtol=1e-9)

# %% speculative-figure
speculative = tables.get("speculative")
if speculative is None:
    print("no result of simulate speculative: skipped")
else:
    labels = [label_of(speculative, i) + ("" if np.isnan(speculative["gamma"][i]) else f", gamma {speculative['gamma'][i]:g}")
              for i in range(len(speculative["selector"]))]
    at = np.arange(len(labels))
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 0.5 * len(labels) + 1.6), sharey=True)
    panels[0].barh(at, speculative["tokens_per_pass"], color=COLORS[0])
    panels[0].set(xlabel="tokens per pass of the verifier")
    panels[0].set_yticks(at, labels)
    panels[0].invert_yaxis()
    left = np.zeros(len(labels))
    for n, name in enumerate(("draft", "selection", "attention", "rest")):
        seconds = np.nan_to_num(speculative[f"{name}_seconds"])
        panels[1].barh(at, seconds, left=left, color=COLORS[n], label=name, hatch=("", "//", "..", "xx")[n])
        left = left + seconds
    panels[1].set(xlabel="seconds (measured on the machine of the run)")
    panels[1].legend(fontsize=8)
    plt.show()

# %% summary
assert n_checked > 0 or not tables, "nothing could be checked"
print(n_checked, "numbers or arrays recomputed here equal the program's")
