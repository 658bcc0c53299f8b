"""What the commands take, in Python's words: from the program's own option table (kvscope help --json).

At run time inspect.signature shows it. The build writes it to _commands.pyi, which type checkers and editors read:

    python signatures.py FOLDER      FOLDER has the native module and gets the stub
"""

from __future__ import annotations

import inspect
import json
import keyword
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

_HEAD = '''# Written by signatures.py from the option table of the program: change that, not this.
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Literal, overload

from pandas import DataFrame

from .commands import Analysis, Outcome
from .figures import Figure
from .own import OwnSelector

File = str | PathLike[str]
Words = str | float | Iterable[str | float]
Budgets = float | str | Iterable[float | str]
Selectors = str | OwnSelector | Iterable[str | OwnSelector]
Progress = bool | Callable[[str, int, int, str], None] | None
'''
_NUMBERS = {"N": "int", "X": "float", "SHARE": "float", "GIB": "float"}
_OWN = ("help", "json", "progress")  # options that the functions have their own way with
_P = inspect.Parameter


def _annotation(spec: dict[str, Any]) -> str:
    if not spec["value"] or is_truth(spec):
        return "bool"
    if spec["choices"]:
        return f"Literal[{', '.join(map(repr, spec['choices']))}]"
    if spec["name"] in ("selector", "selectors"):
        return "Selectors"
    if spec["name"] == "budget" and spec["value"] != "N":
        return "Budgets"
    if spec["kind"] != "text":
        return "File | Sequence[File]" if spec["repeatable"] else "File"
    if spec["value"] == "TEXT":
        return "str"
    return _NUMBERS.get(spec["value"], "Words") + (" | Literal['all']" if ", or all" in spec["help"] else "")


def is_truth(spec: dict[str, Any]) -> bool:
    """An option with the values true and false, other than a flag, which has none."""
    return bool(spec["value"]) and sorted(spec["choices"]) == ["false", "true"]


def is_repeated(spec: dict[str, Any]) -> bool:
    """An option that is given once for each value, since a comma may be part of one."""
    return spec["repeatable"] and not spec["value"].endswith(("LIST", "]"))


def _default(spec: dict[str, Any], annotation: str) -> Any:
    text = spec["default"]
    if annotation == "bool":
        return text == "true"
    if not text:
        return None
    return {"int": int, "float": float}.get(annotation, str)(text)


def _option(spec: dict[str, Any]) -> inspect.Parameter:
    name = spec["name"].replace("-", "_")
    annotation = _annotation(spec)
    default = _default(spec, annotation)
    return _P(name + "_" * keyword.iskeyword(name), _P.KEYWORD_ONLY, default=default,
              annotation=annotation if default is not None else f"{annotation} | None")


def _argument(spec: dict[str, Any]) -> inspect.Parameter:
    name = spec["name"].lower().replace("|", "_or_").replace("-", "_")
    kind = _annotation(spec | {"repeatable": False}) if spec["choices"] or spec["kind"] != "text" else "str"
    if spec["repeatable"]:
        return _P(name, _P.VAR_POSITIONAL, annotation=kind)
    if spec["required"]:
        return _P(name, _P.POSITIONAL_ONLY, annotation=kind)
    return _P(name, _P.POSITIONAL_ONLY, annotation=f"{kind} | None", default=None)


def _named(name: str, annotation: str, default: Any = _P.empty, kind: Any = _P.POSITIONAL_OR_KEYWORD) -> inspect.Parameter:
    return _P(name, kind, annotation=annotation, default=default)


def _keyword(name: str, annotation: str, default: Any = None) -> inspect.Parameter:
    return _named(name, annotation, default, _P.KEYWORD_ONLY)


def _made(own: Iterable[inspect.Parameter], about: dict[str, Any], returns: str, without: Iterable[str] = ()) -> inspect.Signature:
    """`own` parameters, then the command's options other than these."""
    own = list(own)
    taken = {parameter.name for parameter in own} | {*_OWN, *without}
    options = [option for spec in about["options"] if (option := _option(spec)).name not in taken]
    order = sorted([*own, _keyword("progress", "Progress"), *options], key=lambda parameter: parameter.kind)  # stable
    return inspect.Signature(order, return_annotation=returns)


