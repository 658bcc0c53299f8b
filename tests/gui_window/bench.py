"""What every behaviour works with: the programs, recorded traces, a screen and a folder of its own; and the list of behaviours."""

import os
import subprocess

from explorer import Explorer

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
        self.notes = []  # printed with the result
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, *arguments, name="run", **options):
        window = Explorer(self.explorer, self.screen, self.folder / name, *arguments, **options)
        self.windows.append(window)
        return window

    def look_at(self, *traces, **options):
        """Starts with traces; use `with`. Returns once they are open and everything is computed."""
        return Opened(self.start(*(traces or [self.verifier]), **options), max(1, len(traces)))

    def end(self):
        for window in self.windows:
            window.__exit__()

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
