# kvscope notebook layer-map: cells about a result of analyze layer-map.

# %% [markdown] title
# # Which draft layer speaks for which verifier layer
#
# SpecAttn attends, in the verifier, to the keys that the draft model attended to. $D_{ij}$ is the mean over query rows of
# $\mathrm{KL}(\text{verifier layer } j \,\Vert\, \text{draft layer } i)$, each row being the layer's attention averaged over its heads. The
# map that SpecAttn uses is the monotone one of least total divergence. Of the traces the verifier's comes first, then the draft's.

# %% parameters

# %% map-figure
result = results["layer-map"]
kl = result["kl"][()]
drafts, verifiers = list(result["draft_layer"][()]), list(result["verifier_layer"][()])
monotone = result["monotone_map"][()]
kvscope_figure("layer-map", result.filename)
print("monotone map:", " ".join(f"{v}<-{d}" for v, d in zip(verifiers, monotone)))

# %% check
# One row of the divergence again, from the q and k of both traces.
config = config_of(result)
rows, row_pos = result["kl_rows"][()], result["row_pos"][()]
shown = [j for j, layer in enumerate(monotone) if layer >= 0]


def layer_row(trace, layer, pos):
    """Attention of a layer, averaged over its heads, over all positions up to pos."""
    row = np.zeros(pos + 1)
    for q_head in trace.q_heads:
        first, weights = trace.attention(layer, q_head, pos)
        row[first:] += weights / len(trace.q_heads)
    if config["drop_sink"]:
        row = row[1:] / row[1:].sum()
    return row


def smooth(row):
    when = config["smoothing"]
    if when == "always" or (when == "when_zero" and np.any(row == 0)):
        return (row + config["eps"]) / (1 + len(row) * config["eps"])
    return row


pair = traces if len(traces) == 2 and all(traces) else None
if pair is None:
    print("needs both traces: skipped")
else:
    usable = [i for i, pos in enumerate(row_pos) if pair[0].has_row(pos) and pair[1].has_row(pos)]
    for i in usable[len(usable) // 2 : len(usable) // 2 + 1]:
        pos = int(row_pos[i])
        j = shown[0] if shown else 0
        a = smooth(layer_row(pair[0], verifiers[j], pos))
        ours = []
        for draft in drafts:
            b = smooth(layer_row(pair[1], draft, pos))
            known = a > 0
            ours.append(np.sum(a[known] * np.log(a[known] / b[known])))
        check_close(f"KL of verifier layer {verifiers[j]} and all draft layers at position {pos}", ours, rows[i, :, j], rtol=1e-4)
    if not usable:
        print("none of the result's rows is in the (partial) traces: skipped")
    assert not usable or n_checked > 0

# The mean over rows is the map's matrix.
check_close("D is the mean over the rows", rows.mean(axis=0), kl, rtol=1e-9)
