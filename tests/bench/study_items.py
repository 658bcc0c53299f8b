"""A study of 101,370 items, and how long plan, status and table of it take: study_items.py PROGRAM [--texts 1090] [--workers 2]

The embedded draft on pieces of this project's pages, 18 methods at 5 budgets and two that take none. Seven minutes on two
cores. Prints the lines of a table.
"""

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time

PAGES = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"]
METHODS = ["quest", "quoka", "streamingllm", "h2o", "snapkv", "tova", "recent", "sink-recent", "strided", "random", "oracle-topk",
           "knorm", "keydiff", "sparq", "lagkv", "loki", "xattention", "adakv", "lessismore", "full"]
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def write_study(folder, n_texts):
    text = ""
    for page in PAGES:
        with open(os.path.join(SOURCES, page), encoding="utf-8") as file:
            text += file.read()
    step = max(1, (len(text) - 700) // n_texts)
    names = []
    for i in range(n_texts):
        with open(os.path.join(folder, f"t{i}.txt"), "w", encoding="utf-8") as file:
            file.write(text[i * step:i * step + 600])
        names.append(f't{i} = "t{i}.txt"')
    with open(os.path.join(folder, "s.toml"), "w", encoding="utf-8") as file:
        file.write('models = { draft = "draft" }\ntexts = { ' + ", ".join(names) + " }\n")
        file.write(f"methods = {json.dumps(METHODS)}\nbudgets = [16, 24, 32, 48, 64]\n")
        file.write("[record]\nmax-tokens = 96\n[tasks.sweep]\nchunk = 32\n")


def timed(words, folder):
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--texts", type=int, default=1090)
    parser.add_argument("--workers", default="2")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    with tempfile.TemporaryDirectory(prefix="kvscope-study-") as folder:
        write_study(folder, arguments.texts)
        for words in [["run", "s.toml", "--engine", "local", "--workers", arguments.workers], ["plan", "s.toml"], ["status", "s.toml"],
                      ["table", "s.toml"]]:
            clock, processor = timed([program, "study", *words], folder)
            print(f"| study {words[0]} | {clock:.1f} s, {processor:.1f} of processor |", flush=True)
        store = os.path.join(folder, "study-store")
        n_files = sum(len(files) for _, _, files in os.walk(store))
        answers = os.path.join(store, "answers")
        n_bytes = sum(os.path.getsize(os.path.join(answers, name)) for name in os.listdir(answers))
        print(f"| store | {n_bytes / 1e6:.0f} MB of answers, {n_files} files |")


if __name__ == "__main__":
    main()
