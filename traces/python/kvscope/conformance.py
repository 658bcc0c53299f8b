"""The rules that every selector must obey, run on random sequences: kvs.selftest(mine), kvscope selftest mine.py.

The C++ tests run the same rules over the methods of kvscope (tests/core/selectors/conformance_test.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._load import native

_N_SEEDS = 6


@dataclass
class Sequence:
    """A few layers of random tensors and the calls that go through them."""

    q: list[np.ndarray]  # [n_layers][n_q, T, d]
    k: list[np.ndarray]  # [n_layers][n_kv, T, d]
    v: list[np.ndarray]
    calls: list[tuple[str, int]]

    @property
    def n_tokens(self) -> int:
        return self.k[0].shape[1]

    def part(self, layer: int, begin: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return (np.ascontiguousarray(self.q[layer][:, begin:end]), np.ascontiguousarray(self.k[layer][:, :end]),
                np.ascontiguousarray(self.v[layer][:, :end]))


def random_sequence(seed: int) -> Sequence:
    """Group 1 to 4, d 8 to 32, some keys equal and some zero, prefill in chunks, then single steps."""
    rng = np.random.default_rng(seed)
    n_kv, group, d = int(rng.integers(1, 4)), int(rng.integers(1, 5)), 8 * int(rng.integers(1, 5))
    n_tokens, chunk, n_decode = int(rng.integers(30, 90)), int(rng.integers(4, 20)), 5

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    layers = 3
    k = [normal(n_kv, n_tokens, d) for _ in range(layers)]
    for keys in k:
        keys[:, 3:9] = keys[:, :1]
        keys[:, 11] = 0
    prompt = n_tokens - n_decode
    calls = [("prefill", min(chunk, prompt - at)) for at in range(0, prompt, chunk)] + [("decode", 1)] * n_decode
    return Sequence([normal(n_kv * group, n_tokens, d) for _ in range(layers)], k,
                    [normal(n_kv, n_tokens, d) for _ in range(layers)], calls)


@dataclass
class Report:
    """What the suite found: `failures` (rule, sentence); ok if there are none."""

    spec: str
    rules: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        lines = [f"{self.spec}: {len(self.rules) - len({rule for rule, _ in self.failures})} of {len(self.rules)} rules hold"]
        for rule in self.rules:
            broken = [sentence for name, sentence in self.failures if name == rule]
            lines.append(f"  {'FAILED' if broken else 'ok':6} {rule}")
            lines += [f"         {sentence}" for sentence in broken[:3]]
        return "\n".join(lines)

    __repr__ = __str__


def _run(spec: str, sequence: Sequence, budgets: list[str], n_threads: int = 1) -> Any:
    n_q, _, d = sequence.q[0].shape
    return native.Run(spec, len(sequence.q), n_q, sequence.k[0].shape[0], d, sequence.n_tokens, d**-0.5, budgets,
                      n_threads=n_threads)


def _call(run: Any, sequence: Sequence, phase: str, n_tok: int) -> list[list[Any]]:
    """One call through all layers: selections [n_layers][n_budgets]."""
    begin = run.n_keys
    run.begin_call(phase, n_tok)
    return [run.layer_call(layer, *sequence.part(layer, begin, begin + n_tok)) for layer in range(len(sequence.q))]


def _plain(selection: Any) -> tuple[Any, ...]:
    """A selection as something that compares."""
    return (selection.owner, selection.is_dense, selection.keys.tolist(), selection.begins.tolist(),
            selection.is_forced.tolist(), selection.log_weights.tolist())


def _selections(spec: str, sequence: Sequence, budget: str, n_threads: int = 1) -> list[Any]:
    run = _run(spec, sequence, [budget], n_threads)
    return [_plain(layer[0]) for phase, n in sequence.calls for layer in _call(run, sequence, phase, n)]


def _budget(caps: dict[str, Any], n_tokens: int) -> str:
    kinds = caps["budgets"]
    if not kinds or "tokens" in kinds:
        return f"tokens={n_tokens}"
    return "p=0.8" if "p" in kinds else "ratio=0.3" if "ratio" in kinds else f"pages={-(-n_tokens // caps['page_size'])}"


class _Suite:
    def __init__(self, spec: str) -> None:
        self.spec, self.caps = spec, native.caps(spec)

    def rules(self) -> Iterator[tuple[str, Callable[[Sequence], None]]]:
        yield "lists hold visible keys, each once, and never none", self.lists
        if self.caps["budgets"] == [] or "tokens" in self.caps["budgets"]:
            yield "lists keep the budget", self.budget
            yield "a budget of the whole context keeps everything", self.whole
        yield "the same question has the same answer, from any number of threads", self.repeats
        if not (self.caps["permanent"] or self.caps["needs_probs"] or self.caps["cross_layer"]):
            yield "several budgets in one run are the same as one run each", self.budgets
        yield "rejected drafts leave no trace", self.rollback
        if not self.caps["permanent"] and "+" not in self.spec and not self.spec.startswith("keydiff"):
            yield "on top of another method, only what it left is chosen", self.stacked

    def lists(self, sequence: Sequence) -> None:
        self._check_lists(self.spec, _budget(self.caps, 9), sequence)

    def _check_lists(self, spec: str, budget: str, sequence: Sequence) -> None:
        run = _run(spec, sequence, [budget])
        n_q, n_kv = sequence.q[0].shape[0], sequence.k[0].shape[0]
        for phase, n_tok in sequence.calls:
            begin = run.n_keys
            for layer, (selection,) in enumerate(_call(run, sequence, phase, n_tok)):
                for q_head in range(n_q):
                    for row in (0, n_tok - 1):
                        keys = native.attended(selection, n_q // n_kv, q_head, begin, row)
                        where = f"layer {layer}, {phase} at {begin}, query head {q_head}, row {row}"
                        assert (np.diff(keys) > 0).all(), f"{where}: keys are not ascending or repeat"
                        assert keys.size and keys.max() <= begin + row, f"{where}: no key, or one of the future"

    def budget(self, sequence: Sequence) -> None:
        if self.caps["permanent"] or not self.caps["budgets"]:
            return
        run, n_keep = _run(self.spec, sequence, ["tokens=7"]), 7
        page = self.caps["page_size"]
        most = n_keep if page == 1 else max(-(-n_keep // page), 3) * page
        for phase, n_tok in sequence.calls:
            begin = run.n_keys
            for layer, (selection,) in enumerate(_call(run, sequence, phase, n_tok)):
                if selection.is_dense or not run.selects_in(layer) or phase not in self.caps["phases"]:
                    continue
                keys, ends = selection.keys, selection.begins
                for at in range(selection.n_lists):
                    part = slice(ends[at], ends[at + 1])
                    paid = np.sum((keys[part] < begin // page * page) & (selection.is_forced[part] == 0))
                    assert paid <= most, f"layer {layer}, {phase} at {begin}: list {at} has {paid} paid keys, budget {n_keep}"

    def whole(self, sequence: Sequence) -> None:
        if not self.caps["budgets"] or self.spec == "quest-paper":
            return
        run = _run(self.spec, sequence, [f"tokens={sequence.n_tokens + 200}"])
        group = sequence.q[0].shape[0] // sequence.k[0].shape[0]
        for phase, n_tok in sequence.calls:
            begin = run.n_keys
            for layer, (selection,) in enumerate(_call(run, sequence, phase, n_tok)):
                for row in (0, n_tok - 1):
                    n = len(native.attended(selection, group, 0, begin, row))
                    assert n == begin + row + 1, f"layer {layer}, {phase} at {begin}, row {row}: {n} keys of {begin + row + 1}"

    def repeats(self, sequence: Sequence) -> None:
        budget = _budget(self.caps, 7)
        first = _selections(self.spec, sequence, budget)
        assert first == _selections(self.spec, sequence, budget), "two runs differ"
        assert first == _selections(self.spec, sequence, budget, n_threads=3), "one thread and three differ"

    def budgets(self, sequence: Sequence) -> None:
        if "tokens" not in self.caps["budgets"]:
            return
        budgets = ["tokens=3", "tokens=20", "tokens=9"]
        together = _run(self.spec, sequence, budgets)
        selections = [layer for phase, n in sequence.calls for layer in _call(together, sequence, phase, n)]
        for at, budget in enumerate(budgets):
            assert [_plain(layer[at]) for layer in selections] == _selections(self.spec, sequence, budget), f"{budget} differs"

    def rollback(self, sequence: Sequence) -> None:
        if self.caps["needs_draft"]:
            return
        budget = _budget(self.caps, 11)
        plain, drafting = _run(self.spec, sequence, [budget]), _run(self.spec, sequence, [budget])
        other = Sequence([2.5 * q + 1 for q in sequence.q], [2.5 * k + 1 for k in sequence.k], sequence.v, sequence.calls)
        for phase, n_tok in sequence.calls[:-4]:
            begin = plain.n_keys
            expected = [_plain(layer[0]) for layer in _call(plain, sequence, phase, n_tok)]
            found = [_plain(layer[0]) for layer in _call(drafting, sequence, phase, n_tok)]
            assert expected == found, f"{phase} at {begin} differs after rejected drafts"
            here = drafting.n_keys
            mixed = Sequence(other.q, [np.concatenate([k[:, :here], o[:, here:]], 1) for k, o in zip(sequence.k, other.k)],
                             other.v, sequence.calls)
            _call(drafting, mixed, "verify", 3)
            drafting.rollback(here)

    def stacked(self, sequence: Sequence) -> None:
        spec = f"keydiff@tokens=16+{self.spec}"
        run = _run(spec, sequence, [_budget(self.caps, 7)])
        for phase, n_tok in sequence.calls:
            _call(run, sequence, phase, n_tok)  # the engine and kept_lists.cpp name dead keys in a list


def selftest(selector: Any, seeds: int = _N_SEEDS) -> Report:
    """Runs the conformance suite on a method: an own selector, or a text as on the command line."""
    spec = str(selector)
    suite = _Suite(spec)
    report = Report(spec)
    for rule, check in suite.rules():
        report.rules.append(rule)
        for seed in range(1, seeds + 1):
            try:
                check(random_sequence(seed))
            except Exception as error:  # noqa: BLE001 - whatever a selector does is a finding
                report.failures.append((rule, f"seed {seed}: {error}"))
    return report
