"""A large study that everything happens to: study_ordeal.py PROGRAM [--engine local|mpi|slurm|ray] [--model FILE]
[--tokens 256] [--kills 50] [--seed 1]

Models (the embedded pair, and one more by --model) x 4 texts x 20 methods x 6 budgets, and two recordings of other origin, are
swept twice. Once quietly. Once with those two recordings damaged, a store whose disk is full after a while, a program of other
code that works at the same store in between, and --kills random deaths of workers and of whole runs. The tables must be the
same bytes, every failure named, and no item computed again that the store knew. Prints what happened, as lines of a table.
Mounting the small disk needs root: without it that part is left out, and said.
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from engines_test import answers_in, check, environment_of, flip

METHODS = ["quest", "quoka", "streamingllm", "h2o", "snapkv", "tova", "recent", "sink-recent", "strided", "random", "oracle-topk",
           "knorm", "keydiff", "sparq", "lagkv", "loki", "xattention", "adakv", "lessismore", "full"]
BUDGETS = [16, 24, 32, 48, 64, 96]
TEXTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]  # beside the embedded book: words that no model here has learned
FOREIGN = ["foreign-a.h5", "foreign-b.h5"]
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Study:
    """A study in a folder of its own; its store may be a small disk."""

    def __init__(self, folder, arguments):
        os.makedirs(folder)
        self.engine = arguments.engine
        self.folder, self.file, self.store = folder, os.path.join(folder, "s.toml"), os.path.join(folder, "study-store")
        models = {"verifier": "verifier", "draft": "draft"}
        if arguments.model:
            models["third"] = os.path.abspath(arguments.model)
        texts = {"book": "book"}
        for text in TEXTS:
            shutil.copy(os.path.join(SOURCES, text), folder)
            texts[text.split(".")[0].lower()] = text
        with open(self.file, "w", encoding="utf-8") as file:
            for name, words in [("models", models), ("texts", texts)]:
                file.write(name + " = { " + ", ".join("%s = %s" % (key, json.dumps(value)) for key, value in words.items()) + " }\n")
            file.write("recordings = %s\nmethods = %s\nbudgets = %s\n" % (json.dumps(FOREIGN), json.dumps(METHODS), BUDGETS))
            file.write("[record]\nmax-tokens = %d\n[tasks.sweep]\nchunk = 64\n" % arguments.tokens)

    def words(self, program, *more):
        return [program, "study", "run", self.file, "--engine", self.engine, "--workers", "2"] + list(more)

    def table(self, program):
        return subprocess.run([program, "study", "table", self.file], capture_output=True, check=True).stdout

    def status(self, program):
        return json.loads(subprocess.run([program, "study", "status", self.file, "--json"], capture_output=True, check=True).stdout)

    def times_known(self):
        """How often each item's result was written."""
        times = collections.Counter()
        for line in answers_in(self.store):
            data = json.loads(line)["data"]
            times[data["key"]] += "failure" not in data and "forget" not in data
        return times

    def has_answers_of(self, code):
        return any("-" + code in line for line in answers_in(self.store))

    def processes(self):
        """Those at work for this study, runs and workers."""
        found = []
        for name in os.listdir("/proc"):
            try:
                with open("/proc/%s/cmdline" % name, "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(word == "study" for word in words) and any(word.startswith(self.folder) for word in words):
                found.append(int(name))
        return found


def run(words):
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode, done.stderr


def of_other_code(program, folder, key):
    """A copy of the program whose sources that decide numbers were others, as far as it knows."""
    own = key.split("-")[1].encode()
    with open(program, "rb") as file:
        code = file.read()
    check(code.count(own) == 1, "the program's code version stands %d times in it" % code.count(own))
    copy = os.path.join(folder, "other")
    os.makedirs(copy)
    copy = os.path.join(copy, "kvscope")
    with open(os.open(copy, os.O_CREAT | os.O_WRONLY, 0o755), "wb") as file:
        file.write(code.replace(own, b"0badc0de"))
    return copy


def full_disk(study, program, mebibytes):
    """Fills a small disk. Returns how that run ended; afterwards the disk is large."""
    os.makedirs(study.store)
    mount = ["mount", "-t", "tmpfs", "-o", "size=%dm" % mebibytes, "tmpfs", study.store]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        print("| full disk | left out: mounting one needs root |")
        return False
    code, said = run(study.words(program))
    check(code in (3, 4), "a full disk: expected code 3 or 4, found %d: %s" % (code, said))
    check(any(word in said for word in ("No space left", "disk", " left; ")), "a full disk is not named: " + said)
    print("| disk of %d MiB full | code %d: %s |" % (mebibytes, code, said.strip().splitlines()[0]))
    check(subprocess.run(["mount", "-o", "remount,size=16g", study.store]).returncode == 0, "remount")
    return True


def kill_at_random(study, program, draws, n_kills, pause):
    n, n_runs = 0, 0
    while n < n_kills:
        n_runs += 1
        process = subprocess.Popen(study.words(program, "--retry-failed"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        begin = n
        while process.poll() is None and n < n_kills:
            time.sleep(draws.random() * pause)
            known = study.processes()
            if not known:
                continue
            try:
                os.kill(draws.choice(known), draws.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
                n += 1
            except ProcessLookupError:
                pass
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate()
        if n == begin:
            break  # nothing is left to do
    print("| deaths | %d over %d starts |" % (n, n_runs))


def ordeal(program, folder, arguments):
    draws = random.Random(arguments.seed)
    quiet, hard = (Study(os.path.join(folder, name), arguments) for name in ["quiet", "hard"])
    for study in [quiet, hard]:
        for i, name in enumerate(FOREIGN):
            code, said = run([program, "record", os.path.join(study.folder, name), "--max-tokens", str(64 + 32 * i)])
            check(code == 0, said)
    began = time.monotonic()
    code, said = run(quiet.words(program))
    check(code == 0, said)
    seconds = time.monotonic() - began
    status = quiet.status(program)
    print("| items | %d, of them recordings %d |" % (status["items"], status["tasks"][0]["items"]))
    print("| quiet run | %.0f s |" % seconds, flush=True)
    size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(quiet.store) for name in names)

    for name in FOREIGN:
        flip(os.path.join(hard.folder, name))
    is_mounted = full_disk(hard, program, max(4, int(0.6 * size / 2**20)))
    try:
        other = of_other_code(program, folder, next(iter(quiet.times_known())))
        process = subprocess.Popen(hard.words(other, "--retry-failed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not hard.has_answers_of("0badc0de"):
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.wait()
        kill_at_random(hard, program, draws, arguments.kills, 2.0 * seconds / max(1, arguments.kills))
        code, said = run(hard.words(program, "--retry-failed"))
        check(code == 4, "damaged recordings: expected code 4, found %d: %s" % (code, said))
        failed = hard.status(program)["failed_items"]
        for name in FOREIGN:
            own = [item["failure"] for item in failed if item["text"] == name]
            check(own and all(name in sentence for sentence in own), "failures that do not name %s: %s" % (name, own[:3]))
        check(all(item["text"] in FOREIGN for item in failed), "others failed too: %s" % failed)
        print("| failed | %d items, e.g. %s |" % (len(failed), failed[0]["failure"].replace(folder, "")), flush=True)
        for name in FOREIGN:
            flip(os.path.join(hard.folder, name))
        code, said = run(hard.words(program, "--retry-failed"))
        check(code == 0, said)
        times = hard.times_known()
        twice = [key for key, n in times.items() if n > 1]
        n_other = sum(n for key, n in times.items() if key.endswith("-0badc0de"))
        print("| of other code | %d items kept beside |" % n_other)
        check(n_other > 0, "the program of other code answered nothing")
        check(not twice, "%d items were computed again though they were known" % len(twice))
        print("| known twice | 0 |")
        check(quiet.table(program) == hard.table(program), "the tables differ")
        print("| tables | equal, %d bytes |" % len(quiet.table(program)))
    finally:
        for process in hard.processes():
            os.kill(process, signal.SIGKILL)
        if is_mounted:
            subprocess.run(["umount", "-l", hard.store])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="kvscope-ordeal-")
    environment, node = environment_of(arguments.engine, folder)
    os.environ.update(environment)
    try:
        ordeal(os.path.abspath(arguments.program), folder, arguments)
    finally:
        if node:
            node.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print("study_ordeal: all well")


if __name__ == "__main__":
    main()
