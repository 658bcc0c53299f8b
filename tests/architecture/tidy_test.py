#!/usr/bin/env python3
"""clang-tidy with the checks of .clang-tidy over the libraries and programs, many sources at a time.

usage: tidy_test.py BUILD_FOLDER [FOLDER ...]

Sources of one folder are included into one file, as unity builds do, so that headers are read once for all of them
(anonymous names of one folder differ); a finding names the source itself. Left out are vector kernels (files that include hwy/foreach_target.h), whose
intrinsics clang-tidy takes for mistakes, CUDA and the Python module. Needs clang-tidy 14, whose checks the tree passes:
without it the test is skipped (code 77). Folders: core analysis traces notebooks_export gui, or those given.

KVSCOPE_TIDY_CACHE names a folder that keeps what was found clean, by content: sources, all of ours that they include, flags, checks
and the versions of installed development packages. What is known from there is not read again.
"""
import concurrent.futures
import functools
import hashlib
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


class Clean:
    """What was found clean before, if a cache folder is given."""

    def __init__(self, program):
        folder = os.environ.get("KVSCOPE_TIDY_CACHE")
        self.folder = pathlib.Path(folder) if folder else None
        if not self.folder:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.known = {path.name for path in self.folder.iterdir()}
        self.seed = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
        for command in ([program, "--version"], ["dpkg-query", "-W", "-f=${Package} ${Version}\\n", "*-dev", "libstdc++*"]):
            if shutil.which(command[0]):
                self.seed.update(subprocess.run(command, capture_output=True).stdout)

    @functools.lru_cache(maxsize=None)  # noqa: B019  (one object, as long as the program)
    def file(self, path):
        """A file's hash, and which of ours it includes."""
        content = path.read_bytes()
        names = re.findall(rb'^\s*#\s*include\s*"([^"]+)"', content, re.M)
        return hashlib.sha256(content).digest(), [ROOT / name.decode() for name in names if (ROOT / name.decode()).is_file()]

    def key(self, sources, flags):
        """Of a group's sources and everything of ours that they reach; paths are those below the root."""
        reached, open_ends = set(), list(sources)
        while open_ends:
            path = open_ends.pop()
            if path not in reached:
                reached.add(path)
                open_ends += self.file(path)[1]
        key = self.seed.copy()
        key.update(" ".join(flags).replace(str(ROOT), "").encode())
        for path in [*sources, *sorted(reached)]:
            key.update(str(path.relative_to(ROOT)).encode() + self.file(path)[0])
        return key.hexdigest()

    def has(self, key):
        return self.folder is not None and key in self.known

    def keep(self, key):
        if self.folder:
            (self.folder / key).touch()


def main():
    program = clang_tidy()
    build = pathlib.Path(sys.argv[1]).resolve()
    flags = flags_by_folder(build)
    wanted = sys.argv[2:] or FOLDERS
    clean = Clean(program)
    with tempfile.TemporaryDirectory() as scratch:
        jobs = []  # (key, command)
        n_known = 0
        for folder in sorted(flags):
            if not any((folder + "/").startswith(one.rstrip("/") + "/") for one in wanted):
                continue
            for number, sources in enumerate(groups(folder, flags)):
                key = clean.key(sources, flags[folder]) if clean.folder else None
                if clean.has(key):
                    n_known += 1
                    continue
                file = pathlib.Path(scratch) / f"{folder.replace('/', '_')}_{number}.cpp"
                file.write_text("".join(f'#include "{source}"\n' for source in sources))
                jobs.append((key, [program, "--quiet", "--warnings-as-errors=*", f"--config-file={ROOT / '.clang-tidy'}",
                                   f"--header-filter=^{re.escape(str(ROOT))}/({'|'.join(FOLDERS)})/", str(file), "--",
                                   *flags[folder]]))
        failed = 0
        seen = set()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for (key, _), done in zip(jobs, pool.map(
                    lambda job: subprocess.run(job[1], capture_output=True, text=True, cwd=ROOT), jobs)):
                failed += done.returncode != 0
                if done.returncode == 0:
                    clean.keep(key)
                for block in re.split(r"\n(?=/)", done.stdout):
                    if block.strip() and block not in seen:
                        seen.add(block)
                        print(block.replace(str(ROOT) + "/", ""))
                if done.returncode != 0 and not done.stdout.strip():
                    print(done.stderr[-2000:])
        print(f"{len(jobs)} groups of sources, {failed} with findings; {n_known} known to be clean")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
