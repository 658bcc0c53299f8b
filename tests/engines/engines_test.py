"""kvscope's engines against what they start: engines_test.py PROGRAM mpi|slurm|ray. Equal bytes for any workers; a rank, task
or worker that is ended loses nothing. Ends with code 77, and says why, where the engine cannot run."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import one_node_slurm

SKIPPED = 77
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def environment_of(engine, folder):
    """The environment in which the program starts an engine's workers, and the Slurm that was started for it in the folder."""
    if engine == "slurm":
        node = one_node_slurm.OneNode(folder, 4)
        return node.environment, node
    environment = dict(os.environ)
    if engine == "ray":
        folders = [os.path.join(SOURCES, "traces", "python")]
        if importlib.util.find_spec("ray") is None:
            print(f"engines_test: ray is not installed for {sys.executable}: its stand-in of tests/engines takes its place")
            folders.append(os.path.join(SOURCES, "tests", "engines", "stand_in"))
        environment.update(KVSCOPE_PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(folders))
    return environment, None


class Test:
    def __init__(self, program, engine, folder):
        self.program, self.engine, self.folder = os.path.abspath(program), engine, folder
        self.environment, self.node = environment_of(engine, folder)
        self.trace = self.path("trace.h5")
        self.run(["record", self.trace, "--max-tokens", "96"])
        self.work = ["sweep", self.trace, "--selector", "quest,streamingllm,lessismore", "--budget", "16", "--chunk", "32",
                     "--resamples", "10000"]
        self.run(self.work + ["--out", self.path("whole.csv")])

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, words, code=0):
        done = subprocess.run([self.program] + words, env=self.environment, capture_output=True, text=True, cwd=self.folder)
        check(done.returncode == code, f"{words}: expected code {code}, found {done.returncode}: {done.stderr}")
        return done

    def words(self, n, out):
        more = ["--resume"] if os.path.exists(out + ".store") else []
        return self.work + ["--engine", self.engine, "--workers", str(n), "--out", out] + more

    def check_bytes(self, out):
        with open(out, "rb") as one, open(self.path("whole.csv"), "rb") as other:
            check(one.read() == other.read(), f"{out}: other bytes than those of one run")
        check(not os.path.exists(out + ".store"), f"{out}.store is left over")

    def equal_bytes(self, counts):
        for n in counts:
            out = self.path(f"by{n}.csv")
            self.run(self.words(n, out))
            self.check_bytes(out)

    def start(self, n, out):
        return subprocess.Popen([self.program] + self.words(n, out), env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, cwd=self.folder)


    def one_is_killed(self, how):
        """A worker of a run is ended once an item is answered. Returns the run's code and words."""
        out = self.path("killed.csv")
        run = self.start(4, out)
        while run.poll() is None and not answers_in(out + ".store"):
            time.sleep(0.005)
        known = workers_of(out)
        if known:
            os.kill(known[0], how)
        said = run.communicate()[1]
        return out, run.returncode, said


def flip(path):
    """One bit amid a layer's keys, values or queries of a recording, which still opens; the same again mends it."""
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) * 6 // 10)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x10]))


def an_item_fails(test):
    """It is recorded apart, the others are finished, and it is tried again when that is asked."""
    bad, whole, out, store = (test.path(name) for name in ["bad.h5", "two.csv", "failed.csv", "failed.store"])
    test.run(["record", bad, "--max-tokens", "64"])
    work = ["sweep", test.trace, bad, "--selector", "quest,streamingllm", "--budget", "16", "--chunk", "32"]
    test.run(work + ["--out", whole])
    flip(bad)
    run = work + ["--engine", test.engine, "--workers", "2", "--store", store, "--out", out]
    said = test.run(run, code=4).stderr
    lines = [json.loads(line)["data"] for line in answers_in(store)]
    failed = [line["key"] for line in lines if "failure" in line]
    check(len(failed) == 2 and len(lines) == 32, f"expected 32 answers, two of them failures, found {len(lines)}, {failed}")
    check("2 of 32 items failed" in said and "--retry-failed" in said and failed[0] in said, said)
    check(not os.path.exists(out), "a table without an item that failed")
    flip(bad)
    test.run(run, code=4)  # not tried again by itself
    test.run(run + ["--retry-failed"])
    with open(out, "rb") as one, open(whole, "rb") as other:
        check(one.read() == other.read(), "after --retry-failed: other bytes than those of one run")


STUDY = """models = ["draft"]
texts = ["book"]
recordings = ["damaged.h5"]
methods = ["quest", "streamingllm", "h2o"]
budgets = [16, 32]
[record]
max-tokens = 96
[tasks.sweep]
chunk = 32
[tasks.perplexity]
max-tokens = 64
"""


