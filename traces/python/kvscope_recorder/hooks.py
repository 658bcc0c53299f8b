"""Follows a model through its forward passes and hands what its attention sees to one sequence per row of the batch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kvscope._load import native

from . import filters, indexers, interface, layers, lse, masks, provenance
from .errors import ConfigError, RecordError, RecordWarning, UnsupportedModelError
from .layers import LayerShape
from .pre_rotary import PreRotary
from .sequence import Options, Sequence, Shape, loses_digits, scale_of
from .worker import Worker

_BATCH_BYTES = 1 << 20
_DTYPE_NAMES = {torch.float16: "f16", torch.bfloat16: "bf16"}
_ROW = "{row}"
_MOST_MOVED = 0.5  # nats, that need no word


class Recorder:
    """Records one sequence of one model, or each row of a batch; used as a context manager (see record())."""

    def __init__(self, model: torch.nn.Module, path: Path, options: Options, texts: provenance.TokenTexts | None) -> None:
        self.path = path
        self.infos: tuple[native.TraceInfo, ...] = ()  # of the finished traces, one per row
        self._model = model
        self._options = options
        self._texts = texts
        wants_index = options.capture.index
        self._indexers = indexers.find(model) if wants_index else {}
        self._facts = provenance.describe_model(model, indexed=provenance.INDEXED_LAYERS if wants_index else ())
        self._layers = _choose_layers(options.layers, self._facts)
        self._index = indexers.shape_of(self._indexers, self._layers)
        if wants_index and self._index is None:
            raise UnsupportedModelError(
                f"capture index: no recorded layer of {type(model).__name__} has an indexer; 'kvscope fit indexer' learns one from "
                "a recording without"
            )
        self._shares_keys = interface.shares_keys(model)
        self._index_calls: dict[int, indexers.IndexedCall] = {}  # of the running pass
        self._pre_rotary = PreRotary() if options.capture.k_pre_rope else None
        self._created = provenance.timestamp()
        self._rows = [self._new_row(0)]  # the sequences, one per row of the batch
        self._worker: Worker | None = None
        self._batch: list[Callable[[], None]] = []
        self._batch_bytes = 0
        self._undo = contextlib.ExitStack()
        self._shape: Shape | None = None
        self._known: list[torch.Tensor] = []  # ids [rows, n] of the passes so far, on their device
        self._n_slots = 0  # how many those are
        self._first = self._n = 0  # slot of the running pass's first query, and its queries
        self._running = False
        self._jumps: list[tuple[int, int, int] | None] = []  # in the running pass's position_ids, per row
        self._seen: set[int] = set()
        self._masks_checked: set[tuple[int, int]] = set()
        self._last_keys: torch.Tensor | None = None  # of the batch's last slot, in the last layer
        self._failed = False
        self._warned: set[str] = set()

    @property
    def info(self) -> native.TraceInfo | None:
        """Of the finished trace; of row 0 if there are several."""
        return self.infos[0] if self.infos else None

    @property
    def left_out(self) -> dict[int, str]:
        """Layers that this recording leaves out because a trace cannot hold them, and what each is."""
        return dict(self._facts.left_out)

    @property
    def n_tokens(self) -> int:
        """Tokens recorded so far, in the longest row."""
        return max(row.n_tokens for row in self._rows)

    @property
    def seconds_blocked(self) -> float:
        """How long the model waited for the disk."""
        return self._worker.seconds_blocked if self._worker else 0.0

    def _new_row(self, index: int) -> Sequence:
        path = Path(str(self.path).replace(_ROW, str(index)))
        return Sequence(path, self._options, self._facts, self._layers, self._texts, self._created, self._submit, self._index)

    def _look_at_rotation(self) -> None:
        """What the keys of this pass were rotated by. One table goes into a trace."""
        first = not any(row.ends for row in self._rows)
        if not first and self._facts.rope_kind in ("none", "default", "linear", "llama3", "yarn"):
            return  # these do not depend on the length
        assert self._shape is not None
        widths = {layer: shape.d_head for layer, shape in self._shape.layers.items()}
        rotation = provenance.rotation_of(self._model, self._facts.windows, self._facts.layer_kinds, widths)
        for row in self._rows:
            if not first and row.rotation is not None and row.rotation != rotation:
                self._warn(
                    f"the model's rotary embedding changed while it was recorded (rope type {self._facts.rope_kind!r}, at token "
                    f"{row.n_tokens}): keys of several tables are in one trace, which therefore does not say any"
                )
                rotation = None
            row.rotation = rotation if first or row.rotation is not None else None

    def _warn(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            warnings.warn(sentence, RecordWarning, stacklevel=3)

    # ---- context -------------------------------------------------------------------------------------

    def __enter__(self) -> Recorder:
        if self._worker is not None:
            raise RecordError(f"{self.path}: a recorder records once: call record() again")
        with contextlib.ExitStack() as undo:
            undo.callback(interface.attach(self._model, self))
            recorded = {layer: one for layer, one in self._indexers.items() if layer in self._layers}
            undo.callback(indexers.attach(recorded, self._index_calls.__setitem__))
            if self._pre_rotary is not None:
                undo.callback(self._pre_rotary.attach(self._model))
            before = self._model.register_forward_pre_hook(self._before_pass, with_kwargs=True)
            undo.callback(before.remove)
            undo.callback(self._model.register_forward_hook(self._after_pass, with_kwargs=True).remove)
            self._undo = undo.pop_all()
        if self._options.layers is None and self._facts.unexpected:
            self._warn(_left_out_sentence(self._facts.unexpected))
        self._worker = Worker(self._options.queue_bytes)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._undo.close()
        assert self._worker is not None
        broken = self._worker.close()
        if broken is not None or isinstance(error, RecordError):
            self._give_up(broken or error, raise_it=error is None)
            return
        empty = [row for row in self._rows if not row.ends]
        for row in empty:
            row.writer.abandon()
        if len(empty) == len(self._rows):
            if error is None:
                raise RecordError(f"{self.path}: nothing was recorded: the model was not called inside the with block")
            return
        status = "complete" if error is None else "interrupted"
        try:
            self.infos = tuple(row.finish(status) for row in self._rows if row.ends)
        except (OSError, ConfigError) as failure:
            self._give_up(failure, raise_it=error is None)
        self._tell_rounding()

    def _tell_rounding(self) -> None:
        moved: dict[int, float] = {}
        for row in self._rows:
            for layer, nats in row.moved.items():
                moved[layer] = max(nats, moved.get(layer, 0.0))
        far = [layer for layer, nats in moved.items() if nats > _MOST_MOVED]
        if far and self._shape is not None:
            self._warn(f"storing q and k in {self._shape.dtype} moves scores of layers {filters.ranges(far)} by up to "
                       f"{max(moved.values()):.2g} nats: their rows are not quite the model's; dtype='f32' keeps them")

    def _give_up(self, error: BaseException | None, raise_it: bool) -> None:
        hints = dict.fromkeys(text for text in (row.writer.abandon() for row in self._rows) if text)
        hint = "; ".join(text for text in hints if text not in str(error))
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

    # ---- a forward pass ------------------------------------------------------------------------------

    def _before_pass(self, module: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> Any:
        if self._failed:
            raise RecordError("an earlier forward pass inside this recording failed; the passes before it are kept")
        self._failed = True  # until the pass has come to its end
        ids = kwargs.get("input_ids", args[0] if args else None)
        if not isinstance(ids, torch.Tensor) or ids.is_floating_point():
            raise UnsupportedModelError(
                "the forward pass has no input_ids: a trace needs the token ids (inputs_embeds is not enough)"
            )
        self._take_rows(ids)
        self._first = self._past_tokens(interface.cache_of(kwargs), kwargs.get("cache_position"), ids)
        self._n = ids.shape[1]
        self._start_rows(ids, kwargs)
        self._seen.clear()
        self._masks_checked.clear()
        self._running = True
        if self._options.capture.logits and kwargs.get("logits_to_keep"):
            return args, {**kwargs, "logits_to_keep": 0}  # generate() asks for the last position only
        return (args, interface.with_all_queries(kwargs, self._n)) if self._shares_keys else None

    def _take_rows(self, ids: torch.Tensor) -> None:
        """One sequence per row of the batch, which keeps its size."""
        n_rows = ids.shape[0] if ids.dim() == 2 else 0
        if n_rows == len(self._rows):
            return
        if n_rows < 1 or self._known:
            before = f" after a batch of {len(self._rows)}" if self._known else ""
            raise UnsupportedModelError(
                f"input_ids of shape {list(ids.shape)}{before}: expected [rows, tokens], always the same rows"
            )
        if _ROW not in str(self.path):
            raise UnsupportedModelError(
                f"input_ids of shape {list(ids.shape)}: a trace holds one sequence, so record with batch size 1, or write "
                f"{_ROW} into the path (as in trace-{_ROW}.h5) for one trace per row (no beam search: its rows change places)"
            )
        self._rows += [self._new_row(index) for index in range(1, n_rows)]

    def _past_tokens(self, cache: Any, places: Any, ids: torch.Tensor) -> int:
        """How many slots the cache holds: those recorded, or none if the pass computes all of them again."""
        past = int(cache.get_seq_length()) if cache is not None and hasattr(cache, "get_seq_length") else 0
        if past != self._n_slots and isinstance(places, torch.Tensor) and places.dim() == 1 and len(places):
            past = int(places[0])  # caches of hybrid models count otherwise before their first token
        if past == self._n_slots:
            return past
        if self._n_slots == 0:
            raise UnsupportedModelError(
                f"the cache holds {past} tokens from before the recording: start the recorder before the prompt"
            )
        if past == 0:
            known = torch.cat(self._known, dim=1)
            if ids.shape[1] > known.shape[1] and torch.equal(ids[:, : known.shape[1]], known):
                return 0  # generation without a cache
            if cache is not None and ids.shape[1] == 1:
                raise UnsupportedModelError(
                    f"a token goes on after {self._n_slots} tokens with an empty cache, so the model does not see them (TransformerLens "
                    "4.3 leaves the cache of transformers 5.24 empty): expected a cache that holds them, or none (there: "
                    "use_past_kv_cache=False)"
                )
            raise UnsupportedModelError(
                f"a second sequence began after {self._n_slots} tokens: a trace holds one sequence; use one recorder for each"
            )
        raise UnsupportedModelError(
            f"the cache holds {past} tokens where {self._n_slots} were recorded: it was cropped or reordered "
            "(assisted decoding, beam search), which a trace cannot follow"
        )

    def _start_rows(self, ids: torch.Tensor, kwargs: dict[str, Any]) -> None:
        """Tells each sequence which tokens this pass adds to it."""
        n_new = self._first + self._n - self._n_slots
        seen = None
        if self._n > 1 or len(self._rows) > 1 or self._rows[0].pad:
            seen = masks.visible_tokens(kwargs.get("attention_mask"), self._first, self._n, len(self._rows))
        over = self._rows_that_ended(ids)
        self._jumps = []
        for index, row in enumerate(self._rows):
            begin, end = (0, self._n) if seen is None else masks.sequence_span(seen[index], index, self._first)
            row.is_over = row.is_over or index in over
            if row.is_over:
                begin = end = 0
            else:
                self._take_span(row, index, begin, end)
            row.start_pass(self._first - row.pad, ids[index, max(begin, self._n - n_new) : end])
            jump = masks.jump_in_positions(kwargs.get("position_ids"), index, begin, end)
            if jump is not None and jump[2] <= jump[1]:
                raise masks.packed(jump, index)
            self._jumps.append(jump)
            if row.pad and kwargs.get("position_ids") is None and self._facts.rope_kind != "none":
                self._warn(
                    f"row {index} has {row.pad} tokens of padding in front and the pass no position_ids, so that the model rotates its "
                    "first token as that of a later position: the trace counts from 0, and k-pre-rope does not fit it; pass "
                    "position_ids=attention_mask.cumsum(-1) - 1, as generate() does"
                )
        self._known.append(ids[:, self._n - n_new :].detach().clone())
        self._n_slots += n_new

    def _take_span(self, row: Sequence, index: int, begin: int, end: int) -> None:
        """Keeps account of the padding around a row whose tokens in this pass are queries [begin, end)."""
        n = self._n
        if row.is_closed:
            if end > begin:
                raise UnsupportedModelError(
                    f"row {index} goes on after padding: a trace holds one sequence without holes, so pad prompts on the left "
                    "(tokenizer.padding_side = 'left')"
                )
            return
        if row.n_tokens == 0:
            row.pad = self._first + (begin if end > begin else n)
            row.is_closed = begin < end < n
            return
        gap = self._first + begin - row.pad if self._first == 0 else begin
        if end > begin and gap != 0:
            raise UnsupportedModelError(f"attention_mask hides the first {begin} tokens of row {index} that were visible before")
        row.is_closed = end < n

    def _rows_that_ended(self, ids: torch.Tensor) -> set[int]:
        """Rows of a batch that generate() only fills up from now on: after the end token it feeds them padding."""
        config = getattr(self._model, "generation_config", None)
        if len(self._rows) == 1 or self._n != 1 or not self._known or config is None:
            return set()
        if self._known[-1].shape[1] > 1:
            return set()  # an end token in the prompt ends nothing
        stops = getattr(config, "eos_token_id", None)
        stops = stops if isinstance(stops, list) else [stops]
        pad = getattr(config, "pad_token_id", None)
        pads = stops[:1] if pad is None else [pad]
        before, now = self._known[-1][:, -1].tolist(), ids[:, 0].tolist()
        return {row for row in range(len(now)) if before[row] in stops and now[row] in pads}

    def _after_pass(self, module: torch.nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        missing = [layer for layer in self._layers if layer not in self._seen]
        if missing:
            usual = getattr(self._model.config, "_attn_implementation", None) in ("sdpa", "eager")
            raise UnsupportedModelError(
                f"layers {missing} made no call through transformers' attention interface in this forward pass"
                + (" (layers that share one attention module, as Zamba's do, are not told apart): " if usual else ": ")
                + "record the others, if there are any, with layers=..."
                + ("" if usual else ", or load the model with attn_implementation='sdpa' or 'eager'")
            )
        growing = [(index, row) for index, row in enumerate(self._rows) if row.is_growing]
        if self._options.capture.logits:
            logits = getattr(output, "logits", None)
            if not isinstance(logits, torch.Tensor) or logits.shape[-2] != self._n:
                found = list(logits.shape) if isinstance(logits, torch.Tensor) else None
                raise ConfigError(f"capture logits: expected logits of all {self._n} positions, found {found}")
            for index, row in growing:
                row.record_logits(logits[index])
        for _, row in growing:
            row.end_pass()
        self._flush()
        self._running = False
        self._failed = False

    # ---- an attention call ---------------------------------------------------------------------------

    def attend(self, function: Any, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
               value: torch.Tensor, attention_mask: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Runs the model's own attention and records what went in."""
        layer = int(module.layer_idx)
        if layer not in self._layers:
            return function(module, query, key, value, attention_mask, *args, **kwargs)
        if not self._running:
            raise UnsupportedModelError(
                "attention ran outside of a forward pass of the recorded model: call the model that was given to record()"
            )
        found = None
        if "flex" in str(module.config._attn_implementation):
            out = function(module, query, key, value, attention_mask, *args, **kwargs)
        else:
            with lse.KernelLse() as kernel:
                out = function(module, query, key, value, attention_mask, *args, **kwargs)
            found = kernel.rows(query.shape[0], query.shape[1], query.shape[2])
        with torch.no_grad():
            self._record_attention(layer, module, query, key, value, attention_mask, kwargs, found)
        return out

    def _record_attention(self, layer: int, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
                          value: torch.Tensor, mask: Any, kwargs: dict[str, Any], kernel_lse: torch.Tensor | None) -> None:
        self._check_call(layer, query, key, value, kwargs)
        scale, cap = scale_of(kwargs.get("scaling"), query.shape[-1]), self._cap_of(module, kwargs)
        shape = self._fix_shape(layer, module, query, key, LayerShape(key.shape[1], query.shape[3], scale, cap))
        if layer in self._seen:
            to_what = "" if getattr(module, "is_causal", True) else " (the second time to an encoder's tokens: cross attention)"
            raise UnsupportedModelError(f"layer {layer} attends twice in one forward pass{to_what}, which a trace cannot hold")
        self._seen.add(layer)
        window = self._facts.windows[layer]
        first_slot, n_keys = self._locate_keys(layer, key.shape[2], window)
        self._check_mask(layer, module, mask, kwargs, first_slot, n_keys, window, query.device)
        self._check_cache(layer, key, first_slot, n_keys)
        sinks = _sinks(module, kwargs)
        if sinks is not None or cap or self._index is not None:
            kernel_lse = None  # of the scores alone; of the chosen keys alone
        index = self._index_calls.pop(layer, None)
        k_pre_rope = None
        if self._pre_rotary is not None:
            kinds = self._facts.layer_kinds
            k_pre_rope = self._pre_rotary.take(layer, key, self._n, not kinds or kinds[layer][0] == 1)
        if len(self._seen) == 1:  # the first attention call of the pass: the model has rotated
            self._look_at_rotation()
        for at, row in enumerate(self._rows):
            if not row.is_growing:
                continue
            row.plan_pass(shape)
            start = max(0, row.pad - first_slot)  # keys of padding
            row.record_attention(layer, query[at], key[at, :, start:n_keys], value[at, :, start:n_keys],
                                 first_slot + start - row.pad, window, None if kernel_lse is None else kernel_lse[at], sinks)
            if self._index is not None and row.pad:
                raise UnsupportedModelError(
                    "capture index: there is padding in front of a prompt, which indexers count as tokens: run each prompt alone"
                )
            row.record_side(layer, index, at, None if k_pre_rope is None else k_pre_rope[at])

    def _check_call(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                    kwargs: dict[str, Any]) -> None:
        where = f"layer {layer}"
        for name in ("position_bias", "head_mask", "cache"):
            if kwargs.get(name) is not None:
                raise UnsupportedModelError(f"{where} attends with a {name}, which trace schema version 1 cannot hold")
        lengths = kwargs.get("cu_seq_lens_q")
        if lengths is not None and len(lengths) > 2:
            raise UnsupportedModelError(
                f"{where}: cu_seq_lens_q packs {len(lengths) - 1} sequences into one row; a trace holds one: run each alone, "
                f"or pad them to a batch and write {_ROW} into the path"
            )
        if query.shape[2] != self._n or query.shape[0] != len(self._rows):
            raise UnsupportedModelError(
                f"{where}: queries of shape {list(query.shape)}, expected [{len(self._rows)}, heads, {self._n}, d_head]"
            )
        if key.shape[:3] != value.shape[:3] or key.shape[-1] != query.shape[-1] or query.shape[1] % key.shape[1]:
            raise UnsupportedModelError(
                f"{where}: q {list(query.shape)}, k {list(key.shape)}, v {list(value.shape)}: a trace needs one d_head "
                "for q and k, as many values as keys, and whole groups of query heads"
            )
        if value.shape[-1] > key.shape[-1]:
            raise UnsupportedModelError(
                f"{where}: values are {value.shape[-1]} wide, keys {key.shape[-1]}: a trace has room for values as wide as keys "
                "or narrower (filled up with zeros)"
            )
        if value.shape[-1] < key.shape[-1]:
            self._warn(
                f"values are {value.shape[-1]} wide, keys {key.shape[-1]}: the trace holds them with "
                f"{key.shape[-1] - value.shape[-1]} zeros behind each; attention and errors are right, bytes of values are counted too high"
            )

    def _cap_of(self, module: torch.nn.Module, kwargs: dict[str, Any]) -> float:
        """The soft cap that scores got; 0 = none."""
        cap = kwargs.get("softcap")
        if cap and "sdpa" in str(module.config._attn_implementation):  # older versions pass over it, newer ones refuse
            if self._shape is None:
                warnings.warn(f"sdpa leaves out the model's soft cap of {cap:g}, and so does the trace: "
                              "load the model with attn_implementation='eager' to have it", RecordWarning, stacklevel=2)
            return 0.0
        return float(cap or 0.0)

    def _fix_shape(self, layer: int, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, found: LayerShape) -> Shape:
        """Takes heads and type from the first call and all layers' shapes from their modules, and holds calls to them."""
        natural = "f32" if query.dtype != key.dtype else _DTYPE_NAMES.get(query.dtype, "f32")
        n_q, dtype = query.shape[1], self._options.dtype or natural
        if self._shape is None:
            q_heads = filters.choose(self._options.heads, range(n_q), "query head")
            is_rounded = loses_digits(query, dtype) or loses_digits(key, dtype)
            self._shape = Shape(n_q, dtype, is_rounded, q_heads, layers.shapes_of(self._model, module.config, n_q, layer, found))
        shape = self._shape
        if n_q != shape.n_q or dtype != shape.dtype:
            raise UnsupportedModelError(f"layer {layer}: {n_q} query heads in {dtype}, expected {shape.n_q} in {shape.dtype}: a trace "
                                        "has as many query heads in every layer, and one type")
        expected = replace(shape.layers[layer], keys_of=-1)
        if found != expected:
            raise UnsupportedModelError(f"layer {layer}: attention is made of {found}, expected {expected} by its module and the "
                                        "layers before")
        return shape

    def _locate_keys(self, layer: int, kv_len: int, window: int) -> tuple[int, int]:
        """Slot of the first key, and how many keys are filled: caches of fixed size are longer."""
        end = self._first + self._n
        if kv_len >= end:
            return 0, end
        if window and kv_len == min(self._first, window - 1) + self._n:
            return end - kv_len, kv_len
        raise UnsupportedModelError(
            f"layer {layer}: {kv_len} keys for {end} tokens"
            + (f" with a window of {window}" if window else "")
            + ": this cache drops keys in a way that a trace cannot follow; use the default cache"
        )

    def _check_mask(self, layer: int, module: torch.nn.Module, mask: Any, kwargs: dict[str, Any],
                    first_slot: int, n_keys: int, window: int, device: torch.device) -> None:
        asked = kwargs.get("sliding_window")
        if asked is not None and int(asked) != window:
            raise UnsupportedModelError(f"layer {layer} slides over {asked} tokens, its configuration says {window or 'all'}")
        is_whole = masks.is_block_mask(mask) or (isinstance(mask, torch.Tensor) and mask.dim() == 4)
        if is_whole:
            key = (mask.data_ptr() if isinstance(mask, torch.Tensor) else id(mask), window)
            if key in self._masks_checked:
                return
            self._masks_checked.add(key)
        for index, row in enumerate(self._rows):
            if not row.is_growing:
                continue
            wrong = None
            if is_whole:
                queries = range(row.begin - row.first, row.end - row.first)
                wrong = masks.require_causal(mask, index, queries, row.first, first_slot - row.pad, n_keys, window, device,
                                             may_hide=self._index is not None)
            else:
                wrong = self._what_no_mask_hides(module, mask, kwargs, index, row)
            if wrong:
                of_row = f" in row {index}" if len(self._rows) > 1 else ""
                raise UnsupportedModelError(
                    f"layer {layer} is not causal attention{of_row} as the configuration describes it: {wrong}; a trace holds "
                    "causal attention of one sequence, in a window if the layer has one"
                )

    def _what_no_mask_hides(self, module: torch.nn.Module, mask: Any, kwargs: dict[str, Any], index: int,
                            row: Sequence) -> str | None:
        """What is wrong with a row whose attention got no mask of rows and keys, or None."""
        causal = kwargs.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        if self._n > 1 and not causal:
            return "it sees later positions"
        if row.pad and not (isinstance(mask, torch.Tensor) and mask.dim() == 2):
            return f"it sees the {row.pad} tokens of padding in front"
        jump = self._jumps[index]
        if jump is not None and "flash" in str(module.config._attn_implementation):
            raise masks.packed(jump, index)
        return None

    def _check_cache(self, layer: int, key: torch.Tensor, first_slot: int, n_keys: int) -> None:
        """Compares what a cache brings back with what was recorded, as far as a glance can tell."""
        if self._first == 0 and len(self._known) > 1:
            if key.dtype in _DTYPE_NAMES:
                self._warn(
                    "this generation runs without a cache, so every pass computes the earlier keys anew; in "
                    f"{_DTYPE_NAMES[key.dtype]} they come out a little different from those that are recorded, and the "
                    "log-sum-exp of a row does not fit them to the last digits (some 0.04 nat): pass use_cache=True to "
                    "generate(), or load the model in float32"
                )
            return
        if len(self._rows) == 1 or layer != self._layers[-1]:
            return
        before, place = self._last_keys, self._first - 1 - first_slot
        if before is not None and place >= 0 and not torch.equal(key[:, :, place], before):
            raise UnsupportedModelError(
                f"the cache gives other keys for token {self._first - 1} than were recorded: its rows were exchanged (beam "
                "search) or changed (a quantized cache), which a trace cannot follow; use sampling or greedy decoding and "
                "the default cache"
            )
        self._last_keys = key[:, :, n_keys - 1].clone()

    # ---- writing -------------------------------------------------------------------------------------

    def _submit(self, job: Callable[[], None], n_bytes: int = 0) -> None:
        """Hands work to the worker thread, in batches: waking it for every small piece would stall the model."""
        self._batch.append(job)
        self._batch_bytes += n_bytes
        if self._batch_bytes >= min(_BATCH_BYTES, self._options.queue_bytes):
            self._flush()

    def _flush(self) -> None:
        assert self._worker is not None
        jobs, n_bytes = self._batch, self._batch_bytes
        self._batch, self._batch_bytes = [], 0

        def run() -> None:
            while jobs:
                jobs.pop(0)()  # lets go of each piece as soon as it is written

        self._worker.submit(run, n_bytes)


