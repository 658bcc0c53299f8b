"""Drives kvscope-explorer in a real window: presses keys and the mouse, and watches its state file (--state).

Every press waits until the program has seen it (state "input"), so that nothing depends on how fast the machine is.
"""

import json
import subprocess
import time

PATIENCE = 40.0  # seconds until a wait fails


class Explorer:
    """One running program; a context manager, which ends it. `folder`: for its state, settings and output."""

    def __init__(self, program, screen, folder, *arguments, size="1600x900"):
        folder.mkdir(parents=True, exist_ok=True)
        self.screen, self.folder, self.state_file = screen, folder, folder / "state.json"
        self.state_file.unlink(missing_ok=True)
        # Layer 0 head 0 of the overview, whatever the trace makes interesting: tests say what they select.
        config = folder / "config" / "explorer.json"
        if not config.exists():
            config.parent.mkdir(exist_ok=True)
            config.write_text(json.dumps({"opening": "first", "last_layout": "overview"}))
        self.output = open(folder / "output.txt", "wb")
        self.process = subprocess.Popen(
            [str(program), *map(str, arguments), "--state", str(self.state_file), "--size", size],
            env=screen.environment() | {"KVSCOPE_CONFIG": str(folder / "config")}, cwd=folder, stdin=subprocess.DEVNULL,
            stdout=self.output, stderr=subprocess.STDOUT)

    def __enter__(self):
        try:
            self.wait_until(lambda state: state["input"]["size"][0] > 0, "the first frame")
            found = self.screen.ask("search", "--sync", "--onlyvisible", "--pid", self.process.pid)
            self.window = found.split()[-1]
            self.screen.ask("windowfocus", "--sync", self.window)
        except BaseException:
            self.__exit__("failed to start")
            raise
        return self

    def __exit__(self, failure=None, *_):
        if self.process.poll() is None:
            if failure is not None:
                self.screen.picture().save(self.folder / "failure.png")
            self.process.kill()
        self.process.wait()
        self.output.close()

    # ---- what it shows ----

    def said(self):
        """Its standard output and error."""
        return (self.folder / "output.txt").read_text(errors="replace")

    def state(self):
        try:
            return json.loads(self.state_file.read_bytes())
        except FileNotFoundError:
            return None

    def wait_until(self, holds, what, patience=PATIENCE):
        """The first state for which holds(state) is true. `what` names it in the failure."""
        end = time.monotonic() + patience
        state = None
        while time.monotonic() < end:
            state = self.state()
            if state is not None and holds(state):
                return state
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode} instead of {what}: {self.said()}")
            time.sleep(0.01)
        raise AssertionError(f"no {what} within {patience:g} s; last state: {brief(state)}")

    def settle(self):
        """Waits until nothing is computed and two frames in a row say so; returns that state."""
        calm_since = None
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            state = self.wait_until(lambda s: True, "state")
            if state["busy"]:
                calm_since = None
            elif calm_since is None:
                calm_since = time.monotonic()
            elif time.monotonic() - calm_since > 0.25:
                return state
            time.sleep(0.02)
        raise AssertionError("still busy")

    def picture(self):
        """The window as the screen shows it; it stands in the top left corner."""
        width, height = self.state()["input"]["size"]
        return self.screen.picture().crop(0, 0, width, height)

    def place(self, name):
        """Middle of a named place."""
        return self.wait_until(lambda s: name in s["landmarks"], f"landmark {name}")["landmarks"][name]

    def area(self, panel):
        """x, y, width, height of a panel."""
        return self.wait_until(lambda s: panel in s["areas"], f"panel {panel}")["areas"][panel]

    # ---- what a user does ----

    def move(self, x, y):
        x, y = round(x), round(y)
        self.screen.do(f"mousemove --window {self.window} {x} {y}")
        return self.wait_until(lambda s: s["input"]["mouse"] == [x, y], f"mouse at {x}, {y}")

    def button(self, down):
        self.screen.do(f"mouse{'down' if down else 'up'} 1")
        return self.wait_until(lambda s: s["input"]["button"] == down, f"button {'down' if down else 'up'}")

    def click(self, x, y):
        self.move(x, y)
        self.button(True)
        return self.button(False)

    def click_at(self, name):
        return self.click(*self.place(name))

    def drag(self, begin, end, steps=4):
        self.move(*begin)
        self.button(True)
        for i in range(1, steps + 1):
            self.move(*(a + (b - a) * i / steps for a, b in zip(begin, end)))
        return self.button(False)

    def key(self, *names):
        """Taps keys together, like key("ctrl", "z"), quicker than a frame."""
        wanted = self.state()["input"]["key_presses"] + len(names)
        self.screen.do(" ".join([*(f"keydown {name}" for name in names), *(f"keyup {name}" for name in reversed(names))]))
        self.wait_until(lambda s: s["input"]["key_presses"] >= wanted and s["input"]["keys_down"] == 0, f"{'+'.join(names)}")

    def type(self, text):
        """Types into the field that has the keyboard."""
        self.wait_until(lambda s: s["input"]["text"], "a field to type into")
        wanted = self.state()["input"]["letters"] + len(text)
        self.screen.ask("type", "--delay", 4, "--", text)
        self.wait_until(lambda s: s["input"]["letters"] >= wanted and s["input"]["keys_down"] == 0, f"{text} typed")

    def type_and_enter(self, text):
        """Replaces what a field holds."""
        self.wait_until(lambda s: s["input"]["text"], "a field to type into")
        self.key("ctrl", "a")
        self.type(text)
        self.key("Return")

    def open_file(self, path):
        self.key("ctrl", "o")
        self.type_and_enter(str(path))

    def quit(self):
        """Presses Ctrl+Q; its exit code."""
        self.screen.do("keydown ctrl keydown q keyup q keyup ctrl")
        return self.ends()

    def ends(self, patience=PATIENCE):
        """Waits for the end of the program; its exit code."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {patience:g} s") from None


def brief(state):
    """The part of a state that explains most failures."""
    if state is None:
        return "none"
    return json.dumps({name: state.get(name) for name in ("selection", "busy", "focused", "notices", "hover", "input")})