def a_study_is_done(test):
    """The same table as without an engine, once a run whose worker was killed has been started again; what failed is named."""
    tables = []
    for engine in [[], ["--engine", test.engine, "--workers", "2"]]:
        folder = test.path("study-by-" + (test.engine if engine else "none"))
        os.mkdir(folder)
        study, damaged = os.path.join(folder, "s.toml"), os.path.join(folder, "damaged.h5")
        with open(study, "w", encoding="utf-8") as file:
            file.write(STUDY)
        test.run(["record", damaged, "--max-tokens", "64"])
        flip(damaged)
        if engine:
            run = subprocess.Popen([test.program, "study", "run", study] + engine, env=test.environment, cwd=folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while run.poll() is None and not answers_in(os.path.join(folder, "study-store")):
                time.sleep(0.005)
            for worker in workers_of(study)[:1]:
                os.kill(worker, signal.SIGKILL)
            run.communicate()
            check(run.returncode in (0, 3, 4), f"a study whose worker was killed: code {run.returncode}")
        said = test.run(["study", "run", study] + engine, code=4).stderr
        check("6 of 19 items failed" in said and "damaged.h5" in said, said)
        tables.append(test.run(["study", "table", study]).stdout.replace(folder, ""))
        check(not os.listdir(os.path.join(folder, "study-store", "scratch")), "work is left over")
    check(tables[0] == tables[1], "a study's table: other bytes than without an engine")


def answers_in(store):
    """Whole lines of a store that answer an item."""
    lines = []
    folder = os.path.join(store, "answers")
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            lines += [line for line in file if line.endswith("\n") and '"key":' in line]
    return lines


def workers_of(out):
    """Processes of the program that do items of this run."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        ours = any(word.startswith(out.encode()) for word in words)
        if b"--worker" in words and ours and words[0].endswith(b"/kvscope"):
            found.append(int(name))
    return found


def check(holds, sentence):
    if not holds:
        print("engines_test: " + sentence, file=sys.stderr)
        sys.exit(1)


def test_mpi(test):
    test.equal_bytes([1, 2, 4])
    out, code, said = test.one_is_killed(signal.SIGKILL)
    if code != 0:  # it may have been faster than the signal
        check(code == 3, f"a killed rank: expected code 3, found {code}: {said}")
        check(said.count("\n") == 1 and said.startswith("kvscope: mpi: ") and "are missing from" in said, said)
        check(not os.path.exists(out), "a table of a run that did not end")
        test.run(test.words(4, out))
    test.check_bytes(out)
    an_item_fails(test)
    a_study_is_done(test)


def test_slurm(test):
    test.equal_bytes([1, 4])
    # preemption: the task gets SIGTERM, stops, and is queued again
    out = test.path("preempted.csv")
    run = test.start(2, out)
    while run.poll() is None and not answers_in(out + ".store"):
        time.sleep(0.005)
    number = test.node.ask(["squeue", "--noheader", "--format=%A"]).split()
    if number:
        print("requeued:", number[0], test.node.ask(["scontrol", "requeue", number[0]]))
    said = run.communicate()[1]
    check(run.returncode == 0, f"a preempted task: code {run.returncode}: {said}")
    test.check_bytes(out)
    # cancelled altogether, it ends with a sentence and goes on
    out = test.path("cancelled.csv")
    run = test.start(2, out)
    while run.poll() is None and not answers_in(out + ".store"):
        time.sleep(0.005)
    test.node.ask(["scancel", "--name=kvscope"])
    said = run.communicate()[1]
    if run.returncode != 0:
        check(run.returncode == 3 and "are missing from" in said and said.count("\n") == 1, said)
        test.run(test.words(2, out))
    test.check_bytes(out)
    an_item_fails(test)
    a_study_is_done(test)


def test_ray(test):
    test.equal_bytes([1, 4])
    out, code, said = test.one_is_killed(signal.SIGKILL)  # its task is given out again
    check(code == 0, f"a killed worker: expected code 0, found {code}: {said}")
    test.check_bytes(out)
    an_item_fails(test)
    a_study_is_done(test)


def why_not(engine):
    if engine == "mpi":
        return "" if shutil.which("mpirun") else "mpirun is not installed (Debian: openmpi-bin)"
    if engine == "slurm":
        return one_node_slurm.why_not()
    return ""  # without Ray its stand-in is taken


def main():
    program, engine = sys.argv[1:3]
    reason = why_not(engine)
    if reason:
        print(f"engines_test: {engine}: skipped: {reason}")
        sys.exit(SKIPPED)
    folder = tempfile.mkdtemp(prefix="kvscope-engines-")
    test = None
    try:
        test = Test(program, engine, folder)
        {"mpi": test_mpi, "slurm": test_slurm, "ray": test_ray}[engine](test)
    finally:
        if test and test.node:
            test.node.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"engines_test: {engine}: all well")


if __name__ == "__main__":
    main()
