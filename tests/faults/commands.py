"""The commands of the tests of faults and of power cuts, over inputs as small as they can be, and the folder they run in."""

import os
import shutil
import subprocess

SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "traces", "samples")
METHODS = ["--selector", "full,recent", "--budget", "8", "--chunk", "16", "--resamples", "5"]
SIMULATION = ["simulate", "perplexity", "--model", "in/llm", "--text", "in/text.txt", "--max-tokens", "24", "--offset", "0",
              "--windows", "1", "--selector", "recent", "--budget", "8"]
RECORD = ["record", "--model", "in/llm", "--text", "in/text.txt", "--max-tokens", "16", "--layers", "0,1"]
RESUME = ["record", "--model", "in/llm", "--text", "in/text.txt", "--max-tokens", "16", "--chunk", "4", "--resume"]
STUDY = """models = ["llm"]
texts = ["text.txt"]
methods = ["recent", "full"]
budgets = [8]
store = "../u"
[record]
max-tokens = 16
[tasks.sweep]
chunk = 8
"""


class Command:
    """words: with OUT for each of `outputs`; `again`: the option that lets it replace them; `before`: copies that are made
    first, for what a command changes; `left`: beginnings of names of what a failed one may leave, to go on from it; `goes_on`:
    commands that end what a failed one began, the last of which prints the result."""

    def __init__(self, name, words, outputs=(), again=None, before=(), left=(), goes_on=()):
        self.name, self.words, self.outputs, self.again, self.before, self.left = name, words, outputs, again, before, left
        self.goes_on = goes_on


COMMANDS = [
    Command("tokenize", ["tokenize", "--model", "in/llm", "--text", "in/text.txt", "--json"]),
    Command("info", ["info", "in/t.h5", "--json"]),
    Command("verify", ["verify", "in/t.h5"]),
    Command("table", ["table", "in/s.csv", "--rows", "selector", "--value", "mass_mean", "--format", "csv", "--out", "o.csv"],
            ["o.csv"], "--overwrite"),
    Command("figure", ["figure", "budget", "in/s.csv", "--format", "svg", "--out", "out"], ["out/budget.svg", "out/budget.json"],
            "--overwrite"),
    Command("notebook", ["notebook", "bounds", "in/q.h5", "--out", "o.ipynb"], ["o.ipynb"], "--overwrite"),
    Command("export", ["export", "in/t.h5", "--html", "--out", "o.html", "--max-cells", "16"], ["o.html"], "--overwrite"),
    Command("export SESSION", ["export", "in/session.json", "--html", "--out", "o.html"], ["o.html"], "--overwrite"),
    Command("analyze", ["analyze", "quest", "in/t.h5", "--out", "o.h5", "--csv", "o.csv"], ["o.h5", "o.csv"], "--overwrite"),
    Command("fit", ["fit", "kascade", "in/all.h5", "--out", "o.json"], ["o.json"], "--overwrite"),
    Command("cost", ["cost", "in/t.h5", "--selector", "recent", "--budget", "8", "--hardware", "h200", "--out", "o.json"],
            ["o.json"], "--overwrite"),
    Command("sweep", ["sweep", "in/t.h5", *METHODS, "--out", "o.csv"], ["o.csv"], "--overwrite", left=["o.csv.store/"]),
    Command("sweep .h5", ["sweep", "in/t.h5", *METHODS, "--out", "o.h5"], ["o.h5"], "--overwrite", left=["o.h5.store/"]),
    Command("sweep --resume", ["sweep", "in/t.h5", *METHODS, "--resume", "--out", "o.csv"], ["o.csv"],
            before=[("in/half", "o.csv.store")], left=["o.csv.store/"]),
    Command("sweep --store", ["sweep", "in/t.h5", *METHODS, "--store", "u", "--out", "o.csv"], ["o.csv"], "--overwrite",
            left=["u/"]),
    Command("sweep of a store that knows all", ["sweep", "in/t.h5", *METHODS, "--store", "in/store", "--out", "o.csv"], ["o.csv"],
            "--overwrite"),
    Command("worker", ["sweep", "in/t.h5", *METHODS, "--store", "u", "--worker"], left=["u/"],
            goes_on=[["sweep", "in/t.h5", *METHODS, "--store", "u", "--retry-failed"]]),
    Command("study", ["study", "run", "in/s.toml"], left=["u/"],
            goes_on=[["study", "run", "in/s.toml", "--retry-failed"], ["study", "table", "in/s.toml"]]),
    Command("simulate", [*SIMULATION, "--out", "o.csv"], ["o.csv"], "--overwrite", left=["o.csv.store/"]),
    Command("record", [*RECORD, "--out", "o.h5"], ["o.h5"], "--overwrite", left=["o.h5.part"]),
    Command("record --compression", [*RECORD, "--compression", "gzip:1", "--out", "o.h5"], ["o.h5"], "--overwrite",
            left=["o.h5.part"]),
    Command("record --resume", [*RESUME, "--out", "o.h5"], ["o.h5"], "--overwrite", left=["o.h5.part"]),
    Command("recover", ["recover", "in/killed.h5.part", "--out", "o.h5"], ["o.h5"], "--overwrite"),
]