def _choose_layers(asked: Any, facts: provenance.ModelFacts) -> tuple[int, ...]:
    """The layers to record. Raises ConfigError, which says of a layer that cannot be recorded what it is."""
    wanted = () if asked is None else (asked,) if isinstance(asked, int) else tuple(asked)
    for layer in wanted:
        if layer in facts.left_out:
            raise ConfigError(f"layer {layer} cannot be recorded: {_reason(facts.left_out[layer])}")
    return filters.choose(asked if asked is None else wanted, facts.layers, "layer")


def _reason(kind: str) -> str:
    return f"it is {kind!r}, and a trace holds full_attention and sliding_attention"


def _left_out_sentence(unexpected: dict[int, str]) -> str:
    parts = [f"{filters.ranges(sorted(layer for layer in unexpected if unexpected[layer] == kind))} ({kind})"
             for kind in dict.fromkeys(unexpected.values())]
    return (f"left out of the recording: layers {', '.join(parts)}, whose softmax attention a trace cannot hold: it knows "
            "full_attention and sliding_attention; layers=... with the others silences this")


def _sinks(module: torch.nn.Module, kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The learned logit per query head that joins the softmax, in models that have one."""
    sinks = kwargs.get("s_aux")
    return sinks if sinks is not None else getattr(module, "sinks", None)
