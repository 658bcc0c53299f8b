"""How the program ends, rests, and answers where there is no display."""

import os
import pathlib
import signal
import struct
import subprocess
import time
import zlib

from bench import behaviour, says


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
        bench.notes.append(f"                 idle: {share:.1f} % of one core")
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
            ([words, *shot], 3, "words.h5"), (["--session", "nowhere.json", *shot], 3, "nowhere.json"), ([bench.verifier], 3, "DISPLAY"),
            ([bench.verifier], 3, "--screenshot")]:
        done = bench.headless(*arguments)
        assert done.returncode == code, f"{arguments}: {done.returncode}, expected {code}: {done.stderr}"
        assert done.stderr.startswith("kvscope-explorer: ") and word in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not (bench.folder / "x.png").exists()
