"""One sequence on its way into one trace: what a row of the batch adds in each forward pass, piece by piece."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kvscope._load import native

from . import filters, indexers, lse, provenance
from .errors import UnsupportedModelError
from .plan import classify, predict
from .layers import LayerShape
from .schema import CaptureSet, IndexShape, Rotation, trace_info
from .worker import HostCopy
from .writer import TraceWriter

#: Takes a job for the thread that writes, and the bytes that it holds.
Submit = Callable[[Callable[[], None], int], None]


@dataclass(frozen=True)
class Options:
    """What was asked for, parsed (filters.py)."""

    capture: CaptureSet
    layers: Any
    heads: Any
    rows: tuple[int, int | None]
    dtype: str | None
    max_new_tokens: int | None
    text_source: str
    seed: int
    overwrite: bool
    queue_bytes: int


@dataclass(frozen=True)
class Shape:
    """What the first attention call fixes for the whole trace."""

    n_q: int
    dtype: str
    is_rounded: bool  # q and k lose digits when they are stored
    q_heads: tuple[int, ...]
    layers: dict[int, LayerShape]  # of every layer that attends

    def kv_of(self, layer: int) -> tuple[int, ...]:
        """The KV head of each recorded query head."""
        group = self.n_q // self.layers[layer].n_kv
        return tuple(head // group for head in self.q_heads)

    def kv_heads(self, layer: int) -> tuple[int, ...]:
        """The KV heads that the recorded query heads read."""
        return tuple(sorted(set(self.kv_of(layer))))


class Sequence:
    """Positions count from the first token that is no padding."""

    def __init__(self, path: Path, options: Options, facts: provenance.ModelFacts, layers: tuple[int, ...],
                 texts: provenance.TokenTexts | None, created: str, submit: Submit, index: IndexShape | None = None) -> None:
        """Raises ConfigError if `path` cannot become a trace."""
        self.path = path
        self.writer = TraceWriter(path, options.overwrite)
        self.shape: Shape | None = None
        self.ends: list[int] = []  # of the passes so far
        self.pad = 0  # slots of padding before position 0
        self.is_closed = False  # padding came after it
        self.is_over = False  # its end token came, and what generate() feeds from then on is not part of it
        self.first = 0  # position of the running pass's first query, below 0 where that is padding
        self.begin = self.end = 0  # what the running pass adds
        self.rotation: Rotation | None = None  # of the passes so far
        self._options = options
        self._facts = facts
        self._layers = layers
        self._texts = texts
        self._created = created
        self._submit = submit
        self._index = index
        self._planned: list[int] = []
        self._ids: HostCopy | None = None  # of the running pass
        self._tails: dict[int, torch.Tensor] = {}  # keys after the last full page
        self._key_norms: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by layer, of each KV head: longest key, largest rounding
        self.moved: dict[int, float] = {}  # by layer: nats by which storing q and k moves scores at most

    @property
    def n_tokens(self) -> int:
        """Tokens recorded so far."""
        return self.ends[-1] if self.ends else 0

    @property
    def is_growing(self) -> bool:
        """True if the running pass adds tokens."""
        return self.end > self.begin

    # ---- a forward pass ------------------------------------------------------------------------------

    def start_pass(self, first: int, new_ids: torch.Tensor) -> None:
        """`first`: position of the pass's first query; `new_ids` [n]: the tokens that it adds, none if it adds nothing."""
        self.first = first
        self.begin = self.n_tokens
        self.end = self.begin + len(new_ids)
        self._ids = HostCopy(new_ids.detach().clone(), "i32") if self.is_growing else None

    def plan_pass(self, shape: Shape) -> None:
        """Makes the plan agree with the passes so far and this one."""
        self.shape = shape
        ends = [*self.ends, self.end]
        if self._planned[: len(ends)] == ends and self._plan_is_prompt(ends):
            return
        begun = bool(self._planned)
        self._planned = predict(ends, self._options.max_new_tokens)
        info = self.describe(self._planned)
        writer = self.writer
        self._submit((lambda: writer.replan(info)) if begun else (lambda: writer.begin(info)), 0)

    def _plan_is_prompt(self, ends: list[int]) -> bool:
        """A plan holds only as long as it calls the same passes decode steps."""
        return classify(self._planned)[0][: len(ends)][-1].is_decode == classify(ends)[0][-1].is_decode

    def end_pass(self) -> None:
        """Everything of the running pass was handed over."""
        ids, writer, texts = self._ids, self.writer, self._texts
        if ids is None:
            return

        def commit() -> None:
            tokens = ids.bits()
            writer.append_tokens(tokens, [texts.of(int(i)) for i in tokens] if texts else None)
            writer.commit()

        self._submit(commit, ids.n_bytes)
        self.ends.append(self.end)
        self._ids = None

    def new_rows(self) -> slice:
        """The new recorded rows, counted from the first query of this pass."""
        begin, end = filters.clamp_rows(self._options.rows, self.end)
        begin, end = max(begin, self.begin), max(end, self.begin)
        return slice(min(begin, end) - self.first, end - self.first)

    def record_logits(self, logits: torch.Tensor) -> None:
        """`logits` [queries of the pass, n_vocab]."""
        rows = self.new_rows()
        step = max(1, (self._options.queue_bytes // 4) // (4 * logits.shape[-1]))
        for first in range(rows.start, rows.stop, step):
            part = logits[first : min(first + step, rows.stop)]
            self._write("/logits", part, "f32")

    def record_attention(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, first_key: int, window: int,
                         kernel_lse: torch.Tensor | None, sinks: torch.Tensor | None) -> None:
        """q [n_q, n, d] of all queries of the pass; k, v [n_kv, m, d or fewer] of the keys at first_key and after.

        kernel_lse [n_q, n] f32, or None: it is computed here. sinks [n_q], or None. window: 0 = all before a row.
        """
        shape, capture, rows = self.shape, self._options.capture, self.new_rows()
        assert shape is not None
        own, kv_heads = shape.layers[layer], shape.kv_heads(layer)
        k_new = _select(k[:, self.begin - first_key : self.end - first_key], kv_heads)
        v_new = _select(v[:, self.begin - first_key : self.end - first_key], kv_heads)
        if v_new.shape[-1] < own.d_head:  # the output's further elements are 0, so no norm or error changes
            v_new = torch.nn.functional.pad(v_new, (0, own.d_head - v_new.shape[-1]))
        q = _select(q[:, rows], shape.q_heads)
        at = f"/layers/{layer}"
        if capture.qkv:
            self._write(f"{at}/q", q, shape.dtype)
            self._write(f"{at}/k", k_new, shape.dtype)
            self._write(f"{at}/v", v_new, shape.dtype)
        if (capture.lse or capture.maps) and rows.stop > rows.start:
            block = lse.Rows(q, k, shape.kv_of(layer), own.scale, own.cap, self.first + rows.start, first_key, window)
            if kernel_lse is not None:
                values = _select(kernel_lse[:, rows], shape.q_heads)
            else:
                values = lse.compute_lse(block, None if sinks is None else sinks[list(shape.q_heads)])
            if capture.lse:
                self._write(f"{at}/lse", values, "f32")
            if capture.maps:
                self._record_maps(at, block, values, shape.dtype)
        if capture.qkv and shape.is_rounded:
            self._note_rounding(layer, q, k_new, shape)
        if capture.stats:
            self._record_stats(layer, q, k_new, rows)

    def record_side(self, layer: int, index: indexers.IndexedCall | None, row: int, k_pre_rope: torch.Tensor | None) -> None:
        """The side tensors of a layer: what its indexer saw (of row `row` of the batch), keys before rotation [n_kv, n, d]."""
        shape, rows, at = self.shape, self.new_rows(), f"/layers/{layer}"
        assert shape is not None
        if self._index is not None and layer in self._index.layers:
            if index is None:
                raise UnsupportedModelError(f"capture index: the indexer of layer {layer} was not called in this forward pass")
            position = self.first + rows.start
            self._write(f"{at}/index_q", index.q[row, :, rows], shape.dtype)
            self._write(f"{at}/index_k", index.k[row, :, self.begin : self.end], shape.dtype)
            if self._index.has_gates:
                assert index.gates is not None
                self._write(f"{at}/index_w", index.gates[row, :, rows], "f32")
            chosen = indexers.chosen_blocks(index.chosen[row, :, rows], position, self._index)
            self._write(f"{at}/index_selected", chosen, "i32")
        if k_pre_rope is not None:
            new = k_pre_rope[:, self.begin - self.first : self.end - self.first]
            self._write(f"{at}/k_pre_rope", _select(new, shape.kv_heads(layer)), shape.dtype)

    def _record_maps(self, at: str, block: lse.Rows, values: torch.Tensor, dtype: str) -> None:
        capture = self._options.capture
        for part in lse.map_blocks(block, values, self.end, capture.attn_dense, capture.attn_topk):
            if part.dense is not None:
                self._write(f"{at}/attn", part.dense, dtype)
            if part.top_pos is not None and part.top_prob is not None:
                self._write(f"{at}/topk_pos", part.top_pos, "i32")
                self._write(f"{at}/topk_prob", part.top_prob, "f32")

    def _record_stats(self, layer: int, q: torch.Tensor, k: torch.Tensor, rows: slice) -> None:
        at, page = f"/layers/{layer}/stats", self._options.capture.page_size
        self._write(f"{at}/q_norm", q.double().norm(dim=-1), "f32")
        self._write(f"{at}/k_norm", k.double().norm(dim=-1), "f32")
        tail = self._tails.get(layer)
        keys = k if tail is None else torch.cat([tail, k], dim=1)
        full = keys.shape[1] // page
        self._tails[layer] = keys[:, full * page :].clone()
        pages = keys[:, : full * page].reshape(k.shape[0], full, page, k.shape[2])
        if full:
            self._write(f"{at}/page_min", pages.amin(dim=2), "f32")
            self._write(f"{at}/page_max", pages.amax(dim=2), "f32")

    def _note_rounding(self, layer: int, q: torch.Tensor, k: torch.Tensor, shape: Shape) -> None:
        """|q.k - q'.k'| <= |q| max |k' - k| + |q' - q| max |k'|, where q' and k' are stored: the bound that kvscope record has."""
        (longest, error), (rows, row_errors) = (_norms(x, shape.dtype) for x in (k, q))
        longest, error = (x.amax(dim=1) if x.shape[1] else x.new_zeros(len(x)) for x in (longest, error))
        if layer in self._key_norms:
            longest, error = (torch.maximum(x, before) for x, before in zip((longest, error), self._key_norms[layer]))
        self._key_norms[layer] = longest, error
        heads = shape.kv_heads(layer)
        slots = [heads.index(head) for head in shape.kv_of(layer)]
        moved = rows * error[slots, None] + row_errors * longest[slots, None]
        nats = shape.layers[layer].scale * float(moved.amax()) if moved.numel() else 0.0
        self.moved[layer] = max(self.moved.get(layer, 0.0), nats)

    def _write(self, path: str, tensor: torch.Tensor, stored: str) -> None:
        copy = HostCopy(tensor, stored)
        writer = self.writer
        self._submit(lambda: writer.append(path, copy.bits()), copy.n_bytes)

    # ---- the trace -----------------------------------------------------------------------------------

    def finish(self, status: str) -> native.TraceInfo:
        """Makes the trace of the whole passes. Raises OSError, ConfigError."""
        return self.writer.finish(status, self.describe(self.ends), [self.moved.get(layer, 0.0) for layer in self._layers])

    def describe(self, ends: list[int]) -> native.TraceInfo:
        """The trace of a run whose passes end at these tokens."""
        shape, facts, options = self.shape, self._facts, self._options
        assert shape is not None
        full = [layer for layer in self._layers if not facts.windows[layer]]
        first = full[0] if full else self._layers[0]
        main = shape.layers[first]
        layer_shapes: tuple[tuple[int, int, float, float, int], ...] = ()
        if any(one != main for one in shape.layers.values()):
            all_layers = (shape.layers.get(layer, main) for layer in range(facts.n_layers))  # those that do not attend: as the main one
            layer_shapes = tuple((one.n_kv, one.d_head, one.scale, one.cap, one.keys_of) for one in all_layers)
        calls, n_prompt, chunk = classify(ends)
        n_tokens = ends[-1]
        capacity = 0
        if self._texts is not None:
            capacity = max(1, n_tokens * self._texts.longest)
        return trace_info(
            model_name=facts.name, model_family=facts.family, model_config=facts.config_json,
            n_layers=facts.n_layers, n_q=shape.n_q, n_kv=main.n_kv, d_head=main.d_head,
            d_model=facts.d_model, n_vocab=facts.n_vocab, score_scale=main.scale, score_cap=main.cap,
            window=[width or None for width in facts.windows], rope_kind=facts.rope_kind, rope_theta=facts.rope_theta,
            rope_factor=facts.rope_factor, qk_norm=facts.qk_norm,
            rope_frequencies=self.rotation and self.rotation.frequencies, rope_amplitudes=self.rotation and self.rotation.amplitudes,
            sinks=facts.sinks, layer_kinds=facts.layer_kinds, n_experts_per_token=facts.n_experts_per_token,
            capture=options.capture, dtype=shape.dtype, layers=self._layers,
            q_heads=shape.q_heads, kv_heads=shape.kv_heads(first), layer_shapes=layer_shapes,
            moved_scores=[math.nan] * len(self._layers) if shape.is_rounded and options.capture.qkv else None,
            rows=filters.clamp_rows(options.rows, n_tokens), n_tokens=n_tokens, n_prompt=n_prompt, chunk=chunk, calls=calls,
            token_text_capacity=capacity, created=self._created, writer=provenance.writer_name(),
            command_line=provenance.command_line(), host=provenance.host_name(), text_source=options.text_source,
            tokenizer_hash=self._texts.hash if self._texts else "", seed=options.seed, index=self._index,
        )


def loses_digits(tensor: torch.Tensor, dtype: str) -> bool:
    """True if a tensor's numbers change when they are stored."""
    return dtype != "f32" and tensor.dtype != {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]


def _norms(rows: torch.Tensor, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row [heads, n]: its norm, exact or stored, and that of what storing changes."""
    exact = rows.detach().double()
    stored = exact.to(torch.float16 if dtype == "f16" else torch.bfloat16).double()
    return torch.maximum(exact.norm(dim=-1), stored.norm(dim=-1)), (stored - exact).norm(dim=-1)


def _select(heads: torch.Tensor, chosen: tuple[int, ...]) -> torch.Tensor:
    """The chosen heads of [heads, ...]."""
    return heads if len(chosen) == heads.shape[0] else heads[list(chosen)]


def scale_of(scaling: float | None, d_head: int) -> float:
    """The factor in front of q.k, rounded as a trace stores it; None = 1 / sqrt(d_head)."""
    return float(np.float32(d_head**-0.5 if scaling is None else scaling))