OLDER = {".csv": b"a,b\n1,2\n", ".json": b'{"kind": "older", "config_hash": ""}', ".svg": b"<svg></svg>", ".html": b"<!DOCTYPE html>",
         ".ipynb": b'{"nbformat": 4, "by": "kvscope"}', ".h5": b"\x89HDF\r\n\x1a\n kvscope-"}


def older_file(command, name):
    """What stood under an output's name before: a file of the kind that the command writes, told by its first bytes."""
    start = OLDER[os.path.splitext(name)[1]]
    if command.words[0] == "figure" and name.endswith(".json"):
        return b'{"format": "kvscope-figure"}'
    if not name.endswith(".h5"):
        return start
    return start + (b"trace" if command.words[0] in ("record", "recover") else b"result")


class Folder:
    """A folder below which calls fail: in/ holds the inputs, commands run beside it."""

    def __init__(self, program, shim, path):
        self.program, self.shim, self.path = os.path.abspath(program), os.path.abspath(shim), os.path.realpath(path)
        self.environment = dict(os.environ, SOURCE_DATE_EPOCH="1700000000", TMPDIR=self.at("tmp"))
        os.makedirs(self.at("in"))
        shutil.copytree(os.path.join(SAMPLES, "draft"), self.at("in/llm"))
        with open(self.at("in/text.txt"), "w", encoding="utf-8") as text:
            text.write("One word after another, and then the same again. " * 8)
        self.clear()
        with open(self.at("in/session.json"), "w", encoding="utf-8") as session:
            session.write('{"kind": "kvscope-session", "version": 1, "traces": [{"path": "t.h5"}], "results": ["s.csv"], "bookmarks":'
                          ' [{"name": "t.h5", "layer": 0, "q_head": 0, "query": 9, "selector": "recent", "budget": 8}]}')
        for words in (["record", "in/t.h5", "--model", "in/llm", "--text", "in/text.txt", "--max-tokens", "32", "--layers", "0,1"],
                      ["record", "in/all.h5", "--model", "in/llm", "--text", "in/text.txt", "--max-tokens", "16"],
                      ["analyze", "quest", "in/t.h5", "--out", "in/q.h5"],
                      ["sweep", "in/t.h5", *METHODS, "--out", "in/s.csv"],
                      ["sweep", "in/t.h5", *METHODS, "--store", "in/store"]):
            self.make(words)
        shutil.copytree(self.at("in/store"), self.at("in/half"))
        with open(self.at("in/s.toml"), "w", encoding="utf-8") as study:
            study.write(STUDY)
        answers = self.at("in/half/answers")
        segment = os.path.join(answers, os.listdir(answers)[0])
        with open(segment, "rb") as file:
            lines = file.readlines()[:3]  # what it is, the plan, the first answer
        with open(segment, "wb") as file:
            file.write(b"".join(lines))
        self.make([*RECORD, "--out", "in/killed.h5"])
        os.rename(self.at("in/killed.h5"), self.at("in/killed.h5.part"))

    def at(self, name):
        return os.path.join(self.path, name)

    def make(self, words):
        done = self.run(words)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stderr}")

    def clear(self):
        for name in os.listdir(self.path):
            if name != "in":
                path = self.at(name)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        os.makedirs(self.at("tmp"))

    def prepare(self, command, old=False):
        """A clean folder; `old`: older files stand under the names of the outputs."""
        self.clear()
        for source, target in command.before:
            (shutil.copytree if os.path.isdir(self.at(source)) else shutil.copy)(self.at(source), self.at(target))
        if old:
            for name in command.outputs:
                os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
                with open(self.at(name), "wb") as file:
                    file.write(older_file(command, name))

    def run(self, words, faults=None):
        """`faults`: variables of the shim (tests/support/failing_disk.c)."""
        environment = self.environment
        if faults is not None:
            environment = dict(environment, LD_PRELOAD=self.shim, KVSCOPE_FAIL_DIR=self.path + "/", **faults)
        return subprocess.run([self.program, *words, *(["--threads", "1"] if takes_threads(words) else [])], cwd=self.path,
                              env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=120, check=False)

    def go_on(self, command):
        """What the command's result is in the end, and what was wrong with that."""
        done = [self.run(words) for words in command.goes_on]
        return done[-1].stdout, "".join(f"code {one.returncode}: {one.stderr}" for one in done if one.returncode != 0)

    def files(self):
        """Every file beside the inputs, by its name here."""
        found = {}
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = os.path.join(folder, name)
                short = os.path.relpath(path, self.path)
                if not short.startswith("in" + os.sep):
                    with open(path, "rb") as file:
                        found[short] = file.read()
        return found


def takes_threads(words):
    return words[0] not in ("tokenize", "info", "table", "figure", "notebook", "recover") and words[:2] != ["study", "table"]
