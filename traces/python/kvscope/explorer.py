"""kvs.show: the explorer at a place of a trace, as a window or as a picture."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from ._load import set_places
from .errors import CommandError, InputError, UsageError

if TYPE_CHECKING:
    from .own import OwnSelector

    File = str | os.PathLike[str]
    Methods = str | OwnSelector | Iterable[str | OwnSelector] | None
    Budgets = int | str | Sequence[int | str] | None


class Picture:
    """A screenshot of the explorer; shows itself in notebooks."""

    def __init__(self, png: bytes) -> None:
        self.png = png

    def _repr_png_(self) -> bytes:
        return self.png

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_bytes(self.png)

    def __repr__(self) -> str:
        return f"<picture of the explorer, {len(self.png)} bytes of PNG>"


_BUNDLED = Path(__file__).parent / "bin" / "kvscope-explorer"


def _program() -> str:
    found = os.environ.get("KVSCOPE_EXPLORER") or (str(_BUNDLED) if _BUNDLED.is_file() else shutil.which("kvscope-explorer"))
    if not found:
        raise InputError("kvs.show: the explorer was not found: expected kvscope-explorer in PATH, or its path in KVSCOPE_EXPLORER. "
                         "This package was built without it; published wheels hold it, and the sources build it")
    return found


def main() -> int:
    """The command kvscope-explorer of the package: becomes the window program, which knows where models and commands are."""
    if not _BUNDLED.is_file() and not os.environ.get("KVSCOPE_EXPLORER"):
        print(f"kvscope-explorer: expected {_BUNDLED}, which is not there: this package was built without the explorer. "
              "Published wheels hold it, and the sources build it (./demo.sh)", file=sys.stderr)
        return 3
    set_places()
    program = _program()
    os.execv(program, [program, *sys.argv[1:]])


@overload
def show(trace: File, layer: int | None = None, row: int | None = None, selectors: Methods = None, *, head: int | None = None,
         budgets: Budgets = None, layout: str | None = None, picture: Literal[True], size: str | None = None) -> Picture: ...
@overload
def show(trace: File, layer: int | None = None, row: int | None = None, selectors: Methods = None, *, head: int | None = None,
         budgets: Budgets = None, layout: str | None = None, picture: Literal[False] = False,
         size: str | None = None) -> subprocess.Popen[bytes]: ...
def show(trace: Any, layer: int | None = None, row: int | None = None, selectors: Any = None, *, head: int | None = None,
         budgets: Any = None, layout: str | None = None, picture: bool = False, size: str | None = None) -> Any:
    """Opens the explorer on a trace (or result) with a layer, head and query row selected.

    row        position of the query
    selectors  methods, whose sweep over `layer` (with `budgets`) is opened beside the trace
    picture    a Picture instead of a window: for notebooks and machines without a display

    Returns the process of the window, or the Picture.
    """
    words = [_program(), os.fspath(trace)]
    with ExitStack() as ends:
        folder = tempfile.mkdtemp(prefix="kvscope-show-") if picture or selectors is not None else ""
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        if selectors is not None:
            from .commands import run, selector_words
            if budgets is None:
                raise UsageError("kvs.show: selectors need budgets, as budgets=[64, 256]")
            table = os.path.join(folder, "sweep.h5")
            run("sweep", trace, selector=selector_words(selectors), budgets=budgets, layers=layer, out=table, progress=False)
            words.append(table)
        for name, value in (("layers", layer), ("heads", head), ("query", row), ("layout", layout), ("size", size)):
            if value is not None:
                words += [f"--{name}", str(value)]
        if not picture:
            ends.pop_all()  # the window reads the table
            return subprocess.Popen(words, start_new_session=True)
        file = Path(folder) / "explorer.png"
        done = subprocess.run([*words, "--screenshot", str(file)], capture_output=True, text=True)
        if done.returncode != 0:
            raise CommandError(f"kvs.show: {done.stderr.strip() or 'the explorer failed'}", done.returncode)
        return Picture(file.read_bytes())
