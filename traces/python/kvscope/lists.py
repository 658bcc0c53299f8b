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


def caps_of(who: str, spec: str, budget: str | None) -> dict[str, Any]:
    """What a method needs (native.caps). Raises UsageError for a budget that it does not understand, and for what is not at hand."""
    caps = native.caps(spec, budget)
    if caps["needs_calibration"]:
        raise UsageError(f"{who} {spec}: the method learns from a text first: expected the file that kvscope fit made of it, in its option "
                         f"{caps['artifact_option']}=FILE")
    if caps["needs_draft"]:
        raise UsageError(f"{who} {spec}: the method needs a draft model, which is not at hand here: expected another one (kvscope sweep "
                         "and simulate run it)")
    return caps


def select(trace: Trace | str | PathLike[str], selector: str | OwnSelector, budget: float | str, *, layer: int, pos: int,
           n_tok: int = 1, phase: Phase | None = None, chunk: int = 128) -> Lists:
    """Asks a method once, as replay does: which keys do the queries at pos, ..., pos + n_tok - 1 of a layer attend to?

    phase  prefill, decode or verify [decode for one query, else prefill]
    chunk  prefill calls through which methods with a history (evictions, votes) live before it
    """
    from .commands import budget_words
    from .trace import Trace

    opened = trace if isinstance(trace, Trace) else Trace(trace)
    spec, text = str(selector), budget_words(budget) or "tokens=1024"
    caps = caps_of("kvs.select: selector", spec, text)
    if chunk < 1:
        raise UsageError(f"kvs.select: chunk: expected at least 1, found {chunk}")
    if not 0 <= pos <= opened.n_tokens - n_tok or n_tok < 1:
        raise UsageError(f"kvs.select: positions {pos} to {pos + n_tok - 1}: expected a part of the trace's {opened.n_tokens} tokens")
    part = opened[layer]
    if part.window is not None:
        raise UsageError(f"kvs.select: layer {layer} has a sliding window of {part.window}, which methods leave as it is: expected a "
                         "layer with full attention")
    end = pos + n_tok
    info = opened._opened().info
    sinks = info.sinks
    asked = [one for one in opened if one.window is None and one.index < layer] if caps["cross_layer"] else []
    if any((one.n_kv, one.d_head, one.score_scale, one.score_cap) != (part.n_kv, part.d_head, part.score_scale, part.score_cap) for one in asked):
        raise UsageError(f"kvs.select {spec}: what it finds in one layer serves others, and layers before {layer} have other KV heads, "
                         "channels or scores")
    asked.append(part)
    held = {one.index: (one.k[:, :end], one.v[:, :end]) for one in asked}
    run = native.Run(spec, opened.n_layers, opened.n_q, part.n_kv, part.d_head, end, part.score_scale, [text], dense_layers=0,
                     score_cap=part.score_cap, has_window=[window is not None for window in info.window], model_config=info.model_config)
    has_history = caps["permanent"] or caps["needs_probs"]

    def has_sinks(index: int) -> bool:
        return len(sinks) > 0 and bool(np.isfinite(sinks[index][0]))

    def call(begin: int, stop: int, word: str, is_asked: bool) -> Any:
        run.begin_call(word, stop - begin)
        for one in asked:  # in the layers before, too, where lists pass from layer to layer
            at = slice(begin - opened.rows[0], stop - opened.rows[0])
            q = one.q[:, at] if is_asked else np.zeros((opened.n_q, stop - begin, part.d_head), np.float32)
            k, v = (np.ascontiguousarray(rows[:, :stop]) for rows in held[one.index])
            (answer,) = run.layer_call(one.index, np.ascontiguousarray(q), k, v, list(sinks[one.index]) if has_sinks(one.index) else [])
        return answer

    begin = 0
    run.set_open(has_history)
    while begin < pos:
        is_prompt = begin < opened.n_prompt
        step = min(pos - begin, chunk, opened.n_prompt - begin if is_prompt else 1) if has_history else pos - begin
        call(begin, begin + step, "prefill" if is_prompt or not has_history else "decode", has_history)
        begin += step
    run.set_open(True)
    if pos < opened.rows[0] or end > opened.rows[1]:
        raise UsageError(f"kvs.select: positions {pos} to {end - 1}: expected recorded rows, {opened.rows[0]} to {opened.rows[1] - 1}")
    selection = call(pos, end, phase or ("decode" if n_tok == 1 else "prefill"), is_asked=True)
    return Lists(selection, opened.n_q, part.n_kv, pos, n_tok, spec, text, layer)
