"""What engines cost and what kills cost them: the tables of analysis/engines.md.

    python3 tests/bench/engines.py PROGRAM [--engines local,mpi,slurm,ray] [--workers 1,2,4] [--items 200] [--kills 50] [--seed 1]

A sweep of --items items (copies of one recording; an item is a layer) runs undivided, then by every engine with every
number of workers: bytes must be equal; overhead is the processor time of all processes beyond that of the undivided run, per
unit (the tasks of slurm and ray are no children of the run, so wall clock alone is given for them). Slurm is a node that this script
starts itself; ray is the one of the interpreter that runs it. Then workers of the engine "local" are killed at random moments, --kills times: no item may be lost, and none done
twice beyond those that were under way.
"""

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "engines"))
import one_node_slurm  # noqa: E402

N_LAYERS = 8  # of the embedded verifier


def spent():
    """Processor seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Bench:
    def __init__(self, arguments, folder):
        self.program, self.folder = os.path.abspath(arguments.program), folder
        self.environment = dict(os.environ)
        first = self.path("t000.h5")
        self.run(["record", first, "--max-tokens", "256"])
        traces = [first]
        for i in range(1, max(1, arguments.items // N_LAYERS)):
            traces.append(self.path("t%03d.h5" % i))
            os.link(first, traces[-1])
        self.work = ["sweep"] + traces + ["--selector", "quest,streamingllm,quoka", "--budget", "32,64", "--chunk", "64",
                                          "--resamples", "1000"]

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, words):
        began, before = time.monotonic(), spent()
        done = subprocess.run([self.program] + words, env=self.environment, capture_output=True, text=True,
                              cwd=self.folder)
        if done.returncode != 0:
            sys.exit("engines.py: %s: code %d: %s" % (words[-6:], done.returncode, done.stderr))
        return time.monotonic() - began, spent() - before

    def same(self, out):
        with open(out, "rb") as one, open(self.path("whole.csv"), "rb") as other:
            return one.read() == other.read()


def workers_of(out):
    found = []
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"--worker" in words and (out + ".store").encode() in words:
            found.append(int(name))
    return found


def kill_at_random(bench, n_kills, seed):
    draws = random.Random(seed)
    out = bench.path("killed.csv")
    n, n_runs = 0, 0
    while not os.path.exists(out):
        n_runs += 1
        run = subprocess.Popen([bench.program] + bench.work + ["--engine", "local", "--workers", "4", "--out", out, "--resume"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=bench.folder)
        while run.poll() is None:
            time.sleep(draws.random() * 0.25)
            known = workers_of(out) if n < n_kills else []
            if known:
                try:
                    os.kill(draws.choice(known), draws.choice([9, 9, 15]))
                    n += 1
                except ProcessLookupError:
                    pass
        if run.returncode not in (0, 3):
            sys.exit("engines.py: killed workers: code %d: %s" % (run.returncode, run.stderr.read()))
    print("%d kills in %d run(s): %s bytes, %s" % (n, n_runs, "the same" if bench.same(out) else "OTHER",
                                                    "nothing left over" if not os.path.exists(out + ".store") else "LEFT OVER"))
    return bench.same(out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--engines", default="local,mpi")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="kvscope-engines-")
    well, node = True, None
    try:
        bench = Bench(arguments, folder)
        seconds, processor = bench.run(bench.work + ["--threads", "1", "--out", bench.path("whole.csv")])
        n_items = arguments.items // N_LAYERS * N_LAYERS
        print("| engine | workers | seconds | processor s | overhead per item | bytes |\n|---|---|---|---|---|---|")
        print("| none | | %.1f | %.1f | | |" % (seconds, processor))
        for engine in filter(None, arguments.engines.split(",")):
            if engine == "slurm":
                node = one_node_slurm.OneNode(folder, max(4, os.cpu_count()))
                bench.environment = node.environment
            if engine == "ray":
                bench.environment = dict(os.environ, KVSCOPE_PYTHON=sys.executable,
                                         PYTHONPATH=os.path.join(os.path.dirname(TESTS), "traces", "python"))
            for n in arguments.workers.split(","):
                out = bench.path("%s-%s.csv" % (engine, n))
                took, used = bench.run(bench.work + ["--threads", "1", "--engine", engine, "--workers", n, "--out", out])
                same = bench.same(out)
                well = well and same
                own = "%.1f | %.0f ms" % (used, 1000 * (used - processor) / n_items) if engine in ("local", "mpi") else "- | -"
                print("| %s | %s | %.1f | %s | %s |" % (engine, n, took, own, "equal" if same else "OTHER"), flush=True)
        if arguments.kills:
            well = kill_at_random(bench, arguments.kills, arguments.seed) and well
    finally:
        if node:
            node.stop()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
