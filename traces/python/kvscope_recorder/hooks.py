"""Follows a model through its forward passes and hands what its attention sees to the writer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import filters, interface, lse, provenance
from .errors import ConfigError, RecordError, UnsupportedModelError
from .plan import classify, predict
from .schema import CaptureSet, TraceInfo
from .worker import HostCopy, Worker, require_finite
from .writer import TraceWriter


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


@dataclass(frozen=True)
class Shape:
    """What the first attention call fixes for the whole trace."""

    n_q: int
    n_kv: int
    d_head: int
    scale: float
    dtype: str


_BATCH_BYTES = 1 << 20
_DTYPE_NAMES = {torch.float16: "f16", torch.bfloat16: "bf16"}


class Recorder:
    """Records one sequence of one model; used as a context manager (see record())."""

    def __init__(self, model: torch.nn.Module, path: Path, options: Options, texts: provenance.TokenTexts | None,
                 overwrite: bool, queue_bytes: int) -> None:
        self.path = path
        self.info: TraceInfo | None = None  # of the finished trace
        self._model = model
        self._options = options
        self._texts = texts
        self._facts = provenance.describe_model(model)
        self._layers = filters.choose(options.layers, self._facts.layers, "layer")
        self._writer = TraceWriter(path, overwrite)
        self._queue_bytes = queue_bytes
        self._worker: Worker | None = None
        self._batch: list[Callable[[], None]] = []
        self._batch_bytes = 0
        self._undo = contextlib.ExitStack()
        self._shape: Shape | None = None
        self._q_heads: tuple[int, ...] = ()
        self._kv_heads: tuple[int, ...] = ()
        self._ends: list[int] = []  # of the passes so far
        self._planned: list[int] = []
        self._ids: HostCopy | None = None  # of the running pass
        self._known: list[torch.Tensor] = []  # ids of the passes so far, on their device
        self._first = 0  # position of the running pass's first query
        self._begin = self._end = 0  # what it adds to the trace
        self._seen: set[int] = set()
        self._masks_checked: set[tuple[int, int]] = set()
        self._tails: dict[int, torch.Tensor] = {}  # keys after the last full page
        self._failed = False
        self._created = provenance.timestamp()

    # ---- context -------------------------------------------------------------------------------------

    def __enter__(self) -> Recorder:
        with contextlib.ExitStack() as undo:
            undo.callback(interface.attach(self._model, self))
            before = self._model.register_forward_pre_hook(self._before_pass, with_kwargs=True)
            undo.callback(before.remove)
            undo.callback(self._model.register_forward_hook(self._after_pass, with_kwargs=True).remove)
            self._undo = undo.pop_all()
        self._worker = Worker(self._queue_bytes)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._undo.close()
        assert self._worker is not None
        broken = self._worker.close()
        if broken is not None or isinstance(error, RecordError):
            self._give_up(broken or error, raise_it=error is None)
            return
        if not self._ends:
            self._writer.abandon()
            if error is None:
                raise RecordError(f"{self.path}: nothing was recorded: the model was not called inside the with block")
            return
        try:
            self.info = self._writer.finish("complete" if error is None else "interrupted", self._describe(self._ends))
        except OSError as failure:
            self._give_up(failure, raise_it=error is None)

    def _give_up(self, error: BaseException | None, raise_it: bool) -> None:
        hint = self._writer.abandon()
        if not raise_it:
            if error is not None and hint and hasattr(error, "add_note"):
                error.add_note(hint)
            return
        if isinstance(error, OSError):
            raise RecordError(f"cannot write {self.path}: {error}; {hint}") from error
        if isinstance(error, RecordError) and hint:
            raise type(error)(f"{error}; {hint}") from error
        assert error is not None
        raise error

    @property
    def n_tokens(self) -> int:
        """Tokens recorded so far."""
        return self._ends[-1] if self._ends else 0

    @property
    def seconds_blocked(self) -> float:
        """How long the model waited for the disk."""
        return self._worker.seconds_blocked if self._worker else 0.0

    # ---- a forward pass ------------------------------------------------------------------------------

    def _before_pass(self, module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self._failed:
            raise RecordError("an earlier forward pass inside this recording failed; the passes before it are kept")
        self._failed = True  # until the pass has come to its end
        ids = kwargs.get("input_ids", args[0] if args else None)
        if not isinstance(ids, torch.Tensor) or ids.is_floating_point():
            raise UnsupportedModelError("the forward pass has no input_ids: a trace needs the token ids (inputs_embeds is not enough)")
        if ids.dim() != 2 or ids.shape[0] != 1:
            raise UnsupportedModelError(
                f"input_ids of shape {list(ids.shape)}: a trace holds one sequence, so record with batch size 1 "
                "(no beam search, one prompt at a time)"
            )
        mask = kwargs.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.dim() == 2 and ids.shape[1] > 1 and not bool(mask.all()):
            raise UnsupportedModelError("attention_mask hides tokens: a trace holds one sequence without padding")
        self._begin = self.n_tokens
        self._first = self._past_tokens(kwargs.get("past_key_values"), ids[0])
        self._end = self._first + ids.shape[1]
        new = ids[0, self._begin - self._first :].detach().clone()
        self._known.append(new)
        self._ids = HostCopy(new, "i32")
        self._seen.clear()
        self._masks_checked.clear()
        if self._options.capture.logits and kwargs.get("logits_to_keep"):
            kwargs = {**kwargs, "logits_to_keep": 0}  # generate() asks for the last position only
            return args, kwargs
        return None

    def _past_tokens(self, cache: Any, ids: torch.Tensor) -> int:
        """How many tokens the cache holds: those recorded, or none if the pass computes all of them again."""
        past = int(cache.get_seq_length()) if cache is not None and hasattr(cache, "get_seq_length") else 0
        if past == self._begin:
            return past
        if self._begin == 0:
            raise UnsupportedModelError(
                f"the cache holds {past} tokens from before the recording: start the recorder before the prompt"
            )
        if past == 0:
            known = torch.cat(self._known)
            if len(ids) > len(known) and torch.equal(ids[: len(known)], known):
                return 0  # generation without a cache
            raise UnsupportedModelError(
                f"a second sequence began after {self._begin} tokens: a trace holds one sequence; use one recorder for each"
            )
        raise UnsupportedModelError(
            f"the cache holds {past} tokens where {self._begin} were recorded: it was cropped or reordered "
            "(assisted decoding, beam search), which a trace cannot follow"
        )

    def _after_pass(self, module: torch.nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        missing = [layer for layer in self._layers if layer not in self._seen]
        if missing:
            raise UnsupportedModelError(
                f"layers {missing} made no call through transformers' attention interface in this forward pass: "
                "record the others with layers=..., or load the model with attn_implementation='sdpa' or 'eager'"
            )
        if self._options.capture.logits:
            self._record_logits(getattr(output, "logits", None))
        ids, writer, texts = self._ids, self._writer, self._texts
        assert ids is not None

        def commit() -> None:
            tokens = ids.bits()
            writer.append_tokens(tokens, [texts.of(int(i)) for i in tokens] if texts else None)
            writer.commit()

        self._submit(commit, ids.n_bytes)
        self._flush()
        self._ends.append(self._end)
        self._ids = None
        self._failed = False

    def _record_logits(self, logits: Any) -> None:
        rows = self._rows_of_pass()
        if not isinstance(logits, torch.Tensor) or logits.shape[-2] != self._end - self._first:
            found = list(logits.shape) if isinstance(logits, torch.Tensor) else None
            raise ConfigError(f"capture logits: expected logits of all {self._end - self._first} positions, found {found}")
        step = max(1, (self._queue_bytes // 4) // (4 * logits.shape[-1]))
        for first in range(rows.start, rows.stop, step):
            part = logits[0, first : min(first + step, rows.stop)]
            self._write("/logits", part, "f32", self._first + first)

    # ---- an attention call ---------------------------------------------------------------------------

    def attend(self, function: Any, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
               value: torch.Tensor, attention_mask: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Runs the model's own attention and records what went in."""
        layer = int(module.layer_idx)
        if layer not in self._layers:
            return function(module, query, key, value, attention_mask, *args, **kwargs)
        if self._ids is None:
            raise UnsupportedModelError(
                "attention ran outside of a forward pass of the recorded model: call the model that was given to record()"
            )
        with lse.KernelLse() as kernel:
            out = function(module, query, key, value, attention_mask, *args, **kwargs)
        with torch.no_grad():
            self._record_attention(layer, module, query, key, value, attention_mask, kwargs, kernel)
        return out

    def _record_attention(self, layer: int, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
                          value: torch.Tensor, mask: Any, kwargs: dict[str, Any], kernel: lse.KernelLse) -> None:
        self._check_call(layer, query, key, value, kwargs)
        scale = kwargs.get("scaling")
        shape = self._fix_shape(query, key, query.shape[-1] ** -0.5 if scale is None else float(scale))
        if layer in self._seen:
            raise UnsupportedModelError(f"layer {layer} attends twice in one forward pass, which a trace cannot hold")
        self._seen.add(layer)
        n, window = query.shape[2], self._facts.windows[layer]
        first_key, n_keys = self._locate_keys(layer, key.shape[2], n, window)
        self._check_mask(layer, module, mask, kwargs, n, first_key, n_keys, window)

        rows = self._rows_of_pass()
        q_all, k_seen = query[0], key[0, :, :n_keys]
        n_new = self._end - self._begin
        k_new = k_seen[:, n_keys - n_new :]
        v_new = value[0, :, n_keys - n_new : n_keys]
        q = _select(q_all[:, rows], self._q_heads)
        capture, group = self._options.capture, shape.n_q // shape.n_kv
        at = f"/layers/{layer}"
        if capture.qkv:
            self._write(f"{at}/q", q, shape.dtype, self._first + rows.start)
            self._write(f"{at}/k", _select(k_new, self._kv_heads), shape.dtype, self._begin)
            self._write(f"{at}/v", _select(v_new, self._kv_heads), shape.dtype, self._begin)
        if (capture.lse or capture.maps) and rows.stop > rows.start:
            block = lse.Rows(q, k_seen, tuple(head // group for head in self._q_heads), shape.scale,
                             self._first + rows.start, first_key, window)
            sinks = _sinks(module, kwargs)
            found = None if sinks is not None else kernel.rows(shape.n_q, n)
            if found is not None:
                values = _select(found[:, rows], self._q_heads)
            else:
                values = lse.compute_lse(block, None if sinks is None else sinks[list(self._q_heads)])
            if capture.lse:
                self._write(f"{at}/lse", values, "f32", self._first + rows.start)
            if capture.maps:
                self._record_maps(at, block, values)
        if capture.stats:
            self._record_stats(layer, q, _select(k_new, self._kv_heads), rows)

    def _check_call(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, kwargs: dict[str, Any]) -> None:
        where = f"layer {layer}"
        for name in ("softcap", "position_bias", "cache"):
            if kwargs.get(name) is not None:
                raise UnsupportedModelError(f"{where} attends with a {name}, which trace schema version 1 cannot hold")
        if query.shape[2] != self._end - self._first or query.shape[0] != 1:
            raise UnsupportedModelError(
                f"{where}: queries of shape {list(query.shape)}, expected [1, heads, {self._end - self._first}, d_head]"
            )
        if key.shape != value.shape or key.shape[-1] != query.shape[-1] or query.shape[1] % key.shape[1]:
            raise UnsupportedModelError(
                f"{where}: q {list(query.shape)}, k {list(key.shape)}, v {list(value.shape)}: a trace needs one d_head "
                "for all three and whole groups of query heads"
            )

    def _fix_shape(self, query: torch.Tensor, key: torch.Tensor, scale: float) -> Shape:
        """Takes heads, scale and type from the first call, plans the file, and holds later calls to them."""
        natural = "f32" if query.dtype != key.dtype else _DTYPE_NAMES.get(query.dtype, "f32")
        found = Shape(query.shape[1], key.shape[1], query.shape[3], float(np.float32(scale)), self._options.dtype or natural)
        if self._shape is None:
            self._shape = found
            self._q_heads = filters.choose(self._options.heads, range(found.n_q), "query head")
            self._kv_heads = filters.kv_heads_of(self._q_heads, found.n_q, found.n_kv)
        elif found != self._shape:
            raise UnsupportedModelError(f"attention calls differ: {self._shape} and {found}; a trace has one shape for all layers")
        self._plan_pass()
        return self._shape

    def _plan_pass(self) -> None:
        """Lays the file out for a run that begins with the passes so far and this one."""
        ends = [*self._ends, self._end]
        if self._planned[: len(ends)] == ends and self._plan_is_prompt(ends):
            return
        begun = bool(self._planned)
        self._planned = predict(ends, self._options.max_new_tokens)
        info = self._describe(self._planned)
        writer = self._writer
        self._submit((lambda: writer.replan(info)) if begun else (lambda: writer.begin(info)))

    def _plan_is_prompt(self, ends: list[int]) -> bool:
        """A plan holds only as long as it calls the same passes decode steps."""
        return classify(self._planned)[0][: len(ends)][-1].is_decode == classify(ends)[0][-1].is_decode

    def _locate_keys(self, layer: int, kv_len: int, n: int, window: int) -> tuple[int, int]:
        """Position of the first key, and how many keys are filled: caches of fixed size are longer."""
        if kv_len >= self._end:
            return 0, self._end
        if window and kv_len == min(self._first, window - 1) + n:
            return self._end - kv_len, kv_len
        raise UnsupportedModelError(
            f"layer {layer}: {kv_len} keys for {self._end} tokens"
            + (f" with a window of {window}" if window else "")
            + ": this cache drops keys in a way that a trace cannot follow; use the default cache"
        )

    def _check_mask(self, layer: int, module: torch.nn.Module, mask: Any, kwargs: dict[str, Any], n: int,
                    first_key: int, n_keys: int, window: int) -> None:
        asked = kwargs.get("sliding_window")
        if asked is not None and int(asked) != window:
            raise UnsupportedModelError(f"layer {layer} slides over {asked} tokens, its configuration says {window or 'all'}")
        if isinstance(mask, torch.Tensor) and mask.dim() == 4:
            key = (mask.data_ptr(), window)
            if key in self._masks_checked:
                return
            self._masks_checked.add(key)
            wrong = lse.require_causal(mask, self._first, n, first_key, n_keys, window)
        else:
            causal = kwargs.get("is_causal")
            causal = getattr(module, "is_causal", True) if causal is None else causal
            wrong = "it sees later positions" if n > 1 and not causal else None
        if wrong:
            raise UnsupportedModelError(f"layer {layer} is not causal attention as the configuration describes it: {wrong}")

    def _record_maps(self, at: str, block: lse.Rows, values: torch.Tensor) -> None:
        capture, assert_shape = self._options.capture, self._shape
        assert assert_shape is not None
        position = block.first_row
        for part in lse.map_blocks(block, values, self._end, capture.attn_dense, capture.attn_topk):
            if part.dense is not None:
                self._write(f"{at}/attn", part.dense, assert_shape.dtype, position)
            if part.top_pos is not None and part.top_prob is not None:
                self._write(f"{at}/topk_pos", part.top_pos, "i32", position)
                self._write(f"{at}/topk_prob", part.top_prob, "f32", position)
                position += part.top_pos.shape[1]
            elif part.dense is not None:
                position += part.dense.shape[1]

    def _record_stats(self, layer: int, q: torch.Tensor, k: torch.Tensor, rows: slice) -> None:
        at, page = f"/layers/{layer}/stats", self._options.capture.page_size
        self._write(f"{at}/q_norm", q.double().norm(dim=-1), "f32", self._first + rows.start)
        self._write(f"{at}/k_norm", k.double().norm(dim=-1), "f32", self._begin)
        tail = self._tails.get(layer)
        keys = k if tail is None else torch.cat([tail, k], dim=1)
        full = keys.shape[1] // page
        self._tails[layer] = keys[:, full * page :].clone()
        pages = keys[:, : full * page].reshape(k.shape[0], full, page, k.shape[2])
        first = self._begin // page
        if full:
            self._write(f"{at}/page_min", pages.amin(dim=2), "f32", first)
            self._write(f"{at}/page_max", pages.amax(dim=2), "f32", first)

    # ---- writing -------------------------------------------------------------------------------------

    def _rows_of_pass(self) -> slice:
        """The new recorded rows, counted from the first query of this pass."""
        begin, end = filters.clamp_rows(self._options.rows, self._end)
        begin, end = max(begin, self._begin), max(end, self._begin)
        return slice(min(begin, end) - self._first, end - self._first)

    def _write(self, path: str, tensor: torch.Tensor, stored: str, first_position: int) -> None:
        copy = HostCopy(tensor, stored)
        writer = self._writer

        def write() -> None:
            bits = copy.bits()
            if stored != "i32":
                require_finite(path, bits, stored, first_position)
            writer.append(path, bits)

        self._submit(write, copy.n_bytes)

    def _submit(self, job: Callable[[], None], n_bytes: int = 0) -> None:
        """Hands work to the worker thread, in batches: waking it for every small piece would stall the model."""
        self._batch.append(job)
        self._batch_bytes += n_bytes
        if self._batch_bytes >= min(_BATCH_BYTES, self._queue_bytes):
            self._flush()

    def _flush(self) -> None:
        assert self._worker is not None
        jobs, n_bytes = self._batch, self._batch_bytes
        self._batch, self._batch_bytes = [], 0

        def run() -> None:
            while jobs:
                jobs.pop(0)()  # lets go of each piece as soon as it is written

        self._worker.submit(run, n_bytes)

    def _describe(self, ends: list[int]) -> TraceInfo:
        """The trace of a run whose passes end at these tokens."""
        shape, facts, options = self._shape, self._facts, self._options
        assert shape is not None
        units, n_prompt, chunk = classify(ends)
        n_tokens = ends[-1]
        capacity = 0
        if self._texts is not None:
            capacity = max(1, n_tokens * self._texts.longest)
        return TraceInfo(
            model_name=facts.name, model_family=facts.family, model_config=facts.config_json,
            n_layers=facts.n_layers, n_q=shape.n_q, n_kv=shape.n_kv, d_head=shape.d_head,
            d_model=facts.d_model, n_vocab=facts.n_vocab, score_scale=shape.scale,
            windows=facts.windows, rope_kind=facts.rope_kind, rope_theta=facts.rope_theta,
            rope_factor=facts.rope_factor, qk_norm=facts.qk_norm,
            sinks=facts.sinks, layer_kinds=facts.layer_kinds, n_experts_per_token=facts.n_experts_per_token,
            capture=options.capture, dtype=shape.dtype, layers=self._layers,
            q_heads=self._q_heads, kv_heads=self._kv_heads,
            rows=filters.clamp_rows(options.rows, n_tokens), n_prompt=n_prompt, chunk=chunk, units=units,
            token_text_capacity=capacity, created=self._created, writer=provenance.writer_name(),
            command_line=provenance.command_line(), host=provenance.host_name(), text_source=options.text_source,
            tokenizer_hash=self._texts.hash if self._texts else "", seed=options.seed,
        )



def _select(heads: torch.Tensor, chosen: tuple[int, ...]) -> torch.Tensor:
    """The chosen heads of [heads, ...]."""
    return heads if len(chosen) == heads.shape[0] else heads[list(chosen)]


def _sinks(module: torch.nn.Module, kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The learned logit per query head that joins the softmax, in models that have one."""
    sinks = kwargs.get("s_aux")
    return sinks if sinks is not None else getattr(module, "sinks", None)
