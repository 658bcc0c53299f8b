#!/usr/bin/env python3
"""clang-tidy with the checks of .clang-tidy over the libraries and programs, many sources at a time.

usage: tidy_test.py BUILD_FOLDER [FOLDER ...]

Sources of one folder are included into one file, as unity builds do, so that headers are read once for all of them
(anonymous names of one folder differ); a finding names the source itself. Left out are vector kernels (files that include hwy/foreach_target.h), whose
intrinsics clang-tidy takes for mistakes, CUDA and the Python module. Needs clang-tidy 14, whose checks the tree passes:
without it the test is skipped (code 77). Folders: core analysis traces notebooks_export gui, or those given.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["core", "traces", "analysis", "notebooks_export", "gui"]
GROUP = 20  # sources per file


def clang_tidy():
    for name in ("clang-tidy-14", "clang-tidy"):
        program = shutil.which(name)
        if program and "version 14." in subprocess.run([program, "--version"], capture_output=True, text=True).stdout:
            return program
    print("skipped: there is no clang-tidy 14 (on Debian 12 and Ubuntu: apt-get install clang-tidy-14)")
    sys.exit(77)


def flags_by_folder(build):
    """Include paths, definitions and the standard of each folder, from what the build was configured with."""
    flags = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        output = words[words.index("-o") + 1]
        folder = output.split("/CMakeFiles/")[0]
        if folder.split("/")[0] not in FOLDERS:
            continue
        kept = []
        takes_next = False
        for word in words[1:]:
            if takes_next or re.match(r"-(I|D|std=)", word):
                kept.append(("-isystem" if takes_next else "") + word)
            takes_next = word == "-isystem"
        of = flags.setdefault(folder, [])
        of += [word for word in kept if word not in of]
    return flags


def groups(folder, all_folders):
    """Lists of sources of one folder each, below a folder that has a target of its own."""
    sources = {}
    for source in sorted((ROOT / folder).rglob("*.cpp")):
        place = source.parent.relative_to(ROOT).as_posix()
        nearest = max((f for f in all_folders if (place + "/").startswith(f + "/")), key=len)
        if nearest != folder or place.startswith(("core/cuda", "traces/python")):
            continue
        text = source.read_text()
        if "hwy/foreach_target.h" in text:
            continue
        if re.search("^// Compiled alone", text, re.M):
            yield [source]
        else:
            sources.setdefault(place, []).append(source)
    for place in sources.values():
        for first in range(0, len(place), GROUP):
            yield place[first:first + GROUP]


def main():
    program = clang_tidy()
    build = pathlib.Path(sys.argv[1]).resolve()
    flags = flags_by_folder(build)
    wanted = sys.argv[2:] or FOLDERS
    with tempfile.TemporaryDirectory() as scratch:
        jobs = []
        for folder in sorted(flags):
            if not any((folder + "/").startswith(one.rstrip("/") + "/") for one in wanted):
                continue
            for number, sources in enumerate(groups(folder, flags)):
                file = pathlib.Path(scratch) / f"{folder.replace('/', '_')}_{number}.cpp"
                file.write_text("".join(f'#include "{source}"\n' for source in sources))
                jobs.append([program, "--quiet", "--warnings-as-errors=*", f"--config-file={ROOT / '.clang-tidy'}",
                             f"--header-filter=^{re.escape(str(ROOT))}/({'|'.join(FOLDERS)})/", str(file), "--",
                             *flags[folder]])
        failed = 0
        seen = set()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in pool.map(lambda job: subprocess.run(job, capture_output=True, text=True, cwd=ROOT), jobs):
                failed += done.returncode != 0
                for block in re.split(r"\n(?=/)", done.stdout):
                    if block.strip() and block not in seen:
                        seen.add(block)
                        print(block.replace(str(ROOT) + "/", ""))
                if done.returncode != 0 and not done.stdout.strip():
                    print(done.stderr[-2000:])
        print(f"{len(jobs)} groups of sources, {failed} with findings")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
