"""Runs every kind of notebook as a reader would: records the embedded models, analyses, writes the notebooks with the program,
validates them with nbformat and executes them with jupyter nbconvert, also on a recording that was killed and on its recovered copy.

usage: run_notebooks.py KVSCOPE WORK_FOLDER PASSKEY_CSV [NAME ...]      (NAMEs: all are written, these alone executed)

Jupyter comes from a virtual environment below WORK_FOLDER that is made once, with pip. Exit code 77 (ctest: skipped), with the reason, if
that is not possible. KVSCOPE_NOTEBOOK_PYTHON names a Python that has everything already.
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "notebooks_export"))
from jupyter_env import python_with_jupyter  # noqa: E402


class Work:
    def __init__(self, kvscope, folder):
        self.kvscope, self.folder = kvscope, folder

    def run(self, *words):
        done = subprocess.run([self.kvscope, *map(str, words)], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, f"kvscope {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def record_and_kill(self, name, n_tokens):
        """A recording that dies after some units: NAME.part is left."""
        part = self.folder / (name + ".part")
        recording = subprocess.Popen([self.kvscope, "record", name, "--max-tokens", "4096", "--chunk", "32", "--threads", "1"],
                                     cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                info = subprocess.run([self.kvscope, "info", part, "--json"], capture_output=True, text=True)
                if info.returncode == 0 and json.loads(info.stdout)["n_tokens"] >= n_tokens:
                    break
                assert recording.poll() is None, "the recording ended before it could be killed"
                time.sleep(0.02)
            else:
                raise AssertionError("the recording made no progress")
        finally:
            recording.send_signal(signal.SIGKILL)
            recording.wait()
        assert part.exists()
        return part.name


def write_notebooks(work, passkey):
    """Name of each notebook -> words that its output must hold."""
    work.run("record", "verifier.h5", "--max-tokens", 224, "--decode", 8, "--dtype", "bf16")
    work.run("record", "draft.h5", "--model", "draft", "--tokens", "verifier.h5")
    work.run("analyze", "theorem-b1", "verifier.h5", "--out", "theorem-b1.h5")
    work.run("analyze", "quest", "verifier.h5", "--out", "quest.h5", "--budget", 64)
    work.run("analyze", "quoka", "verifier.h5", "--out", "quoka.h5", "--budget", 48, "--chunk", 32)
    work.run("analyze", "layer-map", "verifier.h5", "draft.h5", "--out", "layer-map.h5")
    work.run("sweep", "verifier.h5", "--selector", "full,quoka,quest,streamingllm,oracle-topk", "--budget", "16,48", "--chunk", 32,
             "--out", "sweep.h5")
    notebooks = {}

    def notebook(kind, *words, name=None, expect=()):
        name = name or kind
        work.run("notebook", kind, *words, "--out", f"{name}.ipynb")
        notebooks[name] = expect

    notebook("bounds", "theorem-b1.h5", "quest.h5", expect=("equal: Jensen bound", "equal: page bounds"))
    notebook("layer-map", "layer-map.h5", expect=("equal: KL of verifier layer",))
    notebook("recall", "sweep.h5", expect=("equal: streamingllm tokens=16", "equal: mean attention kept"))

    work.run("analyze", "geometry", "verifier.h5", "--out", "geometry.h5")
    work.run("analyze", "query-selection", "verifier.h5", "--out", "query-selection.h5")
    notebook("geometry", "quoka.h5", "geometry.h5", "query-selection.h5",
             expect=("equal: log of the largest weight", "equal: attention kept", "equal: shares of the variance", "equal: S_q"))

    work.run("analyze", "coverage", "verifier.h5", "--selector", "quest,streamingllm", "--budget", 48, "--chunk", 32,
             "--query-block", 32, "--out", "coverage.h5")
    notebook("coverage", "quest.h5", "coverage.h5",
             expect=("equal: attention on the selected pages", "equal: mean nucleus size", "equal: attention by page"))

    shutil.copy(passkey, work.folder / "passkey.csv")
    work.run("simulate", "retrieval", "--selector", "quoka", "--budget", 64, "--lengths", 256, "--out", "needle.h5")
    work.run("simulate", "perplexity", "--selector", "full,streamingllm", "--budget", 32, "--max-tokens", 96, "--out", "perplexity.h5")
    notebook("simulation", "passkey.csv", "needle.h5", "perplexity.h5",
             expect=("passkey: 10 rows", "equal: passkey: accuracy", "equal: retrieval: accuracy", "equal: perplexity from the curves' ends"))

    part = work.record_and_kill("killed.h5", 200)
    work.run("recover", part, "--out", "recovered.h5")
    work.run("analyze", "quest", "recovered.h5", "--out", "quest-recovered.h5", "--budget", 64)
    notebook("bounds", "quest-recovered.h5", name="recovered", expect=("kvscope-trace 1.3, recovered", "equal: page bounds"))
    notebook("bounds", "quest-recovered.h5", "--trace", part, name="partial",
             expect=("its identity cannot be checked", "whole calls", "equal: page bounds"))
    return notebooks


def check_notebook(kvscope, python, folder, name, expect):
    """Validates and executes one notebook; the sentence of what is wrong, or None."""
    validate = f"import nbformat; nb = nbformat.read('{name}.ipynb', 4); nbformat.validate(nb); assert nb.nbformat_minor == 5"
    done = subprocess.run([python, "-c", validate], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        return f"{name}: not valid nbformat: {done.stderr[-2000:]}"
    environment = dict(os.environ, JUPYTER_PLATFORM_DIRS="1", IPYTHONDIR=str(folder / "ipython"), KVSCOPE=kvscope)
    done = subprocess.run([python, "-m", "nbconvert", "--execute", "--to", "notebook", "--output", f"{name}.run.ipynb", f"{name}.ipynb"],
                          cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        return f"{name}: {done.stderr[-4000:]}"
    cells = json.loads((folder / f"{name}.run.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    printed = "".join("".join(output["text"]) for output in outputs if output.get("name") == "stdout")
    warned = "".join("".join(output["text"]) for output in outputs if output.get("name") == "stderr")
    n_figures = sum("image/svg+xml" in output.get("data", {}) for output in outputs)
    for words in expect:
        if words not in printed:
            return f"{name}: its output lacks \"{words}\":\n{printed}"
    if warned:
        return f"{name}: it warns: {warned}"
    if n_figures == 0:
        return f"{name}: it shows no figure"
    print(f"{name}: {n_figures} figures, {printed.count('equal: ')} comparisons", flush=True)
    return None


def main():
    kvscope, base, passkey = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    base.mkdir(parents=True, exist_ok=True)
    python = python_with_jupyter(base / "venv")
    folder = base / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    notebooks = write_notebooks(Work(os.path.abspath(kvscope), folder), passkey)
    chosen = sys.argv[4:] or list(notebooks)
    if unknown := set(chosen) - set(notebooks):
        sys.exit(f"no notebook is called {', '.join(sorted(unknown))}; there are {', '.join(notebooks)}")
    notebooks = {name: notebooks[name] for name in chosen}
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(2, (os.cpu_count() or 2) // 2)) as pool:
        problems = [p for p in pool.map(lambda item: check_notebook(os.path.abspath(kvscope), python, folder, *item), notebooks.items()) if p]
    for problem in problems:
        print("FAILED", problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
