"""The explorer as its users have it: the real program in a real window under Xvfb, pressed and dragged by xdotool, judged by what
it says about itself (--state), by the files that it writes, and by what the screen shows. No reference pictures.

usage: window_test.py KVSCOPE KVSCOPE_EXPLORER [--file NAME] [WORD ...]

--file: only the behaviours of that file of this folder; WORDs: only those whose names hold one of them. One after the other, on a
screen of their own: several of these programs can run at a time.

Pictures of failures, logs and files stay in WINDOW_TEST_FOLDER, if that names a folder. Exit code 77 (ctest: skipped), with the
reason, where Xvfb or xdotool is missing.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import files_test  # noqa: F401  (each registers its behaviours)
import layout_test  # noqa: F401
import live_test  # noqa: F401
import program_test  # noqa: F401
import selection_test  # noqa: F401
from bench import BEHAVIOURS, Bench
from screen import Missing, Screen


def record_traces(kvscope, folder):
    for model in ("verifier", "draft"):
        subprocess.run([kvscope, "record", "--model", model, "--max-tokens", "256", "--decode", "8", "-o", folder / f"{model}.h5"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check(test, bench):
    """Runs one behaviour; True if it holds."""
    begin = time.monotonic()
    holds = False
    try:
        test(bench)
        holds = True
        report = ""
    except Exception:
        report = traceback.format_exc()
    finally:
        bench.end()
    words = f"{'ok    ' if holds else 'FAILED'} {time.monotonic() - begin:5.1f} s  {test.__name__.replace('_', ' ')}"
    print("\n".join([f"{report}{words}", *bench.notes]), flush=True)
    return holds


def run_all(kvscope, explorer, chosen, folder):
    traces = folder / "traces"
    traces.mkdir(parents=True)
    record_traces(kvscope, traces)
    begin = time.monotonic()
    with Screen(folder / "screen") as screen:
        n_held = sum(check(test, Bench(kvscope, explorer, screen, traces, folder / test.__name__)) for test in chosen)
    print(f"{n_held} of {len(chosen)} behaviours hold; {time.monotonic() - begin:.0f} s")
    return 0 if n_held == len(chosen) else 1


def choose(words):
    chosen = BEHAVIOURS
    if words[:1] == ["--file"]:
        chosen = [test for test in chosen if test.__module__ == words[1]]
        words = words[2:]
    return [test for test in chosen if not words or any(word in test.__name__ for word in words)]


def main():
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    kvscope, explorer = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    chosen = choose(sys.argv[3:])
    if not chosen:
        print(f"no behaviour is chosen by {' '.join(sys.argv[3:])}")
        return 2
    kept = os.environ.get("WINDOW_TEST_FOLDER")
    try:
        if kept:
            return run_all(kvscope, explorer, chosen, pathlib.Path(tempfile.mkdtemp(prefix="window-", dir=kept)).resolve())
        with tempfile.TemporaryDirectory(prefix="kvscope-window-") as folder:
            return run_all(kvscope, explorer, chosen, pathlib.Path(folder).resolve())
    except Missing as reason:
        print(f"skipped: {reason}")
        return 77


if __name__ == "__main__":
    sys.exit(main())
