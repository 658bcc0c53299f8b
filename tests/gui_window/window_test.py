"""The explorer as its users have it: the real program in a real window under Xvfb, pressed and dragged by xdotool, judged by what
it says about itself (--state), by the files that it writes, and by what the screen shows. No reference pictures.

usage: window_test.py KVSCOPE KVSCOPE_EXPLORER [WORD ...]      (WORDs: only behaviours whose names hold one of them)

Pictures of failures, logs and files stay in WINDOW_TEST_FOLDER, if that names a folder. Exit code 77 (ctest: skipped), with the
reason, where Xvfb or xdotool is missing.
"""

import csv
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zlib

from explorer import Explorer
from screen import Missing, Screen

BEHAVIOURS = []


def behaviour(test):
    """Marks a test; its name says what holds."""
    BEHAVIOURS.append(test)
    return test


class Bench:
    """What a behaviour works with: programs, traces, a screen, and a folder of its own."""

    def __init__(self, kvscope, explorer, screen, traces, folder):
        self.kvscope, self.explorer, self.screen, self.folder = kvscope, explorer, screen, folder
        self.verifier, self.draft = traces / "verifier.h5", traces / "draft.h5"
        self.windows = []
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, *arguments, name="run", **options):
        window = Explorer(self.explorer, self.screen, self.folder / name, *arguments, **options)
        self.windows.append(window)
        return window

    def look_at(self, *traces, **options):
        """Starts with traces; use `with`. Returns once they are open and everything is computed."""
        return Opened(self.start(*(traces or [self.verifier]), **options), max(1, len(traces)))

    def headless(self, *arguments):
        """Runs the explorer to its end where there is no display."""
        env = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
        return subprocess.run([str(self.explorer), *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              timeout=120, env=env | {"KVSCOPE_CONFIG": str(self.folder / "config")})


class Opened:
    def __init__(self, window, n_traces):
        self.window, self.n_traces = window, n_traces

    def __enter__(self):
        self.window.__enter__()
        self.window.wait_until(lambda s: len(s["traces"]) == self.n_traces, "open traces")
        self.window.settle()
        return self.window

    def __exit__(self, *details):
        self.window.__exit__(*details)


def selects(window, what, **wanted):
    """Waits for a selection with these values."""
    return window.wait_until(lambda s: all(s["selection"][name] == value for name, value in wanted.items()),
                             f"{what} to select {wanted}")


def says(window, *words):
    """Waits for a notice that holds all of these words; returns it."""
    def found(state):
        return [n for n in state["notices"] if all(word in n for word in words)]

    return found(window.wait_until(found, f"a notice with {words}"))[0]


# ---- files ----


@behaviour
def start_page_offers_to_open_and_the_dialog_opens_what_is_typed(bench):
    with bench.start() as window:
        state = window.settle()
        assert state["traces"] == [] and state["notices"] == []
        assert window.picture().colours() > 20, "an empty window"
        window.open_file(bench.verifier)
        state = window.wait_until(lambda s: len(s["traces"]) == 1, "the trace")
        assert state["traces"][0]["path"] == str(bench.verifier)
        state = window.settle()
        assert "attention-map" in state["areas"] and state["notices"] == []


@behaviour
def dialog_refuses_a_missing_file_and_stays(bench):
    with bench.look_at() as window:
        window.open_file(bench.folder / "nowhere.h5")
        window.settle()
        window.type_and_enter(str(bench.draft))
        window.wait_until(lambda s: len(s["traces"]) == 2, "the trace typed next")


@behaviour
def escape_leaves_the_dialog_as_if_nothing_had_been(bench):
    with bench.look_at() as window:
        window.key("ctrl", "o")
        window.type("zzz")
        window.key("Escape")
        window.key("l")
        state = selects(window, "L after Escape", layer=1)
        assert len(state["traces"]) == 1


@behaviour
def wrong_and_damaged_files_give_a_sentence_and_lose_nothing(bench):
    words = bench.folder / "words.h5"
    words.write_text("these are words, no trace\n" * 50)
    damaged = bench.folder / "damaged.h5"
    damaged.write_bytes(bench.verifier.read_bytes()[:100_000])
    with bench.look_at() as window:
        before = window.state()["selection"]
        for n, file in enumerate([words, damaged], start=1):
            window.open_file(file)
            sentence = says(window, file.name)
            state = window.settle()
            assert len(state["notices"]) == n and len(sentence) > len(str(file)) + 10
            assert len(state["traces"]) == 1 and state["selection"] == before
        window.click_at("dismiss 0")
        window.wait_until(lambda s: len(s["notices"]) == 1, "one notice less")
        window.key("l")
        selects(window, "L after the failures", layer=1)


@behaviour
def file_deleted_while_open_gives_a_sentence_and_stays_in_sight(bench):
    copy = bench.folder / "copy.h5"
    shutil.copy(bench.verifier, copy)
    with bench.look_at(copy) as window:
        copy.unlink()
        says(window, "copy.h5")
        state = window.settle()
        assert len(state["traces"]) == 1
        window.key("l")
        selects(window, "L after the deletion", layer=1)
        window.settle()


@behaviour
def saved_session_opens_again(bench):
    file = bench.folder / "look.json"
    with bench.look_at(bench.verifier, bench.draft) as window:
        window.key("3")
        window.key("l")
        window.key("shift", "b")
        window.key("t")
        selects(window, "L", layer=1)
        window.key("ctrl", "s")
        window.type_and_enter(str(file))
        window.wait_until(lambda s: file.exists(), "the session file")
        saved = window.settle()
    with bench.start("--session", file, name="again") as again:
        again.wait_until(lambda s: len(s["traces"]) == 2, "both traces of the session")
        state = again.settle()
        for part in ("traces", "selection", "parameters", "layout", "theme", "panels"):
            assert state[part] == saved[part], f"{part}: {state[part]}, was {saved[part]}"


@behaviour
def exported_csv_holds_the_hovered_value(bench):
    with bench.look_at() as window:
        x, y, w, h = window.area("attention-map")
        window.move(x + 0.3 * w, y + 0.6 * h)
        hover = window.wait_until(lambda s: "weight" in s["hover"], "the weight under the mouse")["hover"]
        query, key = (int(hover[name].split()[0]) for name in ("query", "key"))
        window.click(x + 0.3 * w, y + 0.6 * h)
        selects(window, "a click into the map", query=query, key=key)
        window.settle()
        window.key("ctrl", "e")
        window.click_at("format csv")
        window.click_at("export folder")
        window.type_and_enter(str(bench.folder))
        window.click_at("export name")
        window.type_and_enter("map")
        window.click_at("export")
        file = bench.folder / "map.csv"
        window.wait_until(lambda s: file.exists(), "the exported table")
        window.settle()
    with open(file, newline="") as text:
        rows = [row for row in csv.DictReader(text) if row["mark"] == "cell"]
    here = [float(row["value"]) for row in rows if abs(float(row["x"]) - key) < 0.51 and abs(float(row["y"]) - query) < 0.51]
    assert here, f"no cell of query {query}, key {key} among {len(rows)}"
    shown = float(hover["weight"])
    assert any(abs(value - shown) <= 2e-3 * abs(shown) for value in here), f"hover says {shown}, the table {here}"
    assert list(bench.folder.glob("map*.json")), "no manifest"


# ---- selection ----


@behaviour
def click_in_the_grid_selects_that_layer_and_head(bench):
    with bench.look_at() as window:
        for layer, head in [(3, 2), (7, 7), (0, 5)]:
            window.click_at(f"head {layer} {head}")
            selects(window, "the cell clicked", layer=layer, q_head=head)
        hover = window.wait_until(lambda s: "query head" in s["hover"], "the cell's tooltip")["hover"]
        assert hover["layer"].startswith("0") and hover["query head"] == "5", hover


@behaviour
def keys_step_and_ctrl_z_goes_back(bench):
    with bench.look_at() as window:
        start = window.state()
        query = start["selection"]["query"]
        for keys, wanted in [(["l"], {"layer": 1}), (["l"], {"layer": 2}), (["shift", "l"], {"layer": 1}), (["h"], {"q_head": 1}),
                             (["shift", "q"], {"query": query - 1}), (["q"], {"query": query}),
                             (["m"], {"selector": None})]:
            before = window.state()["selection"]["selector"]
            window.key(*keys)
            if "selector" in wanted:
                window.wait_until(lambda s, old=before: s["selection"]["selector"] != old, "another method")
            else:
                selects(window, "+".join(keys), **wanted)
        window.key("shift", "b")
        window.wait_until(lambda s: s["parameters"]["budget"] == 128, "half the budget")
        window.key("b")
        window.wait_until(lambda s: s["parameters"]["budget"] == 256, "the budget doubled")
        for _ in range(12):
            window.key("ctrl", "z")
        state = window.wait_until(lambda s: s["selection"] == start["selection"], "everything undone")
        assert state["parameters"] == start["parameters"]
        window.key("ctrl", "y")
        selects(window, "Ctrl+Y", layer=1 if state["selection"]["layer"] == 0 else 0)


@behaviour
def typed_layer_and_token_position_become_the_selection(bench):
    with bench.look_at() as window:
        window.click_at("layer")
        window.type_and_enter("5")
        selects(window, "a typed layer", layer=5)
        window.click_at("query")
        window.type_and_enter("100")
        selects(window, "a typed query", query=100)
        window.click_at("layer")
        window.type_and_enter("999")
        selects(window, "a layer beyond the last", layer=7)


@behaviour
def keys_typed_into_a_field_are_no_shortcuts(bench):
    with bench.look_at() as window:
        window.click_at("layer")
        window.type("lhqt")
        window.key("Escape")
        state = window.settle()
        assert state["selection"]["layer"] == 0 and state["selection"]["q_head"] == 0 and state["theme"] == "light"


@behaviour
def dragged_slider_changes_the_budget_as_one_step_of_undo(bench):
    with bench.look_at() as window:
        before = window.state()["parameters"]["budget"]
        x, y = window.place("budget")
        window.drag((x, y), (x - 40, y))
        dragged = window.wait_until(lambda s: s["parameters"]["budget"] < before, "a smaller budget")["parameters"]["budget"]
        assert 1 <= dragged < before
        window.settle()
        window.key("ctrl", "z")
        window.wait_until(lambda s: s["parameters"]["budget"] == before, "the budget of before")


# ---- layouts ----


@behaviour
def number_keys_show_the_layouts_and_f_one_panel_alone(bench):
    first = {"1": "attention-map", "2": "recall", "3": "quest-bounds", "4": "layer-map", "5": "results"}
    with bench.look_at(bench.verifier, bench.draft) as window:
        for key, panel in [*first.items(), ("1", "attention-map")]:
            window.key(key)
            window.wait_until(lambda s, p=panel: p in s["areas"], f"panel {panel}")
            state = window.settle()
            assert state["notices"] == [], state["notices"]
            width, height = state["input"]["size"]
            for name, (x, y, w, h) in state["areas"].items():
                assert x >= 0 and y >= 0 and x + w <= width and y + h <= height, f"{name} is cut by the window"
            assert window.picture().colours() > 50, f"layout {key} looks empty"
        wide = window.area("attention-map")[2]
        window.key("f")
        state = window.wait_until(lambda s: s["layout"]["maximised"] == "attention-map", "the map alone")
        assert list(state["areas"]) == ["attention-map"] and state["areas"]["attention-map"][2] > 1.3 * wide
        window.key("f")
        window.wait_until(lambda s: s["layout"]["maximised"] == "" and len(s["areas"]) == 4, "the layout again")
        window.click_at("layout budget")
        window.wait_until(lambda s: s["layout"]["name"] == "budget", "the layout clicked")


@behaviour
def t_turns_the_lights_off(bench):
    with bench.look_at() as window:
        light = window.picture().brightness()
        window.key("t")
        window.wait_until(lambda s: s["theme"] == "dark", "dark")
        window.settle()
        dark = window.picture().brightness()
        assert dark < 0.6 * light, f"brightness {light:.0f} and {dark:.0f}"
        window.key("t")
        window.wait_until(lambda s: s["theme"] == "light", "light")


@behaviour
def dragged_splitter_changes_the_shares_and_is_remembered(bench):
    def share(state):
        return state["layout"]["arrangement"]["parts"][0]["share"]

    with bench.look_at() as window:
        left, right = window.area("attention-map"), window.area("query-selection")
        before = share(window.state())
        bar = ((left[0] + left[2] + right[0]) / 2, left[1] + left[3] / 2)
        window.drag(bar, (bar[0] - 150, bar[1]))
        dragged = share(window.wait_until(lambda s: share(s) < before - 0.05, "a narrower map"))
        window.settle()
        assert abs(window.area("attention-map")[2] - (left[2] - 150)) <= 6
        assert window.quit() == 0
    with bench.look_at() as window:
        assert share(window.state()) == dragged, "the share was forgotten"
        window.key("ctrl", "0")
        window.wait_until(lambda s: share(s) == before, "the layout as it was made")


@behaviour
def panels_follow_the_size_of_the_window(bench):
    with bench.look_at() as window:
        for width, height in [(1024, 768), (1900, 1150), (400, 300), (1280, 800)]:
            window.screen.do(f"windowsize {window.window} {width} {height}")
            window.wait_until(lambda s, w=width, h=height: s["input"]["size"] == [w, h], f"size {width}x{height}")
            state = window.settle()
            for name, (x, y, w, h) in state["areas"].items():
                assert x + w <= width + 1 and y + h <= height + 1, f"{name} is cut at {width}x{height}"
            assert window.picture().colours() > 50, f"nothing to see at {width}x{height}"


@behaviour
def help_lists_the_keys_over_everything(bench):
    with bench.look_at() as window:
        before = window.picture()
        window.key("F1")
        window.settle()
        assert window.picture().rows != before.rows, "F1 shows nothing"
        window.key("Escape")
        window.settle()
        window.key("l")
        selects(window, "L after the help", layer=1)


# ---- the end, and rest ----


@behaviour
def ctrl_q_ends_it_with_0(bench):
    with bench.look_at() as window:
        assert window.quit() == 0 and window.said() == "", window.said()


@behaviour
def sigterm_ends_it_at_once(bench):
    with bench.look_at() as window:
        window.process.send_signal(signal.SIGTERM)
        assert window.ends(patience=10) in (0, -signal.SIGTERM)


@behaviour
def idle_window_leaves_the_processor_alone(bench):
    def ticks(pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    with bench.look_at() as window:
        window.move(800, 500)
        window.settle()
        time.sleep(1.0)  # tooltips have their moment
        begin, since = ticks(window.process.pid), time.monotonic()
        time.sleep(5.0)
        used = (ticks(window.process.pid) - begin) / os.sysconf("SC_CLK_TCK")
        share = 100 * used / (time.monotonic() - since)
        print(f"    idle: {share:.1f} % of one core", flush=True)
        assert share < 3.0, f"{share:.1f} % of a core while nothing happens"


@behaviour
def damaged_settings_give_a_sentence_and_are_kept(bench):
    settings = bench.folder / "run" / "config" / "explorer.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{ not settings")
    with bench.look_at() as window:
        says(window, "explorer.json")
        window.key("t")
        window.settle()
    assert settings.read_text() == "{ not settings"


# ---- without a display ----


@behaviour
def screenshots_need_no_display(bench):
    for width, height in [(1024, 768), (2560, 1440)]:
        file = bench.folder / f"{width}.png"
        done = bench.headless(bench.verifier, "--screenshot", file, "--size", f"{width}x{height}")
        assert done.returncode == 0 and done.stderr == "", done.stderr
        found_width, found_height, distinct = png_facts(file.read_bytes())
        assert (found_width, found_height) == (width, height)
        assert distinct > height / 4, f"{distinct} different rows of {height}"


def png_facts(data):
    """Width, height, and how many of its (filtered) rows differ from each other."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG"
    width, height = struct.unpack(">II", data[16:24])
    at, packed = 8, b""
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        if kind == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += 12 + length
    pixels = zlib.decompress(packed)
    stride = len(pixels) // height
    return width, height, len({pixels[i * stride : (i + 1) * stride] for i in range(height)})


@behaviour
def command_line_answers_and_refuses_with_a_sentence(bench):
    helped = bench.headless("--help")
    assert helped.returncode == 0 and "--screenshot" in helped.stdout and "usage:" in helped.stdout
    version = subprocess.run([str(bench.kvscope), "--version"], capture_output=True, text=True).stdout.split()[1]
    assert bench.headless("--version").stdout == f"kvscope-explorer {version}\n"
    shot = ["--screenshot", bench.folder / "x.png"]
    words = bench.folder / "words.h5"
    words.write_text("no trace")
    for arguments, code, word in [
            (["--bogus"], 2, "--bogus"), (["--size", "12"], 2, "--size"), ([bench.verifier, *shot, "--panel", "nope"], 2, "nope"),
            ([bench.verifier, *shot, "--layout", "nope"], 2, "nope"), (["nowhere.h5", *shot], 3, "nowhere.h5"),
            ([words, *shot], 3, "words.h5"), (["--session", "nowhere.json", *shot], 3, "nowhere.json"), ([bench.verifier], 3, "DISPLAY")]:
        done = bench.headless(*arguments)
        assert done.returncode == code, f"{arguments}: {done.returncode}, expected {code}: {done.stderr}"
        assert done.stderr.startswith("kvscope-explorer: ") and word in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not (bench.folder / "x.png").exists()


# ---- all of them ----


def record_traces(kvscope, folder):
    for model in ("verifier", "draft"):
        subprocess.run([kvscope, "record", "--model", model, "--max-tokens", "256", "--decode", "8", "-o", folder / f"{model}.h5"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run_all(kvscope, explorer, words, folder):
    chosen = [test for test in BEHAVIOURS if not words or any(word in test.__name__ for word in words)]
    traces = folder / "traces"
    traces.mkdir(parents=True)
    record_traces(kvscope, traces)
    failed = []
    begin = time.monotonic()
    with Screen(folder / "screen") as screen:
        for test in chosen:
            bench = Bench(kvscope, explorer, screen, traces, folder / test.__name__)
            since = time.monotonic()
            try:
                test(bench)
            except Exception:
                failed.append(test.__name__)
                traceback.print_exc()
            finally:
                for window in bench.windows:
                    window.__exit__()
            word = "FAILED" if test.__name__ in failed else "ok    "
            print(f"{word} {time.monotonic() - since:5.1f} s  {test.__name__.replace('_', ' ')}", flush=True)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} behaviours hold; {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


def main():
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    kvscope, explorer = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    kept = os.environ.get("WINDOW_TEST_FOLDER")
    try:
        if kept:
            return run_all(kvscope, explorer, sys.argv[3:], pathlib.Path(tempfile.mkdtemp(prefix="window-", dir=kept)).resolve())
        with tempfile.TemporaryDirectory(prefix="kvscope-window-") as folder:
            return run_all(kvscope, explorer, sys.argv[3:], pathlib.Path(folder).resolve())
    except Missing as reason:
        print(f"skipped: {reason}")
        return 77


if __name__ == "__main__":
    sys.exit(main())
