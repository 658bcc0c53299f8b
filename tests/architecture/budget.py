#!/usr/bin/env python3
"""The size of the tree against its budget, tests/architecture/budget.txt: a ratchet that only goes down.

usage: budget.py [--lower | --show]

Red where a number stands above its budget, and where it stands more than two in a hundred below: then `--lower` writes
today's numbers, which go into the same commit. It never raises one; that is done by hand, with the reason in the
commit's message. `--show` prints every row with what is left to the end.

Counted are the lines, blank ones and comments too, of every file of code that git tracks or would track: what ends in one
of SUFFIXES, and what has no suffix and starts with `#!`. Data is not code: texts, weights, golden values. The code of
tests/ and of the Python package's tests is tests, all other is program. Documents are the words of *.md, as `wc -w` counts.
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUDGET = pathlib.Path(__file__).with_name("budget.txt")
SUFFIXES = {".cpp", ".hpp", ".cu", ".cuh", ".c", ".py", ".pyi", ".js", ".css", ".cmake", ".sh", ".in"}
SLACK = 0.02

# Rows from the special to the general: a file counts in the first whose folder holds it.
PLACES = [
    ("tests", ["tests", "traces/python/tests"]),
    ("core/cuda", ["core/cuda"]),
    ("core", ["core"]),
    ("traces/python", ["traces/python"]),
    ("traces", ["traces"]),
    ("analysis/cli", ["analysis/cli"]),
    ("analysis", ["analysis"]),
    ("notebooks_export", ["notebooks_export"]),
    ("gui", ["gui"]),
    ("build", [""]),
]


def tracked():
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=True).stdout.decode()
    for name in sorted(set(listed.split("\0")) - {""}):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            yield name, path


def is_code(name, path):
    suffix = os.path.splitext(name)[1]
    if suffix in SUFFIXES or os.path.basename(name) == "CMakeLists.txt":
        return True
    if suffix:
        return False
    with open(path, "rb") as opened:
        return opened.read(2) == b"#!"


def place_of(name):
    for row, folders in PLACES:
        if any(not folder or name.startswith(folder + "/") for folder in folders):
            return row
    raise AssertionError(name)


def measured():
    """{row: [lines, files]}, with the row `program` of all that is no test, and [words, files] for `documents`."""
    found = {row: [0, 0] for row, _ in PLACES}
    found["documents"] = [0, 0]
    for name, path in tracked():
        if name.endswith(".md"):
            row, count = "documents", len(path.read_bytes().split())
        elif is_code(name, path):
            row, count = place_of(name), path.read_bytes().count(b"\n")
        else:
            continue
        found[row][0] += count
        found[row][1] += 1
    parts = [found[row] for row, _ in PLACES if row != "tests"]
    found["program"] = [sum(lines for lines, _ in parts), sum(files for _, files in parts)]
    return found


def budgets():
    """The file's lines as they stand, and {row: (line number, size, files, final size)}."""
    lines = BUDGET.read_text().splitlines()
    rows = {}
    for number, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            row, size, files, final = line.split()
            rows[row] = (number, int(size), int(files), int(final))
    return lines, rows


def problems(found, rows):
    if set(found) != set(rows):
        yield f"budget.txt has the rows {sorted(rows)}, the tree has {sorted(found)}"
        return
    for row, (_, size, files, _) in rows.items():
        unit = "words" if row == "documents" else "lines"
        for what, now, limit in ((unit, found[row][0], size), ("files", found[row][1], files)):
            if now > limit:
                yield (f"{row}: {now} {what}, {now - limit} more than the budget of {limit}. Take something away, or raise "
                       "the number and say in the commit's message why it is worth it")
            elif now < limit * (1 - SLACK):
                yield f"{row}: {now} {what}, the budget says {limit}. Lower it: tests/architecture/budget.py --lower"


def main(arguments):
    found = measured()
    lines, rows = budgets()
    if arguments == ["--show"]:
        print(f"{'':18} {'now':>8} {'budget':>8} {'files':>6} {'final':>8} {'to go':>8}")
        for row, (_, size, _, final) in rows.items():
            now, files = found[row]
            print(f"{row:18} {now:8} {size:8} {files:6} {final:8} {max(0, now - final):8}")
        return 0
    if arguments == ["--lower"]:
        for row, (number, size, files, final) in rows.items():
            lines[number] = f"{row:18} {min(size, found[row][0]):8} {min(files, found[row][1]):6} {final:8}"
        BUDGET.write_text("\n".join(lines) + "\n")
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    said = list(problems(found, rows))
    for sentence in said:
        print(sentence)
    return 1 if said else 0


if __name__ == "__main__":
    if not (ROOT / ".git").exists():
        print("skipped: this tree is no git checkout, so nothing says which files belong to it")
        sys.exit(77)
    sys.exit(main(sys.argv[1:]))
