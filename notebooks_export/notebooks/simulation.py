# kvscope notebook simulation: cells about results of simulate perplexity, retrieval and speculative.

# %% [markdown] title
# # A selector inside the model
#
# Here the loop is closed: layer $l+1$ sees what the sparse layer $l$ made, so errors compound, unlike in a replay of recorded tensors. Each
# figure belongs to one task and is skipped if its result was not given. Full attention is the reference, not a competitor.

# %% parameters

# %% tables
tables = {task_of(kind): table for kind, table in rows_of_results.items()}
for task, table in tables.items():
    print(f"{task}: {len(table['selector'])} rows, model {table['model'][0]}")

# %% perplexity-figure
perplexity = tables.get("perplexity")
if perplexity is None:
    print("no result of simulate perplexity: skipped")
else:
    kvscope_figure("perplexity", paths["perplexity"])
    file = results.get("simulate-perplexity")
    has_curves = file is not None and "curve/log_perplexity" in file
    curves = file["curve/log_perplexity"][()] if has_curves else None

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
for task in retrieval:
    kvscope_figure("needle", paths[task])

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

# %% summary
assert n_checked > 0 or not tables, "nothing could be checked"
print(n_checked, "numbers or arrays recomputed here equal the program's")
