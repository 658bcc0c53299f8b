"""What a planted fault is, where its place in a source is, and how it is put there behind a switch."""

import os
import re
from dataclasses import dataclass, field

HEADER = "tests/mutation/fault.hpp"
LAUNCH = "core/cuda/launch.cuh"  # every kernel is started there
VARIABLE = "KVSCOPE_FAULT"


@dataclass(frozen=True)
class Fault:
    """One mistake. `before` becomes `after` where KVSCOPE_FAULT is `number`.

    Both are expressions, or statements where `before` ends with a semicolon. Spaces and line breaks
    count as one space. `around` is a longer piece of the source that has `before` in it once, where
    `before` alone stands in several places.
    """

    number: int
    module: str
    kind: str  # a sign, an off-by-one, a lost lock, ...
    file: str
    breaks: str  # what it does wrong, in a sentence
    before: str
    after: str
    near: dict = field(default_factory=dict)  # test program -> the test files that should notice
    around: str = ""


def _pattern(text):
    return r"\s+".join(re.escape(word) for word in text.split())


def _places(text, piece):
    return [match.span() for match in re.finditer(_pattern(piece), text)]


def place_of(fault, text):
    """The span of `before` in the source `text`. Raises ValueError with a sentence if it is not there
    exactly once."""
    spans = _places(text, fault.around or fault.before)
    if len(spans) != 1:
        raise ValueError(f"fault {fault.number}: {fault.file} has its text {len(spans)} times, expected once: "
                         f"{fault.around or fault.before}")
    begin, end = spans[0]
    inner = _places(text[begin:end], fault.before)
    if len(inner) != 1:
        raise ValueError(f"fault {fault.number}: expected `before` once in `around`, found {len(inner)} times")
    return begin + inner[0][0], begin + inner[0][1]


def _switched(fault, before):
    if fault.file.endswith(".py"):
        on = f'__import__("os").environ.get("{VARIABLE}") == "{fault.number}"'
        return f"(({fault.after}) if {on} else ({before}))"
    on = f"kvscope_fault({fault.number})"
    if before.endswith(";"):
        return f"if ({on}) {{ {fault.after} }} else {{ {before} }}"
    return f"({on} ? ({fault.after}) : ({before}))"


def _with_header(text):
    at = re.search(r"^#include", text, re.MULTILINE).start()
    return f'{text[:at]}#include "{HEADER}"\n{text[at:]}'


def plant(faults, root):
    """Puts the faults into the sources below `root`; those that are there already stay. Returns the
    names of the files that it changed."""
    changed = []
    for name in sorted({fault.file for fault in faults}):
        path = os.path.join(root, name)
        with open(path, encoding="utf-8") as source:
            text = old = source.read()
        for fault in faults:
            if fault.file != name or re.search(rf'kvscope_fault\({fault.number}\)|== "{fault.number}"', text):
                continue
            begin, end = place_of(fault, text)
            text = text[:begin] + _switched(fault, text[begin:end]) + text[end:]
        if text == old:
            continue
        if not name.endswith(".py") and HEADER not in text:
            text = _with_header(text)
        with open(path, "w", encoding="utf-8") as source:
            source.write(text)
        changed.append(name)
    if any(name.endswith((".cu", ".cuh")) for name in changed):
        _switch_on_device(os.path.join(root, LAUNCH))
    return changed


def _switch_on_device(path):
    """Lets the first kernel that starts hand the fault's number to the device."""
    with open(path, encoding="utf-8") as source:
        text = source.read()
    call, place = "kvscope_switch_device_faults();", "  cudaLaunchAttribute attributes"
    if call in text:
        return
    assert text.count(place) == 1, f"{path}: expected one place where kernels are started"
    with open(path, "w", encoding="utf-8") as source:
        source.write(_with_header(text.replace(place, f"  {call}\n{place}")))


def problems(faults, root):
    """Sentences about faults that have lost their place in the tree, or their tests."""
    found = []
    if sorted(fault.number for fault in faults) != list(range(1, len(faults) + 1)):
        found.append("the faults' numbers are not 1, 2, 3 and so on, each once")
    for fault in faults:
        try:
            with open(os.path.join(root, fault.file), encoding="utf-8") as source:
                place_of(fault, source.read())
        except (OSError, ValueError) as error:
            found.append(str(error))
        for program, files in fault.near.items():
            for name in files.split():
                if not test_file(program, name, root):
                    found.append(f"fault {fault.number}: there is no test file {name} of {program}")
    return found


def test_file(program, name, root):
    """The path of a test file, or nothing if there is none."""
    top = "traces/python/tests" if program == "python" else f"tests/{program}"
    ending = ".py" if program == "python" else ".cpp"
    for folder, _, files in os.walk(os.path.join(root, top)):
        if name + ending in files:
            return os.path.join(folder, name + ending)
    return None
