"""An X server without a monitor (Xvfb), its picture, and its mouse and keyboard (xdotool)."""

import os
import pathlib
import shutil
import struct
import subprocess
import zlib


class Missing(Exception):
    """A program that these tests need is not installed."""


class Picture:
    """Rows of RGB bytes."""

    def __init__(self, width, height, rows):
        self.width, self.height, self.rows = width, height, rows

    def crop(self, x, y, w, h):
        x, y, w, h = int(x), int(y), int(w), int(h)
        return Picture(w, h, [row[3 * x : 3 * (x + w)] for row in self.rows[y : y + h]])

    def colours(self):
        """How many different ones there are in every fourth row."""
        return len({row[i : i + 3] for row in self.rows[::4] for i in range(0, len(row), 3)})

    def save(self, path):
        def chunk(kind, data):
            body = kind + data
            return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        data = zlib.compress(b"".join(b"\0" + row for row in self.rows), 1)
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


class Screen:
    """Starts an Xvfb on a free display; a context manager."""

    def __init__(self, folder, width=1920, height=1200):
        for program in ("Xvfb", "xdotool"):
            if shutil.which(program) is None:
                raise Missing(f"{program} is not installed (packages xvfb, xdotool)")
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.size = (width, height)

    def __enter__(self):
        reading, writing = os.pipe()
        self.log = open(self.folder / "xvfb.log", "wb")
        self.server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(writing), "-noreset", "-nolisten", "tcp", "-fbdir", str(self.folder),
             "-screen", "0", f"{self.size[0]}x{self.size[1]}x24"],
            pass_fds=[writing], stdout=self.log, stderr=self.log)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            number = pipe.readline().strip()  # once it accepts connections; empty if it ended
        if not number:
            raise Missing(f"Xvfb does not start; see {self.log.name}")
        self.display = f":{number}"
        self.hands = subprocess.Popen(["xdotool", "-"], env=self.environment(), stdin=subprocess.PIPE, stdout=self.log,
                                      stderr=self.log, text=True, bufsize=1)
        return self

    def __exit__(self, *_):
        self.hands.stdin.close()
        self.hands.wait()
        self.server.terminate()
        self.server.wait()
        self.log.close()

    def environment(self):
        env = {name: value for name, value in os.environ.items() if name != "WAYLAND_DISPLAY"}
        return env | {"DISPLAY": self.display}

    def do(self, line):
        """Hands a line to the xdotool that runs all the time: quicker than a process for each."""
        self.hands.stdin.write(line + "\n")

    def ask(self, *words):
        """Runs an xdotool; returns what it printed."""
        done = subprocess.run(["xdotool", *map(str, words)], env=self.environment(), capture_output=True, text=True,
                              timeout=60)
        if done.returncode != 0:
            raise AssertionError(f"xdotool {' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")
        return done.stdout.strip()

    def picture(self):
        """What the screen shows: Xvfb keeps it in a file of the format XWD, 32 bits a pixel."""
        data = (self.folder / "Xvfb_screen0").read_bytes()
        head = struct.unpack(">25I", data[:100])
        begin, width, height, stride, n_colours = head[0] + 12 * head[19], head[4], head[5], head[12], head[19]
        assert head[1] == 7 and head[11] == 32, f"unexpected XWD version {head[1]} or {head[11]} bits a pixel"
        swapped = head[7] == 0  # the least significant byte first: B G R x
        rows = []
        for y in range(height):
            line = data[begin + y * stride : begin + y * stride + 4 * width]
            red, green, blue = (line[2::4], line[1::4], line[0::4]) if swapped else (line[1::4], line[2::4], line[3::4])
            row = bytearray(3 * width)
            row[0::3], row[1::3], row[2::3] = red, green, blue
            rows.append(bytes(row))
        return Picture(width, height, rows)
