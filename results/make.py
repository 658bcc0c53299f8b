#!/usr/bin/env python3
"""Measures a model as the pages here show it, and makes its page of what came out.

    python3 results/make.py run smollm2 --model MODEL [--device cuda] [--only EXPRESSION]   # what is there is not run again
    python3 results/make.py page smollm2                                # results/smollm2/README.md, from the files beside it
    python3 results/make.py check                                       # every page says what its files say

MODEL is what `kvscope --model` takes. The program is build/release/bin/kvscope, or --kvscope PROGRAM. A page is the text
of results/NAME/page.md, in which a line "{{table NAME}}" stands for a table of the steps below, and {{FILE|selector=quoka|accuracy}}
for a share of that row, in percent; README.md has tables too.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import predictors

HERE = Path(__file__).resolve().parent
KINDS = ["niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multiquery", "multi_value", "variable_tracking",
         "common_words", "fwe"]
CHUNKS = "full,oracle-topk,quoka,sparq,snapkv,tova,keydiff,streamingllm"
STEPS_OF_DECODING = "full,oracle-topk,quoka,quest,sparq,snapkv,streamingllm"
#: Folder -> lengths of the prompts: of all kinds, and of those that are asked in longer ones too.
LENGTHS = {"smollm2": ([2048, 4096], [8000]), "gemma3": ([2048], [4096, 8192]), "verifier": ([2048, 4096], [8192, 16384])}
FAR_KINDS = ["niah_single_1", "niah_single_2", "niah_multikey_1"]
#: Layers without a window, where a model has others.
GLOBAL_LAYERS = {"gemma3": "5,11,17"}
#: How many of the first layers stay dense, in the table of layers; of Gemma's in steps of one layer without a window.
LEFT_DENSE = {"gemma3": (0, 6, 12)}
ASKED = "simulate retrieval --depths 5 --trials 10"
#: Items that judge a choice against one drawn at random.
CHOICES = "quoka-fig-2a,quoka-queries,quest-recall"


def steps_of(name: str) -> dict[str, str]:
    """File of a result -> words of the command that makes it. TRACE stands for the recording."""
    everywhere, far = LENGTHS[name]
    asked = [(kind, length) for length in everywhere for kind in KINDS] + [(kind, length) for length in far for kind in FAR_KINDS]
    return {
        **{f"ruler_{kind}_{length}.json": f"{ASKED} --kinds {kind} --lengths {length} --budget 256 --selector {CHUNKS}"
           for kind, length in asked},
        "perplexity_chunks.json": "simulate perplexity --mode prefill --prefill 0 --max-tokens 2048 --windows 8 --budget 256 "
                                  f"--selector {CHUNKS}",
        "perplexity_steps.json": "simulate perplexity --mode decode --max-tokens 2048 --windows 2 --budget 256 "
                                 f"--selector {STEPS_OF_DECODING}",
        **{f"steps_{kind}.json": f"{ASKED} --protocol decode --kinds {kind} --lengths 2048 --fed 32 --budget 256 "
                                 f"--selector {STEPS_OF_DECODING}"
           for kind in ("niah_single_1", "niah_multikey_1", "multi_value")},
        "budgets.json": f"{ASKED} --kinds niah_single_2,niah_multikey_1 --lengths 2048 --budget 128,512,1024 "
                        "--selector full,oracle-topk,quoka,sparq",
        "protocols.json": f"{ASKED} --protocol papers --kinds niah_single_2 --lengths 2048 --budget 256 "
                          "--selector full,oracle-topk,quoka",
        "layers.json": f"{ASKED} --kinds niah_single_2 --lengths 2048 --budget 256 --selector "
                       + ",".join(["full", *(f"quoka:dense-layers={n}" for n in LEFT_DENSE.get(name, (0, 2, 4, 8, 12, 16, 24)))]),
        "mass_chunks.json": "sweep TRACE --selector all --match keys=256",
        "masses.json": f"sweep TRACE --rows-per-chunk 4 --resamples 0 --selector {CHUNKS} --budget 128,256,512,1024",
        "mass_steps.json": "sweep TRACE --selector all --match keys=256 --phase decode",
        **({f"mass_global_{side}.json": f"sweep TRACE --layers {GLOBAL_LAYERS[name]} --selector {CHUNKS},quest --match keys=256{phase}"
            for side, phase in (("chunks", ""), ("steps", " --phase decode"))} if name in GLOBAL_LAYERS else {}),
        "lost.json": "explain --facts 1 --selector quoka --budget 256 --lengths 2048 --depths 5 --trials 2 --least 0.1",
        **({"lost_sparq.json": "explain --facts 1 --selector sparq --budget 256 --lengths 2048 --depths 1 --trials 2 --least 0.05"}
           if name == "gemma3" else {}),
        **({"facts.json": predictors.EXPLAIN} if name == "smollm2" else {}),
        "papers.json": "papers --quick",
        "queries.json": f"papers --quick --items {CHOICES}",
    }


#: What is kept of a sweep's rows: means over the heads of all layers.
MASS = ["kept", "mass_mean", "output_error_rel", "recallk", "lost_choosing", "lost_dividing"]


def mean(values: list) -> float | None:
    return None if None in values else sum(values) / len(values)


def means_of_layers(sweep: dict) -> dict:
    """Of each method and budget the means over the layers without a window."""
    layers = [row for row in sweep["rows"] if row["q_head"] is None and row["window"] == 0]
    rows = []
    for name, budget in dict.fromkeys((row["selector"], row["budget"]) for row in layers):
        own = [row for row in layers if (row["selector"], row["budget"]) == (name, budget)]
        rows.append({"selector": name, "budget": budget, **{key: mean([row[key] for row in own]) for key in predictors.COLUMNS}})
    return {**{key: sweep[key] for key in ("config_hash", "command_line", "skipped")}, "rows": rows}


def means_of_heads(sweep: dict) -> dict:
    """A sweep has a row per head, and one per layer: a result for a page has one per method."""
    rows = []
    for name in dict.fromkeys(row["selector"] for row in sweep["rows"]):
        heads = [row for row in sweep["rows"] if row["selector"] == name and row["q_head"] is not None]
        rows.append({"selector": name, "knob": heads[0]["knob"], "note": heads[0]["match_note"],
                     **{key: mean([row[key] for row in heads]) for key in MASS}})
    return {**{key: sweep[key] for key in ("config_hash", "command_line", "skipped")}, "rows": rows}


#: Tables of a page that `kvscope table` makes -> results (a pattern; of lengths too), words of the command.
TABLES = {
    "steps": ("steps_*.json", "--rows selector --columns kind --value accuracy --spread recorded"),
    "first-page": ("ruler_niah_[sm][iu][nl][gt][li]*_[12]_2048.json", "--rows selector --columns kind --value accuracy"),
    "perplexity-chunks": ("perplexity_chunks.json", "--rows selector --value perplexity,relative_increase,kv_reduction"),
    "perplexity-steps": ("perplexity_steps.json", "--rows selector --value perplexity,relative_increase,kv_reduction"),
    "budgets": ("budgets.json", "--rows kind,selector --columns budget --value accuracy"),
    "protocols": ("protocols.json", "--rows selector --columns protocol --value accuracy"),
    "layers": ("layers.json", "--rows selector --columns kind --value accuracy --spread recorded"),
    **{f"ruler-{length}": (f"ruler_*_{length}.json", "--rows selector --columns kind --value accuracy --spread recorded")
       for length in (2048, 4096, 8000, 8192, 16384)},
}


def run_one(name: str, file: str, words: str, program: Path, options: list[str]) -> bool:
    folder = HERE / name
    out = folder / file
    trace = folder / "trace.h5"
    command = [str(program), *words.replace("TRACE", str(trace)).split()]
    if words.startswith("sweep"):
        if not trace.exists():
            subprocess.run([str(program), "record", str(trace), "--max-tokens", "2048", "--decode", "32", "--dtype", "bf16",
                            *options[:2]], stdout=subprocess.DEVNULL, check=True)
        whole = folder / "sweep.json"  # 15 MB: not kept
        if subprocess.run([*command, "--out", str(whole), "--overwrite"], stdout=subprocess.DEVNULL).returncode != 0:
            return False
        result = (means_of_layers if file == "masses.json" else means_of_heads)(json.loads(whole.read_text()))
        whole.unlink()
    elif file == "facts.json":
        rows = []
        for method, budget in predictors.ASKED:
            done = subprocess.run([*command, "--selector", method, "--budget", str(budget), *options[:2], "--json"], stdout=subprocess.PIPE)
            if done.returncode != 0:
                return False
            rows += [{"selector": method, "budget": budget, **look} for look in predictors.looks(json.loads(done.stdout))]
        result = {"kind": "facts", "command_line": f"kvscope {words}", "rows": rows}
    elif words.startswith("explain"):
        done = subprocess.run([*command, *options[:2], "--json"], stdout=subprocess.PIPE)
        if done.returncode != 0:
            return False
        result = json.loads(done.stdout)
    elif words.startswith("papers"):
        report = folder / Path(file).stem  # made anew elsewhere; its pictures are not kept
        if subprocess.run([*command, "--out", str(report), *options], stdout=subprocess.DEVNULL).returncode not in (0, 4):
            return False
        result = json.loads((report / "items.json").read_text())
        for item in result["items"]:
            del item["pictures"]
    else:
        command += [*options, "--out", str(out), *(["--resume"] if Path(f"{out}.journal").exists() else [])]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            return False
        result = json.loads(out.read_text())
    # on one line: nobody reads changes of these; and without the names of this machine's folders
    text = json.dumps(result, separators=(",", ":"), ensure_ascii=False).replace(f"{folder}/", "")
    if Path(options[1]).exists():
        text = text.replace(f"{Path(options[1]).resolve().parent}/", "")
    out.write_text(text + "\n")
    return True


def run(name: str, model: str, program: Path, device: str, only: str | None) -> int:
    (HERE / name).mkdir(exist_ok=True)
    options = ["--model", model, *(["--device", device] if device != "cpu" else [])]
    failed = 0
    for file, words in steps_of(name).items():
        if (HERE / name / file).exists() or (only and not re.search(only, file)):
            continue
        print(name, file, words, flush=True)
        began = time.monotonic()
        if not run_one(name, file, words, program, options):
            failed += 1
            print(name, file, "failed", flush=True)
        print(name, file, f"{time.monotonic() - began:.1f} s", flush=True)
    return 1 if failed else 0


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, [":--", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def mass_table(folder: Path, part: str = "mass") -> str:
    """Every method at 256 measured keys per query: prompts by chunks, and steps."""
    rows: dict[str, list[str]] = {}
    sides = [json.loads((folder / f"{part}_{side}.json").read_text())["rows"] for side in ("chunks", "steps")]
    order = sorted({row["selector"]: row["mass_mean"] for side in sides for row in side}.items(), key=lambda pair: -pair[1])
    for name, _ in order:
        for side in sides:
            found = next((row for row in side if row["selector"] == name), None)
            rows.setdefault(name, [f"`{name}`"]).extend(
                [""] * 5 if found is None else
                [f"{found['kept']:.0f}{'†' if found['note'] else ''}",
                 *("" if found[key] is None else f"{100 * found[key]:.1f}"
                   for key in ("mass_mean", "lost_choosing", "lost_dividing", "output_error_rel"))])
    heads = [f"{side}: {what}" for side in ("chunks", "steps")
             for what in ("keys", "mass %", "lost choosing", "lost dividing", "error %")]
    return markdown(["method", *heads], list(rows.values())) + (
        "\n\n† Could not be brought to 256 keys. Lost by choosing: what as many keys of the same rows would hold more, if they were "
        "the best; by dividing: what method `ceiling` holds more than these, which gives the keys to the rows, heads and layers that "
        "need them. Nothing of 256 keys holds more than the ceiling.")


def kept_line(files: list[Path]) -> str:
    """How many keys each method of a table keeps per query, mean of its rows: a budget says what it may choose."""
    rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
    parts = [part for part in ("protocol", "budget") if len({row[part] for row in rows if row["selector"] != "full"}) > 1]
    kept: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["selector"] != "full":
            of_part = kept.setdefault(", ".join(f"{part} {row[part]}" for part in parts), {})
            of_part.setdefault(row["selector"], []).append(row["kept"])
    lines = []
    for part, methods in kept.items():
        by_number: dict[int, list[str]] = {}
        for name, numbers in methods.items():
            by_number.setdefault(round(mean(numbers)), []).append(f"`{name}`")
        lines.append((f"{part}: " if part else "") + ", ".join(f"{number} ({', '.join(by_number[number])})" for number in sorted(by_number)))
    return "Keys kept per query: " + "; ".join(lines) + "."


def choices_table() -> str:
    """Items that judge a choice against one drawn at random, on every model."""
    rows = []
    for name in (name for name in LENGTHS if (HERE / name / "queries.json").exists()):
        for item in json.loads((HERE / name / "queries.json").read_text())["items"]:
            rows += [[name, item["item"], item["verdict"], check["sentence"].replace("|", "\\|")]
                     for check in item["checks"] if "at random" in check["sentence"]]
    return markdown(["model", "item", "its verdict", "the check against a choice at random"], rows)


def papers_table(folder: Path) -> str:
    report = json.loads((folder / "papers.json").read_text())
    rows = [[item["paper"], f"{item['place']}: {item['title']}", item["verdict"], item["reason"]]
            for item in report["items"] if not item["error"]]
    rows = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return f"Of its claims {report['claims']}.\n\n" + markdown(["paper", "item", "here", "why"], rows)


def lost_table(folder: Path, file: str = "lost.json") -> str:
    """Heads that attend to the fact of a missed prompt, from `kvscope explain`."""
    report = json.loads((folder / file).read_text())
    rows = [[f"{100 * row['depth']:.0f} %, {row['trial']}", f"{row['layer']}.{row['q_head']}", f"{100 * row['dense_weight']:.0f}",
             f"{100 * row['weight']:.0f}", f"{row['kept']} of {row['fact_tokens']}", f"{row['rank']} of {row['scored']}",
             f"{row['margin']:+.3f}"] for row in report["rows"]]
    return markdown(["depth, prompt", "head", "attention to the fact %", "its query's under the method", "tokens of it in the list",
                     "best rank", "margin"], rows)


OWN_TABLES = {"mass": mass_table, "mass-global": lambda folder: mass_table(folder, "mass_global"), "papers": papers_table,
              "lost": lost_table, "lost-sparq": lambda folder: lost_table(folder, "lost_sparq.json")}


def table_of(folder: Path, name: str, program: Path) -> str:
    if name in OWN_TABLES:
        return OWN_TABLES[name](folder)
    pattern, words = TABLES[name]
    order = {kind: i for i, kind in enumerate(KINDS)}
    there = sorted(folder.glob(pattern), key=lambda file: order.get(re.sub(r"^(ruler|steps)_|(_\d+)?\.json$", "", file.name), 0))
    table = subprocess.run([str(program.resolve()), "table", *words.split(), "--format", "markdown",
                            *[file.name for file in there]], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    return f"{table}\n\n{kept_line(there)}"


def share_of(folder: Path, file: str, where: str, column: str) -> str:
    wanted = dict(part.split("=", 1) for part in where.split(","))
    rows = [row for row in json.loads((folder / f"{file}.json").read_text())["rows"]
            if all(str(row[key]) == value for key, value in wanted.items())]
    if len(rows) != 1:
        raise SystemExit(f"{folder.name}/page.md: {{{{{file}|{where}|{column}}}}}: expected one such row, found {len(rows)}")
    share = 100 * rows[0][column]
    return f"{share:.0f}" if column == "accuracy" else f"{share:.1f}"


def with_shares(folder: Path, block: str) -> str:
    """A paragraph or list with its shares, in lines of 120 characters."""
    filled, n_shares = re.subn(r"\{\{([^|{}]+)\|([^|{}]+)\|(\w+)\}\}",
                               lambda found: share_of(folder, found[1], found[2], found[3]), block)
    if n_shares == 0:
        return block
    return "\n".join(textwrap.fill(" ".join(item.split()), 120, subsequent_indent="  " if item.startswith("- ") else "", break_long_words=False,
                                   break_on_hyphens=False) for item in re.split(r"\n(?=- )", filled))


def page_of(folder: Path, program: Path) -> str:
    text = re.sub(r"^\{\{table (\S+)\}\}$", lambda found: table_of(folder, found[1], program),
                  (folder / "page.md").read_text(), flags=re.M)
    return "\n\n".join(with_shares(folder, block) for block in text.split("\n\n"))


def first_page(program: Path) -> str:
    """README.md with its tables, each between <!-- table NAME of FOLDER --> and <!-- end -->."""
    return re.sub(r"(<!-- table (\S+) of (\S+) -->\n).*?(<!-- end -->)",
                  lambda found: f"{found[1]}\n{table_of(HERE / found[3], found[2], program)}\n\n{found[4]}",
                  (HERE.parent / "README.md").read_text(), flags=re.S)


def index_page() -> str:
    """results/README.md with its table of predictors."""
    folders = [HERE / name for name in LENGTHS]
    sides = [predictors.table(folders, with_oracle) for with_oracle in (True, False)]
    rows = [[*with_it, *without[1:]] for with_it, without in zip(*sides)]
    text = markdown(["column", "all 48 cells", "above `mass_mean`", "36 without the oracle", "above `mass_mean`"], rows)
    page = (HERE / "README.md").read_text()
    for mark, part in (("choices", choices_table()), ("predictors", text), ("facts", predictors.facts_sentence(HERE / "smollm2"))):
        page = re.sub(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}", page,
                      flags=re.S)
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["run", "page", "check"])
    parser.add_argument("name", nargs="?", help="a folder beside this program")
    parser.add_argument("--model", help="what kvscope --model takes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", help="files whose names match this expression")
    parser.add_argument("--kvscope", type=Path, default=HERE.parent / "build/release/bin/kvscope")
    given = parser.parse_args()
    if given.task == "run":
        if not given.name or not given.model:
            parser.error("run takes the name of the folder and --model")
        return run(given.name, given.model, given.kvscope, given.device, given.only)
    pages = [(folder / "README.md", page_of(folder, given.kvscope))
             for folder in sorted(page.parent for page in HERE.glob("*/page.md")) if given.name in (None, folder.name)]
    pages += [(HERE.parent / "README.md", first_page(given.kvscope)), (HERE / "README.md", index_page())]
    bad = 0
    for file, text in pages:
        was = file.read_text() if file.exists() else ""
        if given.task == "page":
            file.write_text(text)
        elif was != text:
            bad += 1
            sys.stdout.writelines(difflib.unified_diff(was.splitlines(True), text.splitlines(True), str(file), "its files"))
    return 1 if bad else 0


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
