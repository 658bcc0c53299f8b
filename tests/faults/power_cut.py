"""After a power cut: power_cut.py PROGRAM SHIM [--share S] [--seed N] [--tell].

The shim (tests/support/failing_disk.c) writes down every file made, write, size, sync, rename and removal of a command. This
program rebuilds the folder as it may be after each prefix of that tape:

  all        every change of the prefix, as after SIGKILL
  names      names at once, bytes only where a sync followed: of a file's later writes none is there
  torn       the same, but each later write is there, missing or cut at a multiple of 512 bytes, as the seed draws
  bytes      bytes at once, names only where the folder was synced: later renames and removals did not happen

and then goes on as a user would: opens, recovers, resumes, starts again. What must hold:

  a file under its final name is whole: the bytes of an undisturbed run, or what stood there before
  what a command reported as written (it had ended) is there in every case
  a recording that was under way is recovered, and what is recovered passes verify, or is refused in a sentence
  a run that goes on ends with the bytes of an undisturbed run, or with a sentence and code 3: never with others

Prints a line for each finding and the counts by command. Code 1 if there is a finding.
"""

import argparse
import collections
import os
import random
import shutil
import sys
import tempfile

from commands import COMMANDS, Folder

WAYS = ["all", "names", "torn", "bytes"]
SECTOR = 512
# How a command is started again, where that is not the command itself.
AGAIN = {"sweep": ["--resume"], "sweep .h5": ["--resume"], "simulate": ["--resume"], "record": ["--overwrite"],
         "record --compression": ["--overwrite"], "table": ["--overwrite"], "recover": ["--overwrite"]}
TAPED = ["table", "sweep", "sweep .h5", "simulate", "sweep --store", "record", "record --compression",
         "record --resume", "recover", "worker", "study"]


class Change:
    def __init__(self, op, offset, number, path, target, data):
        self.op, self.offset, self.number, self.path, self.target, self.data = op, offset, number, path, target, data


def read_tape(file):
    changes = []
    with open(file, "rb") as tape:
        while head := tape.readline():
            op, n, offset, number, path, target = head.decode().rstrip("\n").split("|")
            names = [os.path.normpath(name) if name else "" for name in (path, target)]
            changes.append(Change(op, int(offset), int(number), *names, tape.read(int(n))))
    return changes


class Disk:
    """Files and names as they are after a cut. `old`: what was there before, by path."""

    def __init__(self, old):
        self.files = {number: bytearray(data) for number, (path, data) in enumerate(old.items())}
        self.names = {path: number for number, path in enumerate(old)}

    def number_of(self, path):
        if path not in self.names:
            self.names[path] = max(self.files, default=-1) + 1
            self.files[self.names[path]] = bytearray()
        return self.names[path]

    def write(self, number, offset, data):
        file = self.files[number]
        file.extend(b"\0" * (offset - len(file)))
        file[offset:offset + len(data)] = data


def number_changes(changes, old):
    """Which file each change is of: names move, files stay."""
    disk, numbers = Disk(old), []
    folders = {os.path.dirname(change.path) for change in changes}  # some are gone by now
    for change in changes:
        if change.op == "name":
            number = disk.names.pop(change.path, None)
            if number is not None:
                disk.names[change.target] = number
        elif change.op == "gone":
            number = disk.names.pop(change.path, None)  # None of a folder
        elif change.path in folders or os.path.isdir(change.path):
            number = None  # a folder's sync
        else:
            number = disk.number_of(change.path)
        numbers.append(number)
    return numbers


def after_cut(changes, numbers, old, n, way, drawn):
    """{path: bytes} after the first n changes."""
    synced = {}  # of a file: the last change before its last sync; of a folder, by its path
    for i in range(n):
        if changes[i].op == "sync":
            synced[changes[i].path if numbers[i] is None else numbers[i]] = i
    disk = Disk(old)
    for i in range(n):
        change, number = changes[i], numbers[i]
        is_durable = way in ("all", "bytes") or i < synced.get(number, -1)
        if change.op in ("name", "gone"):
            folder = os.path.dirname(change.target or change.path)
            if way == "bytes" and i >= synced.get(folder, -1):
                continue
            moved = disk.names.pop(change.path, None)
            if change.op == "name" and moved is not None:
                disk.names[change.target] = moved
        elif change.op == "made":
            made = disk.number_of(change.path)
            if change.number:
                disk.files[made] = bytearray()
        elif change.op == "size" and is_durable and number in disk.files:
            file = disk.files[number]
            file.extend(b"\0" * (change.number - len(file)))
            del file[change.number:]
        elif change.op == "write" and number is not None:
            data = change.data
            if not is_durable:
                kept = drawn.choice([0, len(data), drawn.randrange(0, len(data) + 1, SECTOR)]) if way == "torn" else 0
                data = data[:kept]
            if number in disk.files and data:
                disk.write(number, change.offset, data)
    return {path: bytes(disk.files[number]) for path, number in disk.names.items()}


