#!/usr/bin/env python3
"""Plants the faults of faults.py into a copy of the tree, and shows which of them the tests notice.

    python3 tests/mutation/mutation.py --copy ../faulty --table table.md    # all of them: hours
    python3 tests/mutation/mutation.py --copy ../faulty --only 3,7 --near   # two, by the tests nearest to them: minutes
    python3 tests/mutation/mutation.py --copy ../faulty --gpu               # those of core/cuda, on a machine with a GPU
    python3 tests/mutation/mutation.py --check                              # every fault has its place: a second

The copy is a clone of the last commit, with all faults in it, each behind a switch: KVSCOPE_FAULT=7 in the
environment turns on the seventh, no switch none. So it is built once. It stays where --copy says and is used again.
For each fault the tests nearest to it run first, until one fails; then, without --near, all others, the slow ones too.
Ends with 0 if at least 57 of the sixty were noticed, or all those of --gpu or --only. Standard library only.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from device_faults import DEVICE_FAULTS
from fault import VARIABLE, plant, problems
from faults import FAULTS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LEAST = 57
MARK = "PLANTED_FAULTS"  # the file that says that a tree is such a copy
PROGRAMS = ["core", "traces", "analysis", "notebooks_export", "gui_model", "gui", "cli"]
NEAR_LIMIT = 1200  # seconds of one program: a fault that hangs is noticed
LIMIT = 7200
# Tests of the sources' text, which the planted faults change themselves.
TEXT_TESTS = "^(architecture|mutation|install)"
SKIPPED = 77


def say(*words):
    print(*words, flush=True)


def run(command, folder, number, limit):
    """(exit status, output); status None where the time ran out."""
    environment = {**os.environ, VARIABLE: str(number)}
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if child.poll() is None:  # also where somebody interrupts this program
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


class Copy:
    """The planted copy and its build."""

    def __init__(self, folder, preset):
        self.folder = os.path.abspath(folder)
        self.preset = preset
        self.build = os.path.join(self.folder, "build", preset)
        self.tests = os.path.join(self.build, "tests")

    def make(self, faults, targets, n_jobs):
        if not os.path.exists(self.folder):
            say(f"cloning the last commit to {self.folder}")
            subprocess.run(["git", "clone", "--quiet", ROOT, self.folder], check=True)
            with open(os.path.join(self.folder, MARK), "w", encoding="utf-8") as mark:
                mark.write("tests/mutation/mutation.py planted faults into this tree.\n")
        if not os.path.exists(os.path.join(self.folder, MARK)):
            sys.exit(f"{self.folder}: is no copy that this program made (it has no file {MARK})")
        say(f"planted faults into {len(plant(faults, self.folder))} files of {self.folder}")
        if not os.path.exists(os.path.join(self.build, "CMakeCache.txt")):
            subprocess.run(["cmake", "--preset", self.preset], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        say(f"building with {n_jobs} compilers")
        subprocess.run(["cmake", "--build", self.build, "-j", str(n_jobs), *targets], check=True, stdout=subprocess.DEVNULL)

    def noticed_by_cases(self, program, spec, number, limit):
        """The first test case of a program that fails, in words, or nothing."""
        command = [os.path.join(self.tests, f"test_{program}"), "-#", "-a", "-r", "automake", spec]
        status, output = run(command, self.tests, number, limit)
        if status == 0 or (status == 4 and ":test-result: FAIL" not in output):  # 4: every case was skipped
            return None
        failed = re.findall(r"^:test-result: FAIL (.*)$", output, re.MULTILINE)
        how = "the time limit" if status is None else f"signal {-status}" if status < 0 else f"exit code {status}"
        return f"{program}: {failed[-1] if failed else how}"

    def noticed_by_python(self, names, number):
        command = [os.path.join(self.folder, "traces", "python", "test.sh"), "-x"]
        command += [name + ".py" for name in names.split()]
        program = os.path.join(self.build, "bin", "kvscope")
        settings = [f"KVSCOPE_PROGRAM={program}"]
        if number > 0:  # the run without a fault has installed the package
            settings.append("KVSCOPE_PYTHON_PREPARED=1")
        status, output = run(["env", *settings, *command], self.folder, number, NEAR_LIMIT)
        if status == SKIPPED:
            sys.exit(f"the Python tests cannot run here: {output.strip().splitlines()[-1]}")
        if status == 0:
            return None
        failed = re.findall(r"^FAILED (\S+)", output, re.MULTILINE)
        return f"python: {failed[0] if failed else 'the time limit' if status is None else f'exit code {status}'}"

    def noticed_near(self, near, number):
        for program, names in near.items():
            if program == "python":
                noticed = self.noticed_by_python(names, number)
            else:
                spec = ",".join(f"[#{name}]~[heavy]~[.]" for name in names.split())
                noticed = self.noticed_by_cases(program, spec, number, NEAR_LIMIT)
            if noticed:
                return noticed
        return None

    def noticed_anywhere(self, number):
        for program in PROGRAMS:
            noticed = self.noticed_by_cases(program, "~[.]", number, LIMIT)
            if noticed:
                return noticed
        # What has no cases of Catch2: attacks, engines, the first hour, notebooks, windows, Python.
        cases = "|".join(PROGRAMS)
        command = ["ctest", "--stop-on-failure", "-LE", "tidy|gpu", "-E", f"{TEXT_TESTS}|^({cases}): "]
        status, output = run(command, self.build, number, 2 * LIMIT)
        if status == 0:
            return None
        failed = re.findall(r"Test +#\d+: (.*?) \.*\*\*\*", output)
        return f"ctest: {failed[0] if failed else status}"


def baseline(copy, chosen):
    """Ends the program unless all near tests pass without a fault."""
    near = {}
    for fault in chosen:
        for program, names in fault.near.items():
            near.setdefault(program, {}).update(dict.fromkeys(names.split()))
    for program, names in near.items():
        noticed = copy.noticed_near({program: " ".join(names)}, 0)
        say(f"without a fault: {program}: {noticed or 'passed'}")
        if noticed:
            sys.exit("tests that fail without a fault say nothing about faults")


def row_of(fault, noticed, where, seconds):
    return (f"| {fault.number} | {fault.module} | {fault.kind} | {fault.breaks} | {noticed or '**nothing**'} "
            f"| {where} | {seconds:.0f} |")


def judge(copy, chosen, near_only, table):
    """Runs the faults one by one and returns the numbers of those that nothing noticed."""
    lines = ["| | module | kind | what it does | noticed by | tests | s |", "|---|---|---|---|---|---|---|"]
    missed = []
    for fault in chosen:
        start = time.monotonic()
        where = "near"
        noticed = copy.noticed_near(fault.near, fault.number)
        if not noticed and not near_only:
            where = "all"
            noticed = copy.noticed_anywhere(fault.number)
        if not noticed:
            missed.append(fault.number)
        lines.append(row_of(fault, noticed, where, time.monotonic() - start))
        say(lines[-1])
        if table:
            with open(table, "w", encoding="utf-8") as out:
                out.write("\n".join(lines) + "\n")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only that every fault has its place in this tree")
    parser.add_argument("--copy", help="the folder of the copy; made where it is missing, used again where it is there")
    parser.add_argument("--only", help="numbers of faults, as 3,7")
    parser.add_argument("--near", action="store_true", help="only the tests nearest to each fault")
    parser.add_argument("--gpu", action="store_true", help="the faults of core/cuda, by their nearest tests")
    parser.add_argument("--built", action="store_true", help="the copy was built elsewhere, on a machine without a GPU")
    parser.add_argument("--preset", default="release", help="of CMake, for the copy")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument("--table", help="a file for the results as a Markdown table")
    arguments = parser.parse_args()

    found = problems(FAULTS + DEVICE_FAULTS, ROOT)
    if found:
        sys.exit("\n".join(found))
    if arguments.check:
        return say(f"{len(FAULTS + DEVICE_FAULTS)} faults have their place")
    faults = DEVICE_FAULTS if arguments.gpu else FAULTS
    numbers = [int(word) for word in (arguments.only or "").split(",") if word]
    chosen = [fault for fault in faults if not numbers or fault.number in numbers]
    if not chosen or not arguments.copy:
        parser.error(f"expected --copy DIR, and numbers of faults from {faults[0].number} to {faults[-1].number}")
    copy = Copy(arguments.copy, arguments.preset)
    if not arguments.built:
        copy.make(faults, ["--target", "test_cuda"] if arguments.gpu else [], arguments.jobs)
    baseline(copy, chosen)
    missed = judge(copy, chosen, arguments.near or arguments.gpu, arguments.table)
    say(f"{len(chosen) - len(missed)} of {len(chosen)} faults were noticed"
        + (f"; not noticed: {', '.join(map(str, missed))}" if missed else ""))
    sys.exit(0 if len(chosen) - len(missed) >= min(LEAST, len(chosen)) else 1)


if __name__ == "__main__":
    main()
