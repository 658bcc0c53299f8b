# kvscope notebook recall: cells about a sweep written as HDF5.

# %% [markdown] title
# # What selectors keep, by budget and by bytes
#
# Three numbers are called recall elsewhere; here they are apart: the **attention kept** (probability mass on the kept keys), the
# **top-10 recall** (share of the ten heaviest keys that were kept), and the **relative output error**. The replay is open loop: every layer
# sees the dense model's tensors, so errors do not compound.

# %% parameters

# %% table
result = results["sweep"]
summary, config = summary_of(result), config_of(result)
columns = rows_of_results["sweep"]
pairs = summary["pairs"]

# %% figures
for kind in ("budget", "bytes", "coverage-heads"):
    kvscope_figure(kind, result.filename)

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