def signature(about: dict[str, Any]) -> inspect.Signature:
    """Of the function that a command has of its own: kvs.sweep, kvs.figure, those of kvs.analyze and kvs.simulate."""
    group, arguments = about["name"].split()[0], [_argument(spec) for spec in about["arguments"]]
    if group == "sweep":
        phase = _option(next(spec for spec in about["options"] if spec["name"] == "phase"))
        own = [_named("traces", "File | Sequence[File]"), _named("selectors", "Selectors"),
               _named("budgets", "Budgets | None", None), phase.replace(kind=_P.POSITIONAL_OR_KEYWORD)]
        return _made(own, about, "DataFrame", ("selector",))
    if group == "figure":
        own = [_named("name", "str"), _named("results", "File | DataFrame", kind=_P.VAR_POSITIONAL)]
        return _made(own, about, "Figure", ("out", "overwrite"))
    if group == "simulate":
        own = [*arguments, _keyword("selectors", "Selectors | None"), _keyword("budgets", "Budgets | None")]
        return _made(own, about, "DataFrame", ("selector",))
    return _made(arguments, about, "Analysis")


def _run_signature(about: dict[str, Any]) -> inspect.Signature:
    words = [_named(f"word_{at}", f"Literal[{word!r}]", kind=_P.POSITIONAL_ONLY) for at, word in enumerate(about["name"].split())]
    json_option = [_keyword("json", "bool", False)] if any(spec["name"] == "json" for spec in about["options"]) else []
    return _made([*words, *map(_argument, about["arguments"]), *json_option], about, "Outcome")


def documentation(about: dict[str, Any]) -> str:
    """The help of a command, with the names that its options have in Python."""
    lines = [f"{about['summary'][:1].upper()}{about['summary'][1:]}.", ""]
    for paragraph in about["description"].splitlines():
        lines += [*textwrap.wrap(paragraph, 110), ""]
    for spec in about["arguments"] + [spec for spec in about["options"] if spec["name"] not in _OWN]:
        default = f" [{spec['default']}]" if spec["default"] else ""
        lines += textwrap.wrap(f"{spec['name'].replace('-', '_')}: {spec['help']}{default}", 110, subsequent_indent="    ")
    return "\n".join(lines)


def _parameters(shown: inspect.Signature) -> Iterator[str]:
    kinds = [parameter.kind for parameter in shown.parameters.values()]
    for at, (name, parameter) in enumerate(shown.parameters.items()):
        before = kinds[at - 1] if at else None
        if before is _P.POSITIONAL_ONLY and parameter.kind is not _P.POSITIONAL_ONLY:
            yield "/"
        if parameter.kind is _P.KEYWORD_ONLY and before not in (_P.KEYWORD_ONLY, _P.VAR_POSITIONAL):
            yield "*"
        star = "*" * (parameter.kind is _P.VAR_POSITIONAL)
        value = "" if parameter.default is _P.empty else f" = {parameter.default!r}"
        yield f"{star}{name}: {parameter.annotation}{value}"


def _function(name: str, shown: inspect.Signature, about: dict[str, Any], indent: str = "") -> str:
    words = [*(["self"] if indent else []), *_parameters(shown)]
    text = textwrap.indent(documentation(about).replace("\\", "\\\\"), indent + "    ").strip()
    return f'{indent}def {name}({", ".join(words)}) -> {shown.return_annotation}:\n{indent}    """{text}"""\n'


def stub(table: list[dict[str, Any]]) -> str:
    """The text of _commands.pyi."""
    out = [_HEAD]
    for about in table:
        if about["name"] in ("sweep", "figure"):
            out.append(_function(about["name"], signature(about), about))
    for group in ("analyze", "simulate"):
        out.append(f"class _{group.title()}:\n")
        out += [_function(about["name"].split()[1].replace("-", "_"), signature(about), about, "    ")
                for about in table if about["name"].startswith(group + " ")]
        out.append(f"{group}: _{group.title()}\n")
    for about in sorted(table, key=lambda about: -len(about["name"].split())):  # "fit draft" before "fit"
        out.append("@overload\n" + _function("run", _run_signature(about), about))
    # Words that are not known before the program runs.
    out.append("@overload\ndef run(command: str, /, *words: Any, progress: Progress = None) -> Outcome: ...\n")
    return "\n".join(out)


@lru_cache
def table() -> dict[str, dict[str, Any]]:
    """Arguments and options of every command by its name: "sweep", "analyze quoka"."""
    from ._load import native

    return {about["name"]: about for about in json.loads(native.run(["help", "--json"])[1])}


def describe(function: Callable[..., Any], about: dict[str, Any]) -> None:
    """Gives a function of **options the command's signature."""
    function.__signature__ = signature(about)  # type: ignore[attr-defined]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.path[:1] = [str(folder), str(Path(__file__).parents[1])]  # the module, and the package whose errors it raises
    import _native

    (folder / "_commands.pyi").write_text(stub(json.loads(_native.run(["help", "--json"])[1])), encoding="utf-8")
