#!/usr/bin/env python3
"""Measures a model as the pages here show it, and makes its page of what came out.

    python3 results/make.py run smollm2 --model MODEL [--device cuda]   # what is there already is not run again
    python3 results/make.py page smollm2                                # results/smollm2/README.md, from the files beside it
    python3 results/make.py check                                       # every page says what its files say

MODEL is what `kvscope --model` takes. The program is build/release/bin/kvscope, or --kvscope PROGRAM. A page is the text
of results/NAME/page.md, in which a line "{{table NAME}}" stands for a table of the steps below; README.md has tables too.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = ["niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multiquery", "multi_value", "variable_tracking",
         "common_words", "fwe"]
CHUNKS = "full,oracle-topk,quoka,sparq,snapkv,tova,keydiff,streamingllm"
STEPS_OF_DECODING = "full,oracle-topk,quoka,quest,sparq,snapkv,streamingllm"

#: File of a result -> words of the command that makes it.
STEPS = {
    "perplexity_chunks.json": f"simulate perplexity --mode prefill --prefill 0 --max-tokens 2048 --windows 8 --budget 256 --selector {CHUNKS}",
    **{f"ruler_{kind}.json": f"simulate ruler --kinds {kind} --lengths 2048 --depths 5 --trials 10 --budget 256 --selector {CHUNKS}"
       for kind in KINDS},
    "perplexity_steps.json": "simulate perplexity --mode decode --max-tokens 2048 --windows 2 --budget 256 "
                             f"--selector {STEPS_OF_DECODING}",
    **{f"steps_{kind}.json": f"simulate ruler --protocol decode --kinds {kind} --lengths 2048 --depths 5 --trials 10 --fed 32 "
                             f"--budget 256 --selector {STEPS_OF_DECODING}"
       for kind in ("niah_single_1", "niah_multikey_1", "multi_value")},
}

#: Table of a page -> results, words of `kvscope table`.
TABLES = {
    "ruler": ([f"ruler_{kind}.json" for kind in KINDS], "--rows selector --columns kind --value accuracy --spread recorded"),
    "steps": (["steps_niah_single_1.json", "steps_niah_multikey_1.json", "steps_multi_value.json"],
              "--rows selector --columns kind --value accuracy --spread recorded"),
    "first-page": (["ruler_niah_single_1.json", "ruler_niah_single_2.json", "ruler_niah_multikey_1.json"],
                   "--rows selector --columns kind --value accuracy"),
    "perplexity-chunks": (["perplexity_chunks.json"], "--rows selector --value perplexity,relative_increase,kv_reduction"),
    "perplexity-steps": (["perplexity_steps.json"], "--rows selector --value perplexity,relative_increase,kv_reduction"),
}


def run(name: str, model: str, program: Path, device: str, only: str | None) -> int:
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    failed = 0
    for file, words in STEPS.items():
        out = folder / file
        if out.exists() or (only and not re.search(only, file)):
            continue
        command = [str(program), *words.split(), "--model", model, "--out", str(out)]
        command += ["--device", device] if device != "cpu" else []
        command += ["--resume"] if Path(f"{out}.journal").exists() else []
        print(" ".join(command), flush=True)
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            failed += 1
        else:  # on one line: nobody reads changes of these
            out.write_text(json.dumps(json.loads(out.read_text()), separators=(",", ":"), ensure_ascii=False) + "\n")
    return 1 if failed else 0


def table_of(folder: Path, name: str, program: Path) -> str:
    results, words = TABLES[name]
    there = [file for file in results if (folder / file).exists()]
    return subprocess.run([str(program.resolve()), "table", *words.split(), "--format", "markdown", *there], cwd=folder,
                          capture_output=True, text=True, check=True).stdout.strip()


def page_of(folder: Path, program: Path) -> str:
    return re.sub(r"^\{\{table (\S+)\}\}$", lambda found: table_of(folder, found[1], program),
                  (folder / "page.md").read_text(), flags=re.M)


def first_page(program: Path) -> str:
    """README.md with its tables, each between <!-- table NAME of FOLDER --> and <!-- end -->."""
    return re.sub(r"(<!-- table (\S+) of (\S+) -->\n).*?(<!-- end -->)",
                  lambda found: f"{found[1]}\n{table_of(HERE / found[3], found[2], program)}\n\n{found[4]}",
                  (HERE.parent / "README.md").read_text(), flags=re.S)


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
    pages.append((HERE.parent / "README.md", first_page(given.kvscope)))
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
