# kvscope notebook bounds: cells about results of analyze theorem-b1 and analyze quest.

# %% [markdown] title
# # Bounds against what is measured
#
# **Theorem B.1** (QuoKA) bounds the cosine of a key with its query from below by the key's softmax weight: as printed, and in forms
# that hold. **Quest** bounds the largest score in a page of keys from above by the page's bounding box. Both are compared here with the
# recorded model. A point on the wrong side of the diagonal would be a violation.

# %% parameters
LAYER = None  # None: the middle one
Q_HEAD = None  # None: the first one

# %% [markdown] theorem-text
# ## Theorem B.1
#
# For a key of weight $w$ among $n + 1$ visible ones, with log-odds $x = \log\frac{w}{1-w}$, the Jensen form says
# $\cos(k^*, q) \ge (\log n + x + \bar s) / (\lVert q\rVert\,\lVert k^*\rVert\,\mathrm{scale})$, where $\bar s$ is the mean score of
# the others. It always holds; the printed form divides by $2 M$ with $M = N_{\mathrm{eff}}^2$ and says little.

# %% theorem-figure
theorem = results.get("theorem-b1")
if theorem is None:
    print("no result of analyze theorem-b1: skipped")
else:
    layers, heads = list(theorem["layer"][()]), list(theorem["q_head"][()])
    layer = layers[len(layers) // 2] if LAYER is None else LAYER
    q_head = heads[0] if Q_HEAD is None else Q_HEAD
    at = (layers.index(layer), heads.index(q_head))
    kvscope_figure("theorem-b1", theorem.filename, layers=layer, heads=q_head)

# %% theorem-check
# One row again, from q and k: the key of largest weight, its cosine, its weight, and the Jensen bound.
trace = traces[0] if traces else None
if theorem is None or trace is None:
    print("nothing to recompute")
elif config_of(theorem)["star"] != "argmax":
    print("k* is not the key of largest weight in this result: skipped")
else:
    rows = theorem["row_pos"][()]
    rows = [i for i, pos in enumerate(rows) if trace.has_row(pos) and pos > 0]
    for i in rows[-1:]:
        pos = int(theorem["row_pos"][i])
        first, scores = trace.scores(layer, q_head, pos, is_capped=False)
        star = int(np.argmax(scores))
        q = trace.q(layer, q_head)[pos - trace.rows_begin].astype(np.float64)
        k = trace.k(layer, q_head)[first + star].astype(np.float64)
        others = np.delete(scores, star)
        log_odds = scores[star] - (others.max() + np.log(np.sum(np.exp(others - others.max()))))
        length = trace.shapes[layer][1] * np.linalg.norm(q) * np.linalg.norm(k)
        jensen = max(-1.0, (np.log(len(others)) + log_odds + others.mean()) / length)
        here = at + (i,)
        assert first + star == theorem["star_pos"][here], "another key has the largest weight"
        check_close(f"cos(k*, q) at position {pos}", scores[star] / length, theorem["cos"][here])
        check_close("softmax weight of k*", 1 / (1 + np.exp(-log_odds)), theorem["weight"][here])
        check_close("Jensen bound", jensen, theorem["bounds/jensen"][here])
    if not rows:
        print("none of the result's rows is in the (partial) trace: skipped")

# %% [markdown] quest-text
# ## Quest's page bounds
#
# With $m_c$ and $M_c$ the smallest and largest value of channel $c$ among a page's keys, $\sum_c \max(q_c m_c, q_c M_c) \ge \max_j q \cdot k_j$.

# %% quest-figure
quest = results.get("quest")
if quest is None:
    print("no result of analyze quest: skipped")
else:
    layers, heads = list(quest["layer"][()]), list(quest["q_head"][()])
    layer = layers[len(layers) // 2] if LAYER is None else LAYER
    q_head = heads[0] if Q_HEAD is None else Q_HEAD
    at = (layers.index(layer), heads.index(q_head))
    if "bound" in quest:
        kvscope_figure("quest-bounds", quest.filename, layers=layer, heads=q_head)
    else:
        print("the result holds no pages (store-pages was off)")

# %% quest-check
# All page bounds and true maxima of one step again.
if quest is None or trace is None or "bound" not in quest:
    print("nothing to recompute")
else:
    page_size = config_of(quest)["page_size"]
    steps = [i for i, pos in enumerate(quest["step_pos"][()]) if trace.has_row(pos)]
    for i in steps[-1:]:
        pos = int(quest["step_pos"][i])
        q = trace.q(layer, q_head)[pos - trace.rows_begin].astype(np.float64)
        first, _ = trace.scores(layer, q_head, pos)
        if first > 0:
            print("a sliding window cuts pages here: skipped")
            break
        keys = trace.k(layer, q_head)[: pos + 1].astype(np.float64)
        pages = [keys[j : j + page_size] for j in range(0, len(keys), page_size)]
        bounds = [np.maximum(q * page.min(axis=0), q * page.max(axis=0)).sum() for page in pages]
        maxima = [(page @ q).max() for page in pages]
        here = at + (i, slice(0, len(pages)))
        check_close(f"true page maxima at position {pos}", maxima, quest["true_max"][here], atol=1e-4)
        check_close("page bounds", bounds, quest["bound"][here], atol=1e-4)
        assert not quest["violated"][here].any(), "a bound that must hold is violated"
    if not steps:
        print("none of the result's steps is in the (partial) trace: skipped")

# %% summary
assert n_checked > 0 or not any(traces), "nothing could be checked although there is a trace"
print(n_checked, "numbers or arrays recomputed here equal the program's")
