"""Every call that can fail, fails once: faults.py PROGRAM SHIM [--commands A,B] [--share S] [--reads S] [--seed N].

Each command of commands.py runs over small inputs while the k-th write, pwrite, fsync, close, rename, open, ftruncate, read,
pread, mmap or unlink on a file below its folder fails (EIO; ENOSPC once and from there on; half of the bytes; EINTR), for
every k, or for a share of them that the seed draws. One oracle:

  code 0      the bytes of an undisturbed run, on standard output and in every file
  another     under each final name nothing, what stood there before, or the whole new file; the last line of standard error
              begins with "kvscope: " and names a file and the system's reason; nothing is left over but what the next start
              goes on from
  always      no signal ends it, no input changes, and what goes on from it has the undisturbed result

Prints a line for each finding, and the counts by command at the end. Code 1 if there is a finding.
"""

import argparse
import collections
import errno
import os
import random
import struct
import sys
import tempfile

from commands import COMMANDS, Folder, older_file

CALLS = ["write()", "pwrite()", "fsync()", "close()", "rename()", "open()", "ftruncate()", "read()", "pread()", "mmap()",
         "unlink()"]
FOREVER = 1_000_000
# name, errno (0: half of the bytes), calls that fail, which functions; a short or interrupted call is no failure of the disk
FAULTS = [("EIO", errno.EIO, 1, CALLS),
          ("ENOSPC", errno.ENOSPC, 1, ["write()", "pwrite()", "open()", "ftruncate()", "fsync()", "rename()", "close()"]),
          ("ENOSPC from there on", errno.ENOSPC, FOREVER, ["write()", "pwrite()", "open()"]),
          ("half", 0, 1, ["write()", "pwrite()", "read()", "pread()"]),
          ("EINTR", errno.EINTR, 1, ["write()", "pwrite()", "read()", "pread()"])]


class Test:
    def __init__(self, folder):
        self.folder, self.findings, self.counts = folder, [], collections.Counter()
        self.inputs = self.state_of_inputs()

    def state_of_inputs(self):
        state = {}
        for where, _, names in os.walk(self.folder.at("in")):
            for name in names:
                status = os.stat(os.path.join(where, name))
                state[os.path.join(where, name)] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return state

    def run(self, command, call, reason, at, for_, old):
        count = self.folder.path + ".count"
        if os.path.exists(count):
            os.remove(count)
        self.folder.prepare(command, old)
        words = command.words + ([command.again] if old else [])
        done = self.folder.run(words, {"KVSCOPE_FAIL_CALL": call, "KVSCOPE_FAIL_AT": str(at), "KVSCOPE_FAIL_FOR": str(for_),
                                       "KVSCOPE_FAIL_ERRNO": str(reason), "KVSCOPE_FAIL_COUNT": count})
        with open(count, "rb") as file:
            return done, struct.unpack("q", file.read())[0]

    def try_command(self, command, chosen):
        """`chosen`: of (fault, call, k) those that are tried."""
        undisturbed = {}  # a result may hold its command line, and with it the option that lets it replace a file
        for old in {False, command.again is not None}:
            self.folder.prepare(command, old)
            plain = self.folder.run(command.words + ([command.again] if old else []))
            undisturbed[old] = (plain, self.folder.files())
            if plain.returncode != 0:
                self.find(command, "undisturbed", f"code {plain.returncode}: {plain.stderr}")
                return
        if command.goes_on:
            self.right, _ = self.folder.go_on(command)
        n_calls = {call: self.run(command, call, errno.EIO, 0, 1, False)[1] for call in CALLS}
        for fault, reason, for_, calls in FAULTS:
            for call in calls:
                for k in range(1, n_calls[call] + 1):
                    if chosen(fault, call, k):
                        self.try_fault(command, undisturbed, fault, call, reason, for_, k)

    def try_fault(self, command, undisturbed, fault, call, reason, for_, k):
        old = command.again is not None and k % 2 == 0
        plain, right = undisturbed[old]
        what = f"{call} {k} {fault}{' over an older file' if old else ''}"
        try:
            done, _ = self.run(command, call, reason, k, for_, old)
        except Exception as error:  # a time limit
            self.find(command, what, str(error))
            return
        self.counts[command.name] += 1
        found = self.folder.files()
        said = done.stderr.strip().split("\n")[-1]
        if done.returncode < 0:
            self.find(command, what, f"signal {-done.returncode}")
        elif done.returncode == 0:
            if done.stdout != plain.stdout:
                self.find(command, what, "code 0 and another standard output")
            for name in command.outputs:
                if found.get(name) != right[name]:
                    self.find(command, what, f"code 0 and other bytes in {name}")
        else:
            # What a study names is looked at with its lines, and a refusal says the line.
            if done.returncode not in (3, 4) and not (command.name == "study" and done.returncode == 2 and "in/s.toml, line " in said):
                self.find(command, what, f"code {done.returncode}: {said}")
            if reason in (0, errno.EINTR):
                self.find(command, what, f"not tried again: {said}")
            for name in command.outputs:
                if found.get(name) not in (right[name], older_file(command, name) if old else None):
                    self.find(command, what, f"code {done.returncode} and another file as {name}")
            # Items that failed have a line each before the last one, and what verify finds stands in its report.
            told = done.stdout + done.stderr if done.returncode == 4 or command.name == "verify" else said
            if not said.startswith("kvscope: ") or os.strerror(reason) not in told:
                self.find(command, what, f"no reason in: {told}")
            if not any(part in told for part in (self.folder.path, *self.names())):
                self.find(command, what, f"no file in: {told}")
        for name in found:
            if name.endswith(".part") and not name.startswith(tuple(command.left)) and call != "unlink()":
                self.find(command, what, f"left over: {name}")
        if command.goes_on and self.folder.go_on(command) != (self.right, ""):
            self.find(command, what, f"code {done.returncode}, and then another result: {self.folder.go_on(command)[1]}")
        if self.state_of_inputs() != self.inputs:
            self.find(command, what, "an input changed")
            self.inputs = self.state_of_inputs()

    def names(self):
        return [name for _, _, names in os.walk(self.folder.path) for name in names] + ["o.", "budget.", "in/", "out", "u/"]

    def find(self, command, what, finding):
        self.findings.append(finding)
        print(f"faults: {command.name}, {what}: {finding}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("shim")
    parser.add_argument("--commands")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--reads", type=float, help="the share of preads, of which there are most [as --share]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    names = asked.commands.split(",") if asked.commands else [command.name for command in COMMANDS]
    drawn = random.Random(asked.seed)
    share_of = dict.fromkeys(CALLS, asked.share)
    if asked.reads is not None:
        share_of["pread()"] = asked.reads
    with tempfile.TemporaryDirectory(prefix="kvscope_faults_") as path:
        test = Test(Folder(asked.program, asked.shim, os.path.join(path, "w")))
        for command in COMMANDS:
            if command.name in names:
                test.try_command(command, lambda fault, call, k: drawn.random() < share_of[call])
        print("faults:", ", ".join(f"{name} {n}" for name, n in test.counts.items()), f"({sum(test.counts.values())} in all,"
              f" {len(test.findings)} findings)")
        return 1 if test.findings else 0


if __name__ == "__main__":
    sys.exit(main())
