"""Checks finished wheels: their files, metadata, platform and size; then installs and uses those that this machine's Pythons take.

    check_wheel.py WHEEL...      with auditwheel and twine installed beside it
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from email.parser import Parser
from pathlib import Path

LIMIT = 40 * 2**20
FILES = ("kvscope/py.typed", "kvscope/_commands.pyi", "kvscope/bin/kvscope", "kvscope/bin/kvscope-explorer", "kvscope/fonts/DejaVuSans.ttf",
         "kvscope/samples/verifier/model.safetensors", "kvscope/samples/draft/model.safetensors", "kvscope_recorder/__init__.py")
FIELDS = ("Author", "License-Expression", "License-File", "Project-URL", "Classifier", "Keywords", "Requires-Python", "Summary")


def fail(wheel: Path, what: str) -> None:
    sys.exit(f"check_wheel.py: {wheel.name}: {what}")


def run(*words: object, **options: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"check_wheel.py: {' '.join(map(str, words[:4]))} ... failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode())
        licence = about.replace("METADATA", "licenses/LICENSE")
        for name in (*FILES, licence):
            if name not in names:
                fail(wheel, f"expected {name} inside, found none")
        for name in ("kvscope/bin/kvscope", "kvscope/bin/kvscope-explorer"):
            if not archive.getinfo(name).external_attr >> 16 & 0o111:
                fail(wheel, f"{name}: expected a program, found a file that is not executable")
        missing = [field for field in FIELDS if not metadata[field]]
        if missing:
            fail(wheel, f"expected metadata {', '.join(missing)}, found none")
        heavy = [name for name in names if any(part in name for part in ("libX11", "libcurl", "libcrypto", "libEGL", "libOpenGL"))]
        if heavy:
            fail(wheel, f"expected nothing of X11, OpenGL and the network inside, found {', '.join(sorted(heavy))}")
    if wheel.stat().st_size > LIMIT:
        fail(wheel, f"expected at most {LIMIT >> 20} MiB, found {wheel.stat().st_size / 2**20:.1f}")


def check_platform(wheel: Path) -> None:
    tools = Path(sys.executable).parent
    wanted = wheel.stem.split("-")[-1]
    said = " ".join(run(tools / "auditwheel", "show", wheel).split())
    if not any(f'consistent with the following platform tag: "{tag}"' in said for tag in wanted.split(".")):
        fail(wheel, f"expected auditwheel to call it {wanted}, found: {said}")
    run(tools / "twine", "check", "--strict", wheel)


HARDSHIP = "import kvscope as kvs; kvs.run('record', 'r.h5', model='draft', max_tokens=96, overwrite=True, progress=False); " \
    "kvs.run('verify', 'r.h5'); print(len(kvs.sweep('r.h5', ['quest', 'recent'], budgets=[16], progress=False)))"


def endure(environment: Path, folder: Path) -> str:
    """Uses an installed package where much is missing: a home, a display, the right to write beside its files, AVX."""
    told, python = [], environment / "bin" / "python"
    bare = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": str(environment)}
    package = next(environment.glob("lib/python*/site-packages/kvscope"))
    other = 65534  # to root nothing is read-only; a Python in root's own folder is of no use to others
    options = {"user": other} if os.geteuid() == 0 and not subprocess.run([python, "-c", ""], user=other, capture_output=True).returncode else {}
    work = folder / "elsewhere"
    work.mkdir()
    if options:
        os.chown(work, other, -1)
    run("chmod", "-R", "a-w", package)
    expected = run(python, "-B", "-c", HARDSHIP, cwd=work, env=bare, **options)
    run(package / "bin" / "kvscope-explorer", "r.h5", "--screenshot", "s.png", cwd=work, env=bare, **options)
    shown = subprocess.run([package / "bin" / "kvscope-explorer", "r.h5"], cwd=work, env=bare, capture_output=True, text=True, **options)
    if shown.returncode != 3 or "there is no display" not in shown.stderr:
        sys.exit(f"check_wheel.py: expected the explorer to say that there is no display, found {shown.returncode}: {shown.stderr}")
    told.append("read-only files, no home, no display")
    run("chmod", "-R", "u+w", package)
    qemu = next(filter(None, map(shutil.which, ("qemu-x86_64", "qemu-x86_64-static"))), None)
    if qemu is None:
        told.append("a processor without AVX not tried (apt-get install qemu-user)")
    else:
        old = run(qemu, "-cpu", "Nehalem", python.resolve(), "-B", "-c", f"import sys; sys.path.insert(0, {str(package.parent)!r}); {HARDSHIP}",
                  cwd=folder, env=bare)
        if old != expected:
            sys.exit(f"check_wheel.py: expected {expected.strip()} rows on a processor without AVX, found {old}")
        told.append("a processor without AVX (qemu's Nehalem)")
    return ", ".join(told)


def use(wheel: Path) -> str | None:
    """Installs it where no compiler is to be found and draws a figure; None if no Python here takes it."""
    tag, abi = wheel.stem.split("-")[2:4]
    version = f"3.{tag.removeprefix('cp3')}"
    candidates = [f"python3.{minor}" for minor in range(12, 16)] if abi == "abi3" else [f"python{version}"]
    pythons = [name for name in candidates if shutil.which(name) and not subprocess.run([name, "-c", "import ensurepip"], capture_output=True).returncode]
    if not pythons:
        return None
    told = []
    for python in pythons:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # another user tries it, too
            bare = {"PATH": f"{folder}/env/bin:{folder}/tools", "HOME": folder,
                    **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}}
            Path(folder, "tools").mkdir()
            for program in ("sh", "env"):
                Path(folder, "tools", program).symlink_to(shutil.which(program))
            start = time.monotonic()
            run(python, "-m", "venv", f"{folder}/env")
            run(f"{folder}/env/bin/pip", "install", "--quiet", wheel, env=bare)
            installed = time.monotonic()
            said = run(f"{folder}/env/bin/python", Path(__file__).parent.resolve() / "first_figure.py", cwd=folder, env=bare)
            run(f"{folder}/env/bin/kvscope", "sweep", "draft.h5", "--selector", "recent", "--budget", 16, "--engine", "local", "--workers", 2,
                "--out", "units.h5", cwd=folder, env=bare)
            run(f"{folder}/env/bin/kvscope-explorer", "--help", cwd=folder, env=bare)
            end = time.monotonic()
            endured = endure(Path(folder, "env"), Path(folder))
            run(f"{folder}/env/bin/pip", "uninstall", "--yes", "--quiet", "kvscope", env=bare)
            left = [str(path) for path in Path(folder, "env").rglob("*kvscope*")]
            if left:
                fail(wheel, f"expected nothing after uninstalling, found {', '.join(left)}")
        told.append(f"{said.strip()}; installed in {installed - start:.0f} s, first figures {end - installed:.0f} s later; {endured}")
    return "\n  ".join(told)


for name in sys.argv[1:]:
    file = Path(name)
    check_files(file)
    check_platform(file)
    print(f"{file.name}: {file.stat().st_size / 2**20:.1f} MiB\n  {use(file) or 'no Python here takes it: not tried'}", flush=True)
