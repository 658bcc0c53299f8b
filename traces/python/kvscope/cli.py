"""The command kvscope of the package: that of the program, with own selectors.

    kvscope selftest mine.py                      the rules that every selector must obey, on the selectors of a file
    kvscope --load mine.py sweep trace.h5 ...     any command, with the selectors of a file
"""

from __future__ import annotations

import runpy
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_USAGE, _INPUT, _CHECK_FAILED = 2, 3, 5


def load(path: str) -> list[str]:
    """Runs a Python file; the names of the selectors that it registered."""
    from .commands import selectors

    before = set(selectors()["name"])
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{path}: no such file: expected Python with functions decorated with kvs.selector")
    sys.path.insert(0, str(file.resolve().parent))
    try:
        runpy.run_path(path)
    finally:
        sys.path.pop(0)
    return [name for name in selectors()["name"] if name not in before]


def _selftest(words: Sequence[str]) -> int:
    from .conformance import selftest

    if not words or words[0] in ("-h", "--help"):
        print("usage: kvscope selftest FILE.py|METHOD...\n\nRuns the conformance suite on the selectors that a Python file "
              "registers, or on methods by name.\nExit code 5 if a rule is broken.")
        return 0 if words else _USAGE
    specs: list[str] = []
    for word in words:
        if not word.endswith(".py"):
            specs.append(word)
            continue
        found = load(word)
        if not found:
            print(f"kvscope: {word} registers no selector: expected functions decorated with kvs.selector", file=sys.stderr)
            return _INPUT
        specs += found
    ok = True
    for spec in specs:
        report = selftest(spec)
        print(report)
        ok = ok and report.ok
    return 0 if ok else _CHECK_FAILED


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command line; returns the exit code."""
    from ._load import native

    rest = list(sys.argv[1:] if words is None else words)
    try:
        while rest[:1] == ["--load"]:
            if len(rest) < 2:
                print("kvscope: --load needs a Python file", file=sys.stderr)
                return _USAGE
            load(rest[1])
            rest = rest[2:]
        if rest[:1] == ["selftest"]:
            return _selftest(rest[1:])
    except (OSError, ValueError, SyntaxError) as error:
        print(f"kvscope: {error}", file=sys.stderr)
        return _INPUT if isinstance(error, OSError) else _USAGE
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the commands have their own way with Ctrl-C
    return native.main(rest)


if __name__ == "__main__":
    sys.exit(main())
