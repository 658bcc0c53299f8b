"""A recording that grows in sight, also in a window that started it; what such a window costs while nothing happens."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

from bench import behaviour


def record(bench, out, n_tokens):
    """A recorder whose first unit is whole: OUT.part can be opened."""
    recorder = subprocess.Popen([str(bench.kvscope), "record", str(out), "--max-tokens", str(n_tokens), "--chunk", "64", "--threads", "1",
                                 "--progress", "json"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in recorder.stderr:
        if line.startswith("{") and json.loads(line).get("done", 0) > 0:
            break
    else:
        raise AssertionError(f"the recorder ended with {recorder.wait()} before it had recorded anything")
    # a full pipe would stop it
    threading.Thread(target=recorder.stderr.read, daemon=True).start()
    return recorder


def trace_of(state):
    return state["traces"][0]


@behaviour
def recording_is_followed_to_its_final_name(bench):
    out = bench.folder / "live.h5"
    part = bench.folder / "live.h5.part"
    with record(bench, out, 6144) as recorder:
        with bench.start(part) as window:
            window.wait_until(lambda s: len(s["traces"]) == 1, "the recording")
            window.key("l")
            window.wait_until(lambda s: s["selection"]["layer"] == 1, "layer 1")
            assert recorder.wait() == 0
            state = window.wait_until(lambda s: trace_of(s)["path"] == str(out), "the final name")
            assert state["selection"]["layer"] == 1 and len(state["traces"]) == 1 and state["notices"] == []
            window.settle()
            recent = json.loads((bench.folder / "run" / "config" / "explorer.json").read_text())["recent"]
            assert str(out) in recent and str(part) not in recent, recent


@behaviour
def recording_started_here_grows_while_it_is_watched_and_ends_with_the_window(bench):
    with bench.start() as window:
        window.settle()
        window.click_at("Record a model...")
        window.wait_until(lambda s: "option max-tokens" in s["landmarks"], "the form")
        window.click_at("option max-tokens")
        window.type_and_enter("32000")
        window.click_at("run command")
        window.wait_until(lambda s: s["runs"] and s["runs"][0]["done"] > 0, "progress")
        window.click_at("run 1 watch")
        n_first = trace_of(window.wait_until(lambda s: len(s["traces"]) == 1, "the recording"))["n_tokens"]
        # its progress wakes the window all the time
        state = window.wait_until(lambda s: trace_of(s)["n_tokens"] > n_first, "more of it")
        assert state["runs"][0]["state"] == "running"
        out = pathlib.Path(state["runs"][0]["out"])
        assert window.quit() == 0
        assert out.exists() and not pathlib.Path(f"{out}.part").exists(), "what was whole is kept"


@behaviour
def stopped_recording_in_sight_costs_nothing(bench):
    def ticks(pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    out = bench.folder / "live.h5"
    part = bench.folder / "live.h5.part"
    recorder = record(bench, out, 32768)
    recorder.send_signal(signal.SIGKILL)
    recorder.wait()
    with bench.look_at(part) as window:
        window.move(800, 500)
        window.settle()
        time.sleep(1.5)
        begin, since = ticks(window.process.pid), time.monotonic()
        time.sleep(5.0)
        share = 100 * (ticks(window.process.pid) - begin) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - since)
        bench.notes.append(f"                 a killed recording in sight: {share:.1f} % of one core")
        assert share < 3.0, f"{share:.1f} % of a core"
