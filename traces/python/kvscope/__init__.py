"""kvscope: sparse attention on recorded and live models, from Python.

    import kvscope as kvs
    trace = kvs.open("trace.h5")                              # q, k, v, lse, tokens, rows of attention; lazily
    table = kvs.sweep(trace, ["quest", "oracle-topk"], budgets=[64, 256])   # a DataFrame
    kvs.figure("budget", table)                               # shows itself in a notebook

    @kvs.selector(name="mine", budgets=["tokens"], owner="kv_head", phases=["decode"])
    def mine(q, k, budget):                                   # [n_q, n_tok, d], [n_kv, n_keys, d]
        scores = np.einsum("gd,gtd->gt", q.reshape(len(k), -1, q.shape[2]).mean(1), k)
        return kvs.top(scores, budget)
    kvs.sweep(trace, ["quest", mine], budgets=[256], phase="decode")

Numbers are those of the command line, to the last bit: the same code runs in this process. Nothing here imports torch
before kvs.policy or kvs.record is used.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

if os.environ.get("KVSCOPE_NATIVE"):  # the module of a build folder, for these sources: build/release/python/kvscope
    __path__.append(os.environ["KVSCOPE_NATIVE"])

#: Where each public name lives; a module is imported when one of its names is first used.
_PLACES = {
    "open": "trace", "Trace": "trace",
    "open_result": "result", "Result": "result",
    "run": "commands", "sweep": "commands", "analyze": "commands", "simulate": "commands", "selectors": "commands",
    "Analysis": "commands", "Outcome": "commands",
    "figure": "figures", "Figure": "figures",
    "selector": "own", "top": "own", "OwnSelector": "own",
    "selftest": "conformance",
    "export": "export",
    "select": "lists", "Lists": "lists",
    "show": "explorer",
    "policy": "policy",
    "record": "recorder",
    "Error": "errors", "UsageError": "errors", "InputError": "errors", "CommandError": "errors", "SelectorError": "errors",
}
__all__ = sorted(set(_PLACES) - {"open"})  # import * must not hide the builtin


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ._load import native

        return native.writer.split()[1]
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module kvscope has no attribute {name!r}")
    # Importing a submodule of the same name (export, policy) sets an attribute, which the name must replace.
    module = importlib.import_module(f".{place}", __name__)
    for public, where in _PLACES.items():
        if where == place:
            globals()[public] = getattr(module, public)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_PLACES))
