"""Finds or makes a Python that runs notebooks: a virtual environment with Jupyter, numpy and h5py, filled once by pip.

usage: jupyter_env.py FOLDER      prints the Python's path; exit code 77, with the reason, if there is none

KVSCOPE_NOTEBOOK_PYTHON names a Python that has everything already.
"""

import os
import pathlib
import shutil
import subprocess
import sys

PACKAGES = ["nbconvert", "nbformat", "ipykernel", "numpy", "h5py"]
SKIPPED = 77


def skip(reason):
    print(f"SKIPPED: the notebooks were not run, because {reason}", file=sys.stderr)
    sys.exit(SKIPPED)


def has_packages(python):
    return subprocess.run([python, "-c", "import " + ", ".join(PACKAGES)], capture_output=True).returncode == 0


def python_with_jupyter(folder):
    given = os.environ.get("KVSCOPE_NOTEBOOK_PYTHON")
    if given:
        return given if has_packages(given) else skip(f"{given} lacks one of {', '.join(PACKAGES)}")
    python = folder / "bin" / "python"
    if has_packages(python) if python.exists() else False:
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", folder], capture_output=True, text=True)
    if made.returncode != 0:
        skip(f"python3 -m venv failed (Debian: apt-get install python3-venv): {(made.stdout + made.stderr).strip()[-300:]}")
    pip = subprocess.run([python, "-m", "pip", "install", "--quiet", "--timeout", "15", "--retries", "1"] + PACKAGES,
                         capture_output=True, text=True)
    if pip.returncode != 0:
        skip(f"pip could not install {' '.join(PACKAGES)}: {pip.stderr.strip()[-300:]}")
    return str(python)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(python_with_jupyter(pathlib.Path(sys.argv[1]).absolute()))
