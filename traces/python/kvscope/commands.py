"""The commands of kvscope as functions: the same names, the same options (with underscores), the same numbers.

They run in this process, one at a time (other threads wait), on all cores (threads=N for fewer). Ctrl-C asks a command to stop at its next safe
point, as in a terminal: no half file is left.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import signatures
from ._load import native
from .columns import about
from .errors import CommandError, InputError, UsageError

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import Dataset

_PREFIX = "kvscope: "
_CHECK_FAILED = 5


class Outcome:
    """What a command said: `text` (standard output), `notes` (for people), `code`."""

    def __init__(self, text: str, notes: list[str], code: int) -> None:
        self.text, self.notes, self.code = text, notes, code

    @property
    def json(self) -> Any:
        """The report, for a command that was run with json=True."""
        return json.loads(self.text)

    def __repr__(self) -> str:
        return self.text


def plain(value: Any) -> Any:
    """What NumPy, pandas and torch have as Python has it: numbers, and any iterable as a list. Texts and files stay."""
    value = value.tolist() if hasattr(value, "tolist") else value
    is_one = isinstance(value, (str, bytes)) or hasattr(value, "__fspath__") or not isinstance(value, Iterable)
    return value if is_one else [plain(one) for one in value]


def several(value: Any) -> list[Any]:
    """The same, a single value as a list of one."""
    found = plain(value)
    return found if isinstance(found, list) else [found]


def words_of(value: Any) -> str:
    """An option's value as the command line spells it."""
    return ",".join(one.__fspath__() if hasattr(one, "__fspath__") else words_of(one) if isinstance(one, list) else str(one)
                    for one in several(value))


def option_words(command: Sequence[str], options: dict[str, Any]) -> list[str]:
    """The words of a command's options; `command`: its first words."""
    table = signatures.table()
    about = table.get(" ".join(command[:2])) or table.get(" ".join(command[:1]))
    specs = {spec["name"]: spec for spec in about["options"]} if about else {}
    words: list[str] = []
    for key, value in options.items():
        name, value = key.rstrip("_").replace("_", "-"), plain(value)
        name = "budget" if name == "budgets" and name not in specs else name  # one word
        spec = specs.get(name)
        if name == "budget" and spec and spec["value"] != "N":
            value = budget_words(value)
        if isinstance(value, bool) and spec and signatures.is_truth(spec):
            words += [f"--{name}", str(value).lower()]
        elif value is True:
            words.append(f"--{name}")
        elif isinstance(value, list) and spec and signatures.is_repeated(spec):
            for one in value:
                words += [f"--{name}", words_of(one)]
        elif value is not None and value is not False:
            words += [f"--{name}", words_of(value)]
    return words


class _Bars:
    """Shows a command's stages with tqdm."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.stage = ""

    def __call__(self, stage: str, done: int, total: int, unit: str) -> None:
        from tqdm.auto import tqdm

        if self.bar is None or stage != self.stage:
            self.close()
            self.bar = tqdm(total=total or None, desc=stage, unit=f" {unit}", leave=False)
            self.stage = stage
        self.bar.n = done
        self.bar.refresh()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def _shows_progress(progress: bool | None) -> bool:
    if progress is not None:
        return progress
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def run(*words: Any, progress: bool | Callable[[str, int, int, str], None] | None = None, **options: Any) -> Outcome:
    """Runs a command: kvs.run("record", "draft.h5", model="draft", max_tokens=512).

    words     the command and its positional arguments
    progress  True or False: bars of tqdm (default: in notebooks and terminals), or a function (stage, done, total, unit)
    options   as on the command line, with underscores; True sets a flag, lists and arrays are joined with commas; budgets, or
              budget: whole numbers are tokens, others up to 1 shares of the keys

    Raises UsageError, InputError or CommandError with the sentence that the command line prints; SelectorError for an own
    selector.
    """
    command = [words_of(part) for word in words for part in several(word)]
    bars = progress if callable(progress) else _Bars() if _shows_progress(progress) else None
    try:
        code, text, notes = native.run(command + option_words(command, options), bars)
    finally:
        if isinstance(bars, _Bars):
            bars.close()
    remarks = [note.removeprefix(_PREFIX) for note in notes if note.startswith(_PREFIX)]
    notes = [note.removeprefix(_PREFIX) for note in notes]
    if code not in (0, _CHECK_FAILED):
        message = in_python(notes[-1] if notes else f"{command[0]} ended with code {code}")
        raise (UsageError(message) if code == 2 else InputError(message) if code == 3 else CommandError(message, code))
    for remark in remarks:
        warnings.warn(in_python(remark), stacklevel=3)
    return Outcome(text.decode("utf-8", "replace"), notes, code)


def in_python(sentence: str) -> str:
    """A sentence that names --options, with the keywords that they are here."""
    flags = {spec["name"] for about in signatures.table().values() for spec in about["options"] if not spec["value"]}
    sentence = re.sub(r" \(see kvscope [^()]*--help\)", "", sentence)
    return re.sub(r"(?<![\w-])--([a-z][a-z0-9-]*)", lambda at: at[1].replace("-", "_") + "=True" * (at[1] in flags), sentence)


def frame_of(rows: list[dict[str, Any]], report: dict[str, Any]) -> DataFrame:
    """Rows of a report as a DataFrame; attrs hold what made them, each column's title ("columns") and unit ("units")."""
    import pandas

    table = pandas.DataFrame(rows)
    for column in table.columns:  # a column that is empty throughout has numbers, none of them known
        if table[column].isna().all():
            table[column] = table[column].astype("float64")
    table.attrs = {key: value for key, value in report.items() if key not in ("rows", "layers")}
    table.attrs |= about(table.columns)
    return table


