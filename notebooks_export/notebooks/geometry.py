# kvscope notebook geometry: cells about results of analyze geometry, analyze query-selection and analyze quoka.

# %% [markdown] title
# # Where queries and keys lie
#
# QuoKA's observation: most queries point the same way, and the few that differ from the mean query put large weights on particular keys.
# $S_q = -\cos(q, M)$ with $M$ the mean query; queries and keys are taken as they enter the dot product (after RoPE). The largest attention
# weight leaves out key 0, the sink.

# %% parameters
LAYER = None  # None: that of the head in which S_q finds the large weights best, else of the clouds farthest apart
Q_HEAD = None  # None: that head

# %% choice
geometry, selection, quoka = (results.get(kind) for kind in ("geometry", "query-selection", "quoka"))
if selection is not None:
    strength = selection["correlation/prompt/pearson_log"][()]
elif quoka is not None:
    strength = quoka["correlation/pearson_log"][()]
else:
    strength = -geometry["clustering/means"][()]
ranked = next(file for file in (selection, quoka, geometry) if file is not None)  # the one that strength is of
all_layers, all_heads = list(ranked["layer"][()]), list(ranked["q_head"][()])
if geometry is not None:  # which may hold fewer layers
    strength = np.where(np.isin(all_layers, geometry["layer"][()])[:, None], strength, -np.inf)
best = np.unravel_index(np.argmax(np.where(np.isfinite(strength), strength, -np.inf)), strength.shape)
layer = all_layers[best[0]] if LAYER is None else LAYER
q_head = all_heads[best[1]] if Q_HEAD is None else Q_HEAD
print(f"shown: layer {layer}, query head {q_head}")
trace = traces[0] if traces else None


def place(file):
    """Slots of the chosen layer and query head in this result's arrays."""
    return list(file["layer"][()]).index(layer), list(file["q_head"][()]).index(q_head)


# %% [markdown] axes-text
# ## Principal axes (analyze geometry)

# %% axes-figure
if geometry is None:
    print("no result of analyze geometry: skipped")
else:
    l, h = place(geometry)
    config = config_of(geometry)
    group = len(geometry["q_head"]) // len(geometry["kv_head"])
    explained = geometry["explained"][l, h if config["basis"] == "head" else h // group]
    s_q = geometry["queries/s_q"][l, h]
    kvscope_figure("geometry", geometry.filename, layers=layer, heads=q_head)

# %% axes-check
# The fit again: eigenvalues of the covariance of the fitted rows; and S_q of all shown queries of one head.
if geometry is None or trace is None:
    print("nothing to recompute")
elif trace.n_tokens < int(trace.file.attrs["n_tokens"]) or trace.rows_begin > 0:
    print("the (partial) trace does not hold all rows of the fit: skipped")
else:
    heads_of = {"head": [q_head], "keys": []}.get(config["basis"], [x for x in geometry["q_head"][()] if x // trace.group(layer) == q_head // trace.group(layer)])
    rows = np.concatenate([trace.k(layer, q_head)] + [trace.q(layer, x) for x in heads_of]).astype(np.float64)
    variance = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
    check_close("shares of the variance", (variance / variance.sum())[:3], explained[:3], rtol=1e-4)
    if config["span"] == "prompt" and config["mean"] == "raw":
        q = trace.q(layer, q_head).astype(np.float64)
        mean = q[: trace.n_prompt].mean(axis=0)
        ours = -(q @ mean) / (np.linalg.norm(q, axis=1) * np.linalg.norm(mean))
        check_close("S_q of the shown queries", ours[geometry["pos"][()]], s_q, atol=1e-5)

# %% [markdown] selection-text
# ## Does $S_q$ find the queries that put a large weight on one key?
#
# Under a causal mask a weight shrinks as the visible length grows, so position confounds both; the results also hold partial correlations.

# %% selection-figure
source = selection if selection is not None else quoka
if source is None:
    print("no result of analyze query-selection or analyze quoka: skipped")
else:
    at = place(source)
    log_weight = source["log_max_weight"][at]
    pos = source["pos"][()] if source is selection else np.arange(len(log_weight))
    kvscope_figure("query-scores", source.filename, layers=layer, heads=q_head)

# %% selection-check
if source is None or trace is None:
    print("nothing to recompute")
else:
    skip, skip_recent = config_of(source).get("skip", 1), config_of(source).get("skip_recent", 0)
    usable = [i for i, p in enumerate(pos) if trace.has_row(p) and p > skip + skip_recent and np.isfinite(log_weight[i])]
    ours = []
    for i in usable[-4:]:
        first, weights = trace.attention(layer, q_head, int(pos[i]))
        ours.append(np.log(weights[max(0, skip - first) : len(weights) - skip_recent].max()))
    if ours:
        check_close("log of the largest weight of the last rows", ours, log_weight[usable[-4:]], atol=1e-5)
    else:
        print("none of the result's rows is in the (partial) trace: skipped")

# %% [markdown] kept-text
# ## What QuoKA keeps (analyze quoka)

# %% kept-check
# The attention kept by the last chunk's last query, from the positions that the program stored.
if quoka is None or trace is None:
    print("nothing to recompute")
elif config_of(quoka)["scope"] != "past_plus_chunk":
    print("the candidates include the chunk itself: skipped")
else:
    l, h = place(quoka)
    begins, offsets = quoka["chunk_begin"][()], quoka["selected/offsets"][()]
    ends = np.append(begins[1:], quoka["mass"].shape[2])
    usable = [c for c in range(len(begins)) if trace.has_row(ends[c] - 1)]
    for c in usable[-1:]:
        pos = int(ends[c] - 1)
        first, weights = trace.attention(layer, q_head, pos)
        positions = quoka["selected/positions"][l, h // trace.group(layer), offsets[c] : offsets[c + 1]]
        kept = np.zeros(pos + 1, dtype=bool)
        kept[positions[positions >= 0]] = True
        kept[begins[c] :] = True  # the chunk is attended densely
        stored = quoka["mass"][l, h, pos]
        if np.all(positions < 0) and stored == 1:
            print("this layer stays dense: skipped")
        else:
            check_close(f"attention kept at position {pos}", weights[kept[first:]].sum(), stored, atol=1e-5)
    if not usable:
        print("none of the result's chunks is in the (partial) trace: skipped")

# %% summary
print(n_checked, "numbers or arrays recomputed here equal the program's")