def again_words(command):
    return [*command.words, *AGAIN.get(command.name, [])]


class Test:
    def __init__(self, folder, share, seed):
        self.folder, self.share, self.drawn = folder, share, random.Random(seed)
        self.findings, self.counts = 0, collections.Counter()

    def find(self, command, what, finding):
        self.findings += 1
        print(f"power cut: {command.name}, {what}: {finding}", flush=True)

    def try_command(self, command):
        self.folder.prepare(command)
        old = {self.folder.at(name): data for name, data in self.folder.files().items()}
        tape = self.folder.path + ".tape"
        if os.path.exists(tape):
            os.remove(tape)
        done = self.folder.run(command.words, {"KVSCOPE_DISK_TAPE": tape})
        if done.returncode != 0:
            self.find(command, "undisturbed", done.stderr)
            return
        right = self.folder.files()
        again = self.made_again(command, right)
        if command.goes_on:
            self.right, _ = self.folder.go_on(command)
        changes = [change for change in read_tape(tape) if "/tmp/" not in change.path[len(self.folder.path):]]
        numbers = number_changes(changes, old)
        for n in range(len(changes) + 1):
            for way in WAYS:
                is_end = n == len(changes)
                if is_end or self.drawn.random() < self.share:
                    state = after_cut(changes, numbers, old, n, way, self.drawn)
                    self.try_state(command, f"{way}, {n} of {len(changes)} changes", state, right, None if is_end else again)

    def made_again(self, command, right):
        """The outputs of the command that a user starts after the cut: they may hold its words."""
        if "--resume" in again_words(command):
            return right
        self.folder.prepare(command)
        self.folder.make(again_words(command))
        return self.folder.files()

    def try_state(self, command, what, state, right, made_again):
        is_end = made_again is None
        self.counts[command.name] += 1
        self.folder.clear()
        for path, data in state.items():
            if os.path.relpath(path, self.folder.path).startswith("in" + os.sep):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        found = self.folder.files()
        for name in command.outputs:
            if name in found and found[name] != right[name]:
                self.find(command, what, f"{name} is there and not whole")
            if is_end and name not in found:
                self.find(command, what, f"{name} was reported as written and is gone")
        for name in right:
            if is_end and "/answers/" in name and found.get(name) != right[name]:
                self.find(command, what, f"answers in {name} were reported and are gone")
        if is_end:
            return
        self.recover(command, what, found)
        words = again_words(command)
        if "--resume" in words and command.outputs[0] in found:
            return  # it had ended
        again = self.folder.run(words)
        if again.returncode == 0 and command.goes_on and self.folder.go_on(command) != (self.right, ""):
            self.find(command, what, "started again, code 0 and another result")
        if again.returncode == 0:
            now = self.folder.files()
            for name in command.outputs:
                if now.get(name) != made_again[name]:
                    self.find(command, what, f"started again, code 0 and other bytes in {name}")
        elif again.returncode not in (2, 3) or not again.stderr.strip().split("\n")[-1].startswith("kvscope: "):
            self.find(command, what, f"started again: code {again.returncode}: {again.stderr.strip()}")
        else:
            self.counts[command.name + ": refused"] += 1
            if self.tells:
                print(f"{command.name}, {what}: refused: {again.stderr.strip()}")

    def recover(self, command, what, found):
        for name in found:
            if not command.name.startswith("record") or not name.endswith(".h5.part"):
                continue
            out = "recovered.h5"
            done = self.folder.run(["recover", name, "--out", out])
            if done.returncode == 0:
                verified = self.folder.run(["verify", out])
                if verified.returncode != 0:
                    self.find(command, what, f"recovered, and verify says: {verified.stderr}")
                self.counts[command.name + ": recovered"] += 1
            elif done.returncode not in (2, 3) or not done.stderr.startswith("kvscope: "):
                self.find(command, what, f"recover: code {done.returncode}: {done.stderr.strip()}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("shim")
    parser.add_argument("--commands")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tell", action="store_true", help="what was refused, and why")
    asked = parser.parse_args()
    names = asked.commands.split(",") if asked.commands else TAPED
    with tempfile.TemporaryDirectory(prefix="kvscope_cuts_") as path:
        test = Test(Folder(asked.program, asked.shim, os.path.join(path, "w")), asked.share, asked.seed)
        test.tells = asked.tell
        for command in COMMANDS:
            if command.name in names:
                test.try_command(command)
        print("power cut:", ", ".join(f"{name} {n}" for name, n in test.counts.items()), f"({test.findings} findings)")
        return 1 if test.findings else 0


if __name__ == "__main__":
    sys.exit(main())
