#!/usr/bin/env python3
"""Runs FIRST_HOUR.md, command by command, as a reader would.

    python3 tests/readme/first_hour.py build/release/bin/kvscope              # in a folder that is deleted
    python3 tests/readme/first_hour.py PROGRAM --keep DIR                     # in DIR, which stays

Commands are the lines of the blocks fenced as ```sh. Each runs in bash in one fresh folder; lines such as
model=verifier are kept for the commands after them. A command that opens a window must say so ("# opens a
window") and gets --screenshot added. A run fails if

- a command ends with another code than 0 (the commands after it are then not run);
- a file that the text names in backticks, or that a ```tex block includes, is missing or empty afterwards.
  (Files of a model's folder, as config.json, are looked for in that of the embedded verifier.)
- a table of the text is not what a command printed: other names or marks, or a number that differs by more than 0.005.

Where the explorer was not built, its commands are left out, and the output says so. Standard library only.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WINDOW_PROGRAM = "kvscope-explorer"
WINDOW_REMARK = "# opens a window"
SECONDS = 280  # per command
# What a page calls the panels of a window, and how they lie.
PANELS = {"map of every head": "heads", "attention map": "attention-map", "queries that QuoKA chooses": "query-selection",
          "principal axes": "geometry", "the text": "tokens"}
SPLITS = {"above": "rows", "beside": "columns"}
FILE_NAME = re.compile(r"[\w./-]+\.(?:h5|pdf|svg|png|tex|csv|json|md|ipynb|safetensors)")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*(\s+#.*)?")
MARK = re.compile(r"</?u>|\*\*")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
TOLERANCE = 0.005


def split_fences(page):
    """([(language, text)], prose): the fenced blocks in order, and what is outside them."""
    pattern = re.compile(r"^```(\w*)\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
    return [(m[1], m[2]) for m in pattern.finditer(page)], pattern.sub("\n", page)


def command_lines(blocks):
    lines = []
    for language, text in blocks:
        if language == "sh":
            lines += re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    return [line for line in lines if line.strip()]


def promised_files(blocks, prose):
    """Names of files that must exist when all commands have run."""
    names = [name for name in re.findall(r"`([^`\n]+)`", prose) if FILE_NAME.fullmatch(name)]
    for language, text in blocks:
        if language == "tex":
            names += re.findall(r"\\(?:includegraphics|input)\{([^}]+)\}", text)
    return list(dict.fromkeys(names))


def table_rows(text):
    """{first cell: (number, mark) of the other cells} of Markdown rows whose other cells are numbers."""
    rows = {}
    for line in text.splitlines():
        if not line.startswith("|") or set(line) <= set("|-: "):
            continue
        name, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        plain = [MARK.sub("", cell) for cell in cells]
        if cells and all(NUMBER.fullmatch(cell) for cell in plain):
            rows[name] = [(float(number), "".join(MARK.findall(cell))) for number, cell in zip(plain, cells)]
    return rows


def panels_in(place):
    return [place] if isinstance(place, str) else [name for part in place["parts"] for name in panels_in(part)]


class Hour:
    def __init__(self, program, folder):
        self.program = pathlib.Path(program).resolve()
        self.folder = folder
        self.before = []  # assignments so far
        self.left_out = []
        self.outputs = ""
        self.failures = []
        self.n_windows = 0
        programs = folder / ".programs"
        programs.mkdir()
        (programs / "kvscope").symlink_to(self.program)
        explorer = self.program.with_name(WINDOW_PROGRAM)
        self.has_explorer = explorer.exists()
        if self.has_explorer:
            (programs / WINDOW_PROGRAM).symlink_to(explorer)
        self.environment = dict(os.environ, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
                                KVSCOPE_CONFIG=str(folder / ".config"))

    def adapted(self, line):
        """The command as it is run: with a picture instead of a window."""
        words = shlex.split(line, comments=True)
        if words[0] != WINDOW_PROGRAM or "--screenshot" in words:
            return line
        if WINDOW_REMARK not in line:
            self.failures.append(f"{line}\n  opens a window, and FIRST_HOUR.md does not say so ({WINDOW_REMARK})")
        self.n_windows += 1
        return f"{line.split('#')[0].rstrip()} --screenshot .window{self.n_windows}.png --state .window{self.n_windows}.json"

    def run(self, line):
        """True if it ended well, or was left out."""
        print(f"$ {line}", flush=True)
        if ASSIGNMENT.fullmatch(line):
            self.before.append(line)
            return True
        if line.split()[0] == WINDOW_PROGRAM and not self.has_explorer:
            print(f"  left out: there is no {WINDOW_PROGRAM} beside {self.program}")
            self.left_out.append(line)
            return True
        command = self.adapted(line)
        if command != line:
            print(f"  run as: {command}")
        started = time.monotonic()
        script = "\n".join(["set -euo pipefail", *self.before, command])
        try:
            done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment, timeout=SECONDS,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            self.failures.append(f"{line}\n  took longer than {SECONDS} s")
            return False
        print(f"  code {done.returncode}, {time.monotonic() - started:.1f} s", flush=True)
        self.outputs += done.stdout
        if done.returncode != 0:
            self.failures.append(f"{line}\n  ended with code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.returncode == 0

    def check_files(self, names):
        for name in names:
            if any(f"--screenshot {name}" in line for line in self.left_out):
                continue
            places = [self.folder / name, ROOT / "traces/samples/verifier" / name]
            if not any(place.is_file() and place.stat().st_size > 0 for place in places):
                self.failures.append(f"FIRST_HOUR.md names {name}; no command has written it")

    def check_window(self, sentence, state):
        """The panels that a sentence names are those of the window, and lie as it says."""
        named = sorted(panel for words, panel in PANELS.items() if words in sentence)
        place = json.loads((self.folder / state).read_text(encoding="utf-8"))["layout"]["arrangement"]
        if sorted(panels_in(place)) != named or not all(
                place["split"] == split for word, split in SPLITS.items() if word in sentence):
            self.failures.append(f"{sentence!r} says {named}; the window has {place}")

    def check_tables(self, prose):
        printed = table_rows(self.outputs)
        for name, numbers in table_rows(prose).items():
            found = printed.get(name)
            if found is None or len(found) != len(numbers) or any(
                    abs(a - b) > TOLERANCE or mark != its for (a, mark), (b, its) in zip(numbers, found)):
                self.failures.append(f"FIRST_HOUR.md's table says {name}: {numbers}; printed was {found}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="path of kvscope; kvscope-explorer is looked for beside it")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "FIRST_HOUR.md")
    parser.add_argument("--keep", type=pathlib.Path, help="an empty or new folder to run in")
    options = parser.parse_args()
    blocks, prose = split_fences(options.page.read_text(encoding="utf-8"))
    lines, names = command_lines(blocks), promised_files(blocks, prose)
    if len(lines) < 5 or len(names) < 5:
        sys.exit(f"{options.page}: expected at least 5 commands and 5 files, found {len(lines)} and {len(names)}")
    with tempfile.TemporaryDirectory(prefix="kvscope_first_hour_") as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            sys.exit(f"--keep {folder}: expected an empty folder")
        hour = Hour(options.program, folder.resolve())
        started = time.monotonic()
        for line in lines:
            if not hour.run(line):
                break  # what follows would fail for that reason alone
        else:
            hour.check_files(names)
            hour.check_tables(prose)
            if hour.has_explorer:
                hour.check_window(re.search(r"The window opens with ([^.]*)\.", prose)[1], ".window1.json")
                hour.run(f"{WINDOW_PROGRAM} trace.h5 --layout overview --screenshot .overview.png --state .overview.json")
                readme = (ROOT / "README.md").read_text(encoding="utf-8")
                hour.check_window(re.search(r"!\[([^]]*)\]\(gui/screenshots/overview", readme)[1], ".overview.json")
        print(f"{len(lines)} lines, {len(hour.left_out)} left out, {len(names)} files named, "
              f"{time.monotonic() - started:.1f} s, {len(hour.failures)} failures")
    for failure in hour.failures:
        print(f"\nFAILED: {failure}")
    return 1 if hour.failures else 0


if __name__ == "__main__":
    sys.exit(main())
