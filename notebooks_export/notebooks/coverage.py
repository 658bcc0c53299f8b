# kvscope notebook coverage: cells about results of analyze coverage and analyze quest.

# %% [markdown] title
# # Where selections keep and lose attention
#
# Maps of layer by head and of query block by page, and how few keys would do: the nucleus of a row is the smallest set of keys that holds
# a share $p$ of its attention. Grey cells do not exist (later keys), dark ones are zero.

# %% parameters
LAYER = None  # None: the middle one

# %% choice
all_layers = sorted(set.intersection(*(set(file["layer"][()]) for file in results.values())))
all_heads = list(next(iter(results.values()))["q_head"][()])
layer = all_layers[len(all_layers) // 2] if LAYER is None else LAYER
trace = traces[0] if traces else None
coverage, quest = results.get("coverage"), results.get("quest")

# %% figures
if coverage is None:
    print("no result of analyze coverage: skipped")
else:
    config = config_of(coverage)
    slot = list(coverage["layer"][()]).index(layer)
    blocks, pages, shares = (list(coverage[name][()]) for name in ("query_block", "page", "p"))
    kvscope_figure("coverage-pages", coverage.filename, layers=layer)
    kvscope_figure("nucleus-size", coverage.filename)
    kvscope_figure("head-budget", coverage.filename)

# %% coverage-check
# Nucleus sizes of one head, and the attention of the last query block by page, from q and k.
if coverage is None or trace is None:
    print("nothing to recompute")
else:
    row_pos = coverage["row_pos"][()]
    heads = [int(head) for head in all_heads]
    inside = [int(pos) for pos in row_pos if trace.has_row(pos)]
    if len(inside) == len(row_pos):
        for i in (0, len(shares) - 1):
            ours = []
            for pos in inside:
                if pos + 1 < config["min_visible"]:
                    continue
                weights = np.sort(trace.attention(layer, heads[0], pos)[1])[::-1]
                ours.append(1 + np.argmax(np.cumsum(weights) >= shares[i]) if np.cumsum(weights)[-1] >= shares[i] else len(weights))
            check_close(f"mean nucleus size for p = {shares[i]:g}, layer {layer}, head {heads[0]}", np.mean(ours),
                        coverage["nucleus_mean"][slot, 0, i], rtol=1e-4)
    block_size, page_size = config["query_block"], config["page_size"]
    whole = [b for b, begin in enumerate(blocks)
             if all(trace.has_row(pos) for pos in row_pos if begin <= pos < begin + block_size)]
    for b in whole[-1:]:
        own = [int(pos) for pos in row_pos if blocks[b] <= pos < blocks[b] + block_size]
        total = np.zeros(len(pages))
        for head in heads:
            for pos in own:
                first, weights = trace.attention(layer, head, pos)
                page_of = (first + np.arange(len(weights)) - pages[0]) // page_size
                total += np.bincount(page_of, weights, minlength=len(pages))
        seen = np.isfinite(coverage["map_mass"][slot, b])
        check_close(f"attention by page, queries {blocks[b]} on, {len(own)} rows of {len(heads)} heads",
                    (total / (len(own) * len(heads)))[seen], coverage["map_mass"][slot, b][seen], atol=1e-5)
    if not whole:
        print("none of the result's query blocks is in the (partial) trace: skipped")

# %% [markdown] quest-text
# ## Pages that Quest reads, step by step (analyze quest)

# %% quest-layer
if quest is None:
    print("no result of analyze quest: skipped")
else:
    slot = list(quest["layer"][()]).index(layer)

# %% quest-check
# The attention on the selected pages of one step, all heads.
if quest is None or trace is None or "eval/selected" not in quest:
    print("nothing to recompute")
else:
    page_size = config_of(quest)["page_size"]
    usable = [i for i, pos in enumerate(quest["step_pos"][()]) if trace.has_row(pos)]
    for i in usable[-1:]:
        pos = int(quest["step_pos"][i])
        ours = []
        for h, head in enumerate(quest["q_head"][()]):
            first, weights = trace.attention(layer, int(head), pos)
            pages_of = (first + np.arange(len(weights))) // page_size
            ours.append(weights[quest["eval/selected"][slot, h, i][pages_of] > 0].sum())
        check_close(f"attention on the selected pages, layer {layer}, position {pos}", ours, quest["eval/mass"][slot, :, i], atol=1e-5)
    if not usable:
        print("none of the result's steps is in the (partial) trace: skipped")

# %% summary
print(n_checked, "numbers or arrays recomputed here equal the program's")