def selector_words(selectors: Any) -> str:
    """One method or several, as texts or own selectors."""
    return words_of(selectors)


def budget_words(budgets: Any) -> str | None:
    """[64, 0.1, "p=0.95"] -> "tokens=64,ratio=0.1,p=0.95". Raises UsageError for what is neither a number nor a text."""
    return None if budgets is None else ",".join(_budget_word(one) for one in several(budgets))


def _budget_word(budget: Any) -> str:
    if isinstance(budget, str):
        return budget
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise UsageError(f"budget: expected a number of tokens (64), a share of the keys (0.25) or a text (\"pages=8\"), found {budget!r}")
    if isinstance(budget, float) and 0 < budget <= 1:
        return f"ratio={budget}"
    return f"tokens={int(budget) if budget == budget // 1 else budget}"


def sweep(traces: Any, selectors: Any, budgets: Any = None, phase: str | None = None, *, progress: Any = None,
          **options: Any) -> DataFrame:
    """Replays selectors with budgets on recorded traces (kvscope sweep) and returns the table as a DataFrame.

    traces     a file, a Trace, or several
    selectors  texts as on the command line ("quest:page-size=32"), own selectors, or a list of both
    budgets    numbers of tokens (64), shares of the keys (0.1), or texts such as "p=0.95"; `budget` is the same word
    phase      prefill, decode or verify [prefill]
    options    those of kvscope sweep: chunk, steps, rows_per_chunk, layers, heads, dense_layers, draft, out, threads, ...

    attrs["skipped"] names what was left out and why, attrs["command_line"] makes the same table in a terminal.
    """
    report = run("sweep", traces, selector=selector_words(selectors), budgets=budgets, phase=phase, json=True, progress=progress,
                 **options).json
    return frame_of(report["rows"], report)


signatures.describe(sweep, signatures.table()["sweep"])


def selectors() -> DataFrame:
    """Every method, own ones included, as a DataFrame."""
    import pandas

    return pandas.DataFrame(run("selectors", json=True).json["selectors"])


class Analysis:
    """The report of an analysis: `layers` (a DataFrame, one line per layer), `totals`, `options`; with out=FILE `arrays`.

    `violations` is true if a bound that must hold was violated (exit code 5 of the command line).
    """

    def __init__(self, report: dict[str, Any], code: int) -> None:
        self.report = report
        self.kind: str = report["kind"]
        self.options: dict[str, Any] = report["options"]
        self.totals: dict[str, Any] = report.get("totals", {})
        self.file: str | None = report["result_file"]
        self.violations = code == _CHECK_FAILED

    @property
    def layers(self) -> DataFrame:
        return frame_of(self.report.get("layers", self.report.get("rows", [])), {"kind": self.kind, "options": self.options})

    @property
    def arrays(self) -> Dataset:
        """The result file as an xarray.Dataset."""
        if self.file is None:
            raise UsageError(f"the analysis {self.kind} was run without out=FILE, so no arrays were kept")
        from .result import open_result

        return open_result(self.file).to_xarray()

    def __fspath__(self) -> str:
        if self.file is None:
            raise UsageError(f"the analysis {self.kind} was run without out=FILE: expected a result file")
        return self.file

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                          for name, value in self.totals.items() if not isinstance(value, (dict, list)))
        return f"<kvscope {self.kind}: {words}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(repr(self)[1:-1])}</p>{self.layers._repr_html_()}"


class _Group:
    """The commands of a group as functions: kvs.analyze.theorem_b1 is kvscope analyze theorem-b1."""

    def __init__(self, group: str, call: Callable[..., Any]) -> None:
        self._group, self._call = group, call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        kind, group, call = name.replace("_", "-"), self._group, self._call
        about = signatures.table().get(f"{group} {kind}")
        if about is None:
            raise AttributeError(f"kvs.{group} has no {name}: expected one of {', '.join(self.__dir__())}")

        def command(*words: Any, **options: Any) -> Any:
            return call(kind, *words, **options)

        command.__name__, command.__qualname__ = name, f"{group}.{name}"
        signatures.describe(command, about)
        command.__doc__ = native.run([group, kind, "--help"])[1].decode()
        return command

    def __dir__(self) -> list[str]:
        return [name.split()[1].replace("-", "_") for name in signatures.table() if name.startswith(f"{self._group} ")]

    def __repr__(self) -> str:
        return f"<kvscope {self._group}: {', '.join(self.__dir__())}>"


def _analyze(kind: str, *words: Any, progress: Any = None, **options: Any) -> Analysis:
    outcome = run("analyze", kind, *words, json=True, progress=progress, **options)
    return Analysis(outcome.json, outcome.code)


def _simulate(kind: str, *words: Any, selectors: Any = None, progress: Any = None, **options: Any) -> DataFrame:
    if selectors is not None:
        options["selector"] = selector_words(selectors)
    report = run("simulate", kind, *words, json=True, progress=progress, **options).json
    return frame_of(report["rows"], report)


#: kvs.analyze.quoka(trace, out="quoka.h5") -> Analysis; options as kvscope analyze quoka has them.
analyze = _Group("analyze", _analyze)
#: kvs.simulate.perplexity(model="draft", selectors=["full", "quest"], budgets=[64]) -> DataFrame.
simulate = _Group("simulate", _simulate)
