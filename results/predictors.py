"""Which number of a sweep over one text tells how many facts a method finds in prompts: rank correlations.

A cell is a method at a budget (128 to 1024 keys of 2048 tokens, by chunks); its accuracy, as a share of full attention's,
is the mean over the kinds of needles of results/MODEL (niah_single_2 and niah_multikey_1), its numbers are means over the
layers without a window of results/MODEL/masses.json. Spearman's correlation within each model, averaged over the models;
intervals from 1,000 bootstraps over the cells of each model, the same cells for every column.
"""

import json
import math
import random
from pathlib import Path

KINDS = ("niah_single_2", "niah_multikey_1")
#: Column -> heading, and whether less is better.
COLUMNS = {"mass_mean": ("attention kept (`mass_mean`)", False), "mass_p05": ("its 5th percentile over rows (`mass_p05`)", False),
           "mass_min": ("its least (`mass_min`)", False), "far_mass": ("kept on far keys (`far_mass`)", False),
           "recall10": ("recall of the 10 heaviest keys (`recall10`)", False),
           "recallk": ("recall of as many keys (`recallk`)", False), "jaccard": ("Jaccard index with the oracle (`jaccard`)", False),
           "output_error_rel": ("relative output error (`output_error_rel`)", True)}


def accuracies(folder: Path) -> dict:
    """(selector, budget) -> accuracy over full attention's, of kinds that full attention answers at least half of."""
    found: dict = {}
    full: dict = {}
    for file in [*(f"ruler_{kind}_2048.json" for kind in KINDS), "budgets.json"]:
        for row in json.loads((folder / file).read_text())["rows"]:
            if row["length"] != 2048 or row["kind"] not in KINDS:
                continue
            if row["selector"] == "full":
                full[row["kind"]] = row["accuracy"]
            else:
                found.setdefault((row["selector"], row["budget"]), {})[row["kind"]] = row["accuracy"]
    kinds = [kind for kind in KINDS if full[kind] >= 0.5]
    return {cell: sum(of[kind] / full[kind] for kind in kinds) / len(kinds) for cell, of in found.items() if set(kinds) <= set(of)}


def facts_sentence(folder: Path) -> str:
    prompts = json.loads((folder / "facts.json").read_text())["rows"]
    found = [prompt for prompt in prompts if prompt["found"]]
    missed = [prompt for prompt in prompts if not prompt["found"]]

    def area(key: str) -> str:
        pairs = [(a[key] > b[key]) + 0.5 * (a[key] == b[key]) for a in found for b in missed]
        return f"{100 * sum(pairs) / len(pairs):.0f}"

    return (f"Of {len(prompts)} needle prompts on SmolLM2, {len(found)} of them answered, the share of the fact's tokens in the lists of "
            f"the heads that look for it,\nweighted by how much they look, is larger in a found one than in a missed one {area('kept')} "
            f"times of 100 (area under the curve);\nthe attention that reaches the fact under the method {area('weight')} times; the worst "
            f"rank of the fact {area('rank')} times, where 50 is chance.")


def ranks(values: list) -> list:
    order = sorted(range(len(values)), key=values.__getitem__)
    out = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for i in range(first, last + 1):
            out[order[i]] = 0.5 * (first + last)
        first = last + 1
    return out


def spearman(x: list, y: list) -> float:
    a, b = ranks(x), ranks(y)
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    both = sum((p - mean_a) * (q - mean_b) for p, q in zip(a, b))
    spread = sum((p - mean_a) ** 2 for p in a) * sum((q - mean_b) ** 2 for q in b)
    return both / math.sqrt(spread) if spread > 0 else 0.0


def table(folders: list, with_oracle: bool) -> list:
    """Rows: heading, correlation, its interval, the difference to mass_mean with its interval."""
    models = []  # of each: (accuracy, {column: value}) by cell
    for folder in folders:
        found = accuracies(folder)
        cells = [(found[cell], row) for row in json.loads((folder / "masses.json").read_text())["rows"]
                 if (cell := (row["selector"], row["budget"])) in found and (with_oracle or row["selector"] != "oracle-topk")]
        models.append(cells)

    def correlation(drawn: list, column: str) -> float:
        sign = -1.0 if COLUMNS[column][1] else 1.0
        return sum(spearman([sign * row[column] for _, row in cells], [accuracy for accuracy, _ in cells])
                   for cells in drawn) / len(drawn)

    draw = random.Random(1)
    resampled: dict = {column: [] for column in COLUMNS}
    for _ in range(1000):
        drawn = [[draw.choice(cells) for _ in cells] for cells in models]
        for column in COLUMNS:
            resampled[column].append(correlation(drawn, column))

    def ends(values: list) -> str:
        values = sorted(values)
        return f"[{values[25]:.2f}, {values[974]:.2f}]"

    rows = []
    for column, (heading, _) in COLUMNS.items():
        gains = [a - b for a, b in zip(resampled[column], resampled["mass_mean"])]
        gain = correlation(models, column) - correlation(models, "mass_mean")
        rows.append([heading, f"{correlation(models, column):.2f} {ends(resampled[column])}",
                     "" if column == "mass_mean" else f"{gain:+.2f} {ends(gains)}"])
    return rows


def main() -> None:
    folders = [Path(__file__).resolve().parent / name for name in ("smollm2", "gemma3", "verifier")]
    rows = [[*with_it, *without[1:]] for with_it, without in zip(*(table(folders, with_oracle) for with_oracle in (True, False)))]
    heads = ["column", "all 48 cells", "above `mass_mean`", "36 without the oracle", "above `mass_mean`"]
    for cells in [heads, [":--", *["--:"] * (len(heads) - 1)], *rows]:
        print("| " + " | ".join(cells) + " |")
    print("\n" + facts_sentence(folders[0]))


if __name__ == "__main__":
    main()
