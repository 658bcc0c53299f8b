"""What a stranger tries, by keyboard alone, in a real window (Xvfb, xdotool) of three sizes: seconds from the first key to the last
picture, and these pictures, to be looked at. No test: nothing is judged here. gui/README.md has the grades.

usage: keyboard_tasks.py KVSCOPE KVSCOPE_EXPLORER FOLDER [WORD ...]

FOLDER: for traces, pictures (NAME-1280x800.png) and logs. WORDs: only tasks whose names hold one of them.
"""

import pathlib
import shutil
import subprocess
import sys
import time

from explorer import Explorer
from screen import Screen

SIZES = ("640x480", "1280x800", "1920x1080")
TASKS = []


def task(files=("verifier.h5",)):
    """A task for a window that has opened these files."""

    def add(play):
        TASKS.append((play, files))
        return play

    return add


def palette(window, words):
    window.key("ctrl", "k")
    window.type(words)
    window.key("Return")
    window.settle()


def open_files(window, *files):
    for file in files:
        window.open_file(file)
    window.settle()


@task(files=())
def an_empty_window(window):
    window.key("Tab")
    window.key("Return")
    window.wait_until(lambda s: len(s["traces"]) == 2, "two samples")


@task(files=())
def two_traces_and_a_result_the_strongest_head(window):
    open_files(window, "verifier.h5", "draft.h5", "sweep.h5")
    window.key("8")
    window.settle()
    palette(window, "heads number retrieval")
    palette(window, "heads sort largest")


@task()
def a_query_and_a_key(window):
    palette(window, "layer 5 head 6 query 1500 key 20")


@task()
def quoka_against_quest_why_dropped(window):
    palette(window, "select quoka")
    palette(window, "compare with quest")
    window.key("6")
    window.settle()


@task()
def budget_for_a_recall_and_coverage(window):
    window.key("2")
    window.settle()


@task()
def theorem_b1(window):
    window.key("3")
    window.settle()
    palette(window, "what is theorem")


@task(files=("verifier.h5", "draft.h5"))
def layer_map_and_compare(window):
    window.key("4")
    window.settle()


@task()
def export(window):
    window.key("2")
    window.settle()
    window.key("ctrl", "e")
    window.key("Return")
    window.settle()


@task()
def undo_and_session(window):
    window.key("l")
    window.key("h")
    window.key("ctrl", "z")
    window.key("ctrl", "y")
    window.settle()
    window.key("ctrl", "s")
    window.type_and_enter("tasks-session.json")
    window.settle()


@task()
def a_wrong_file(window):
    window.open_file("wrong.h5")
    window.wait_until(lambda s: s["notices"], "a notice")


@task()
def the_sentence_that_a_method_hurts_most(window):
    window.key("7")
    window.settle()
    palette(window, "tokens shade losses")


@task(files=("answer.h5",))
def the_key_whose_loss_changed_an_answer(window):
    window.settle()


@task(files=("answer.h5",))
def put_it_back(window):
    palette(window, "panel put back")
    window.key("Tab")
    for _ in range(4):  # from the prompt to the first layer
        window.key("Down")
    window.key("space")
    window.settle()


@task()
def two_methods_in_one_paragraph(window):
    window.key("7")
    window.settle()
    palette(window, "select quoka")
    palette(window, "compare with streamingllm")
    palette(window, "tokens compare on")


@task()
def a_page_of_four_bookmarks(window):
    for layer, head in ((5, 6), (2, 1), (3, 0), (1, 1)):
        palette(window, f"layer {layer} head {head}")
        window.key("ctrl", "b")
        window.type_and_enter(f"layer {layer}")
    window.key("ctrl", "s")
    window.type_and_enter("page-session.json")
    window.settle()
    subprocess.run([window.kvscope, "export", "--html", "page-session.json", "--out", "page.html", "--overwrite"],
                   cwd=window.folder, check=True, stdout=subprocess.DEVNULL)


@task(files=("verifier.h5", "draft.h5"))
def differences_of_two_methods_and_two_models(window):
    window.key("8")
    window.settle()
    palette(window, "heads difference methods")
    palette(window, "heads difference traces")


@task(files=())
def a_study(window):
    window.open_file("study.toml")
    window.settle()


def run(kvscope, *words, cwd):
    subprocess.run([kvscope, *map(str, words)], cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_files(kvscope, folder):
    """Traces of 2,080 tokens, a sweep, the explanation of an answer, a study and a damaged file."""
    folder.mkdir(parents=True)
    for model in ("verifier", "draft"):
        run(kvscope, "record", "--model", model, "--max-tokens", 2048, "--decode", 32, "-o", f"{model}.h5", cwd=folder)
    run(kvscope, "sweep", "verifier.h5", "--selector", "quoka,quest", "--budget", "64,256,1024", "--out", "sweep.h5", cwd=folder)
    run(kvscope, "explain", "--facts", 6, "--selector", "streamingllm", "--budget", 48, "--lengths", 600,
        "--depths", 1, "--out", "answer.h5", cwd=folder)
    (folder / "wrong.h5").write_bytes((folder / "draft.h5").read_bytes()[:5000])
    (folder / "study.toml").write_text('models = ["draft"]\ntexts = ["book"]\nmethods = ["quest", "streamingllm"]\n'
                                       'budgets = [16, 32]\n[record]\nmax-tokens = 96\n[tasks.sweep]\nchunk = 32\n')
    run(kvscope, "study", "run", "study.toml", cwd=folder)


def main():
    if len(sys.argv) < 4:
        print(__doc__)
        return 2
    kvscope, explorer, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    files = folder / "files"
    if not files.exists():
        make_files(kvscope, files)
    chosen = [(play, opened) for play, opened in TASKS if not sys.argv[4:] or any(w in play.__name__ for w in sys.argv[4:])]
    with Screen(folder / "screen", 1920, 1200) as screen:
        for play, opened in chosen:
            seconds = []
            for size in SIZES:
                place = folder / "run"
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(files, place)
                config = place / "config"
                config.mkdir()
                (config / "explorer.json").write_text('{"tour_done": true}')
                with Explorer(explorer, screen, place, *opened, size=size) as window:
                    window.kvscope = kvscope
                    window.settle()
                    begin = time.monotonic()
                    play(window)
                    window.settle()
                    seconds.append(f"{time.monotonic() - begin:.1f}")
                    window.picture().save(folder / f"{play.__name__}-{size}.png")
            print(f"{play.__name__.replace('_', ' '):48} {'  '.join(seconds)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
