"""The lists of a method at one place of a trace: kvs.select(trace, "quest", "tokens=256", layer=7, pos=31000)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._load import native
from .errors import UsageError

if TYPE_CHECKING:
    from os import PathLike

    from .own import OwnSelector, Phase
    from .trace import Trace


@dataclass
class Lists:
    """Which keys the queries of one call attend to in one layer.

    selection  the lists, one per owner (q_head, kv_head or layer) and block of queries
    """

    selection: Any
    n_q: int
    n_kv: int
    pos_begin: int
    n_tok: int
    method: str = ""
    budget: str = ""
    layer: int = 0

    @property
    def owner(self) -> str:
        return self.selection.owner

    @property
    def n_keys(self) -> int:
        """Keys of the context, the call's own included."""
        return self.pos_begin + self.n_tok

    def keys(self, q_head: int, row: int = 0) -> np.ndarray:
        """Positions that a query attends to, ascending; the causal mask is applied."""
        return native.attended(self.selection, self.n_q // self.n_kv, int(q_head), self.pos_begin, int(row))

    def weights(self, q_head: int, row: int = 0) -> np.ndarray:
        """What a sampler adds to the scores of keys(q_head, row): 0 for methods that do not sample."""
        log_weights = self.selection.log_weights
        kept = self.keys(q_head, row)
        if self.selection.is_dense or not len(log_weights):
            return np.zeros(len(kept), np.float32)
        heads = {"q_head": q_head, "kv_head": q_head * self.n_kv // self.n_q, "layer": 0}
        n_blocks = -(-self.n_tok // self.selection.rows_per_list)
        at = heads[self.owner] * n_blocks + row // self.selection.rows_per_list
        part = slice(self.selection.begins[at], self.selection.begins[at + 1])
        return log_weights[part][np.isin(self.selection.keys[part], kept)]

    def __repr__(self) -> str:
        sizes = [len(self.keys(head, self.n_tok - 1)) for head in range(self.n_q)]
        return (f"<lists of {self.method} {self.budget}, layer {self.layer}, positions {self.pos_begin} to {self.n_keys - 1}: "
                f"{min(sizes)} to {max(sizes)} of {self.n_keys} keys per query head, lists per {self.owner}>")


def select(trace: Trace | str | PathLike[str], selector: str | OwnSelector, budget: int | str, *, layer: int, pos: int,
           n_tok: int = 1, phase: Phase | None = None, chunk: int = 128) -> Lists:
    """Asks a method once, as replay does: which keys do the queries at pos, ..., pos + n_tok - 1 of a layer attend to?

    phase  prefill, decode or verify [decode for one query, else prefill]
    chunk  prefill calls through which methods with a history (evictions, votes) live before it
    """
    from .commands import budget_words
    from .trace import Trace

    opened = trace if isinstance(trace, Trace) else Trace(trace)
    spec, text = str(selector), budget_words(budget) or "tokens=1024"
    caps = native.caps(spec)
    for need, words in (("needs_draft", "a draft model's rows"), ("needs_calibration", "a text to learn from"),
                        ("cross_layer", "the lists of other layers"), ("needs_rotation", "the model's rotary embedding"),
                        ("needs_projection", "the model's output projection")):
        if caps[need]:
            raise UsageError(f"kvs.select: selector {spec} needs {words}: expected a method that answers a layer by itself; kvs.sweep runs it")
    if not 0 <= pos <= opened.n_tokens - n_tok or n_tok < 1:
        raise UsageError(f"kvs.select: positions {pos} to {pos + n_tok - 1}: expected a part of the trace's {opened.n_tokens} tokens")
    part = opened[layer]
    if part.window is not None:
        raise UsageError(f"kvs.select: layer {layer} has a sliding window of {part.window}, which methods leave as it is: expected a "
                         "layer with full attention")
    end = pos + n_tok
    k, v = part.k[:, :end], part.v[:, :end]
    sinks = opened._opened().sinks
    run = native.Run(spec, opened.n_layers, opened.n_q, opened.n_kv, opened.d_head, end, opened.score_scale, [text], dense_layers=0,
                     score_cap=opened.score_cap)
    has_history = caps["permanent"] or caps["needs_probs"]

    def call(begin: int, stop: int, word: str, queries: np.ndarray) -> Any:
        run.begin_call(word, stop - begin)
        return run.layer_call(layer, np.ascontiguousarray(queries), np.ascontiguousarray(k[:, :stop]), np.ascontiguousarray(v[:, :stop]),
                              list(sinks[layer]) if len(sinks) else [])[0]

    begin = 0
    run.set_open(has_history)
    while begin < pos:
        is_prompt = begin < opened.n_prompt
        step = min(pos - begin, chunk, opened.n_prompt - begin if is_prompt else 1) if has_history else pos - begin
        queries = part.q[:, begin - opened.rows[0] : begin + step - opened.rows[0]] if has_history else np.zeros(
            (opened.n_q, step, opened.d_head), np.float32)
        call(begin, begin + step, "prefill" if is_prompt or not has_history else "decode", queries)
        begin += step
    run.set_open(True)
    if pos < opened.rows[0] or end > opened.rows[1]:
        raise UsageError(f"kvs.select: positions {pos} to {end - 1}: expected recorded rows, {opened.rows[0]} to {opened.rows[1] - 1}")
    selection = call(pos, end, phase or ("decode" if n_tok == 1 else "prefill"), part.q[:, pos - opened.rows[0] : end - opened.rows[0]])
    return Lists(selection, opened.n_q, opened.n_kv, pos, n_tok, spec, text, layer)
