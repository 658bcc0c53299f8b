"""A plug-in for vLLM (entry point vllm.general_plugins): records what its attention layers see, without changing what they do.

    KVSCOPE_VLLM_TRACE   trace-{request}.h5: asks for recording; each request becomes a trace. Unset: the plug-in does nothing
    KVSCOPE_VLLM_ROWS    1000:2000, or 1000: - positions whose q and log-sum-exp are kept (k and v always whole)
    KVSCOPE_VLLM_LAYERS  0,4,8
    KVSCOPE_VLLM_DTYPE   auto, f32, f16, bf16

It follows the interface of vLLM 0.10 to 0.26 as their documentation and sources state it: every Attention layer has an `impl` whose
forward gets (layer, query, key, value, kv_cache, metadata, ...), and the metadata say num_actual_tokens, query_start_loc and
seq_lens (FLASH_ATTN, TRITON_ATTN and others; not FLASHINFER). Tested with a stand-in of that interface: vLLM itself, which needs a
GPU, has not run with it.

Keys and values are those that a request's steps bring, after RoPE; copies stay on the device for the log-sum-exp, which is
computed here. Hence: one request at a time (max_num_seqs=1), no prefix caching, enforce_eager=True, one GPU. What does not
fit is refused with a sentence, and the file PATH.part of what was whole by then can be recovered.
"""

from __future__ import annotations

import atexit
import os
import re
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from . import filters, provenance
from .errors import ConfigError, RecordError, UnsupportedModelError
from .schema import TraceInfo
from .sequence import Options, Sequence, Shape, scale_of
from .worker import Worker

VERSIONS = "0.10 to 0.26"
_UNTRIED = (f"this plug-in follows the interface of vLLM {VERSIONS} as their documentation states it and was tested with a stand-in of "
            "it, never with vLLM itself")
_SINGLE = "expected LLM(..., max_num_seqs=1, enable_prefix_caching=False, enforce_eager=True)"
#: Families that normalise q and k, which config.json does not say.
_QK_NORM = ("qwen3", "qwen3_moe", "olmo2", "gemma3", "gemma3_text", "exaone4")
_DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}


class EngineRecorder:
    """Follows an engine through its steps; one trace per request."""

    def __init__(self, path: str, options: Options) -> None:
        self.infos: list[TraceInfo] = []  # of the finished traces
        self._path, self._options = path, options
        self._facts: provenance.ModelFacts | None = None
        self._layers: tuple[int, ...] = ()
        self._ids: torch.Tensor | None = None  # of the running step
        self._sequence: Sequence | None = None
        self._worker: Worker | None = None
        self._cached: dict[int, list[torch.Tensor]] = {}  # per layer [k, v], each [n_kv, capacity, d]
        self._n_begun = 0
        self._span: tuple[int, int] | None = None  # the running step's positions
        self._seen: set[int] = set()

    def take_config(self, config: Any) -> None:
        """The model's Hugging Face configuration, and that it runs on one GPU."""
        size = getattr(getattr(config, "parallel_config", None), "world_size", 1)
        if size != 1:
            raise UnsupportedModelError(f"recording from vLLM: {size} workers: expected one (tensor_parallel_size=1): a trace holds all heads")
        shell = torch.nn.Module()
        shell.config = config.model_config.hf_config
        facts = provenance.describe_model(shell, has_modules=False)
        self._facts = replace(facts, qk_norm=facts.family in _QK_NORM, n_experts_per_token=0)  # experts are not looked for
        self._layers = filters.choose(self._options.layers, facts.layers, "layer")

    def take_ids(self, ids: torch.Tensor) -> None:
        """What the embedding of a step gets, [n] or padded behind."""
        self._ids = ids.detach().flatten()

    def attend(self, layer: Any, query: torch.Tensor, key: torch.Tensor | None, value: torch.Tensor | None, metadata: Any) -> None:
        """One layer's part of a step: query [n, n_q, d], key and value [n, n_kv, d], padded behind. metadata None: a trial run."""
        index = layer_index(layer.layer_name)
        if metadata is None or index not in self._layers:
            return
        if self._span is None:
            self._start_step(metadata)
        assert self._span is not None and self._sequence is not None and self._facts is not None
        first, end = self._span
        self._check_layer(layer, key, value, index)
        shape = self._shape_of(query, key, layer)
        q, k, v = (x[: end - first].transpose(0, 1).detach() for x in (query, key, value))
        keys, values = self._append(index, first, end, k, v)
        if self._sequence.is_growing:
            self._sequence.plan_pass(shape)
        self._sequence.record_attention(index, q, keys, values, 0, self._facts.windows[index], None, None)
        self._seen.add(index)
        if self._seen == set(self._layers):
            self._sequence.end_pass()
            self._span = None

    def _start_step(self, metadata: Any) -> None:
        try:
            starts, lengths = metadata.query_start_loc.tolist(), metadata.seq_lens.tolist()
            n = int(metadata.num_actual_tokens)
        except AttributeError as error:
            raise UnsupportedModelError(f"recording from vLLM: {type(metadata).__name__} does not say which tokens are whose ({error}): expected "
                                        f"the attention backend FLASH_ATTN or TRITON_ATTN; {_UNTRIED}") from None
        if len(lengths) != 1 or starts[-1] - starts[0] != n:
            raise RecordError(f"recording from vLLM: a step of {len(lengths)} requests and {n} tokens: a trace holds one sequence: {_SINGLE}")
        first, end = lengths[0] - n, lengths[0]
        if first == 0:
            self._begin_request()
        known = self._sequence.n_tokens if self._sequence else 0
        if first != known or self._sequence is None:
            raise RecordError(f"recording from vLLM: a step begins at position {first} where {known} are recorded (a cached prefix, another "
                              f"request, or a rejected draft): {_SINGLE}, no speculative decoding")
        if self._ids is None or len(self._ids) < n:
            raise RecordError(f"recording from vLLM: the step's {n} tokens did not pass through the model's embedding of ids: expected a text "
                              f"prompt and enforce_eager=True; {_UNTRIED}")
        self._sequence.start_pass(first, self._ids[:n])
        self._ids = None
        self._span = (first, end)
        self._seen.clear()

    def _begin_request(self) -> None:
        self.finish()
        path = Path(self._path.replace("{request}", str(self._n_begun)))
        if self._n_begun and path == Path(self._path):
            raise RecordError(f"recording from vLLM: a second request, and {path} is whole: write {{request}} into KVSCOPE_VLLM_TRACE")
        self._n_begun += 1
        self._worker = Worker(self._options.queue_bytes)
        assert self._facts is not None
        self._sequence = Sequence(path, self._options, self._facts, self._layers, None, provenance.timestamp(), self._worker.submit)

    def _check_layer(self, layer: Any, key: Any, value: Any, index: int) -> None:
        where, impl = f"recording from vLLM: layer {index}", layer.impl
        if key is None or value is None:
            raise UnsupportedModelError(f"{where} attends to another layer's keys, which a trace cannot hold")
        for name, words in (("alibi_slopes", "adds ALiBi to its scores"), ("sinks", "has sinks, which the plug-in does not record")):
            found = getattr(impl, name, None)
            if found is not None and (isinstance(found, torch.Tensor) or found):
                raise UnsupportedModelError(f"{where} {words}: expected a model without")
        if str(getattr(impl, "kv_cache_dtype", "auto")).startswith(("fp8", "nvfp4", "int")):
            raise UnsupportedModelError(f"{where} attends to keys rounded to {impl.kv_cache_dtype}, and those here are not: expected kv_cache_dtype=auto")
        window = int(getattr(layer, "sliding_window", None) or 0)
        if window != self._facts.windows[index]:
            raise UnsupportedModelError(f"{where} has a window of {window} where config.json says {self._facts.windows[index]}; {_UNTRIED}")

    def _shape_of(self, query: torch.Tensor, key: torch.Tensor, layer: Any) -> Shape:
        n_q, n_kv, d = query.shape[1], key.shape[1], query.shape[2]
        dtype = self._options.dtype or _DTYPES.get(query.dtype, "f32")
        scale = scale_of(getattr(layer.impl, "scale", None), d)
        cap = float(getattr(layer.impl, "logits_soft_cap", None) or 0.0)  # FlashAttention's backend writes 0 for none
        shape = Shape(n_q, n_kv, d, scale, cap, dtype, tuple(range(n_q)), tuple(range(n_kv)))
        before = self._sequence.shape
        if before is not None and before != shape:
            raise UnsupportedModelError(f"recording from vLLM: a layer of {shape} after one of {before}: a trace holds layers of one shape")
        return shape

    def _append(self, index: int, first: int, end: int, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        """The request's keys and values up to now, [n_kv, end, d]."""
        held = self._cached.get(index)
        if held is None or held[0].shape[1] < end:
            n_more = max(end, 2 * first, 256)
            grown = [x.new_empty((x.shape[0], n_more, x.shape[2])) for x in (k, v)]
            for new, old in zip(grown, held or []):
                new[:, :first] = old[:, :first]
            held = self._cached[index] = grown
        for whole, part in zip(held, (k, v)):
            whole[:, first:end] = part
        return [whole[:, :end] for whole in held]

    def finish(self) -> None:
        """Ends the running request's trace. Raises what went wrong while it was written."""
        sequence, worker = self._sequence, self._worker
        self._sequence = self._worker = self._span = None
        self._cached.clear()
        if sequence is None or worker is None:
            return
        broken = worker.close()
        if broken is not None or not sequence.ends:
            sequence.writer.abandon()
            if broken is not None:
                raise RecordError(f"cannot write {sequence.path}: {broken}") from broken
            return
        self.infos.append(sequence.finish("complete"))


def layer_index(name: str) -> int:
    """3 of model.layers.3.self_attn.attn."""
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
    if len(numbers) != 1:
        raise UnsupportedModelError(f"recording from vLLM: attention layer {name!r}: expected one number in its name; {_UNTRIED}")
    return int(numbers[0])


_recorder: EngineRecorder | None = None


def _words(environment: dict[str, str]) -> tuple[str, Options] | None:
    path = environment.get("KVSCOPE_VLLM_TRACE", "")
    if not path:
        return None
    begin, _, end = environment.get("KVSCOPE_VLLM_ROWS", "0:").partition(":")
    layers = environment.get("KVSCOPE_VLLM_LAYERS", "")
    try:
        rows = filters.parse_rows((int(begin or 0), int(end) if end else None))
        chosen = [int(one) for one in layers.split(",")] if layers else None
    except ValueError as error:
        raise ConfigError(f"KVSCOPE_VLLM_ROWS, KVSCOPE_VLLM_LAYERS: expected BEGIN:END and numbers with commas ({error})") from None
    dtype = filters.parse_dtype(environment.get("KVSCOPE_VLLM_DTYPE", "auto"))
    return path, Options(filters.parse_capture(None), chosen, None, rows, dtype, None, "vLLM", 0, False, 256 << 20)


def register() -> None:
    """What vLLM calls in each of its processes, once or more often. Does nothing unless KVSCOPE_VLLM_TRACE is set."""
    global _recorder
    asked = _words(dict(os.environ))
    if asked is None or _recorder is not None:
        return
    try:
        try:
            from vllm.model_executor.layers.attention import Attention  # 0.14 and newer
        except ImportError:
            from vllm.attention.layer import Attention
        from vllm.config import get_current_vllm_config
        from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
    except ImportError as error:
        raise ConfigError(f"KVSCOPE_VLLM_TRACE is set, and vLLM's attention layers are not where they were ({error}): {_UNTRIED}") from error
    _recorder = EngineRecorder(*asked)
    _wrap(Attention, VocabParallelEmbedding, get_current_vllm_config, _recorder)
    atexit.register(finish)


def finish() -> list[TraceInfo]:
    """Ends the running request's trace; what was recorded so far. The engine has to run in this process."""
    if _recorder is None:
        return []
    _recorder.finish()
    return list(_recorder.infos)


def _wrap(attention: type, embedding: type, current_config: Any, recorder: EngineRecorder) -> None:
    """Layers made from now on hand what their impl gets to the recorder, after it has run."""
    make, embed = attention.__init__, embedding.forward

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if recorder._facts is None:
            recorder.take_config(current_config())
        forward = self.impl.forward

        def listening(impl: Any, layer: Any, query: Any, key: Any, value: Any, kv_cache: Any, attn_metadata: Any, *rest: Any, **more: Any) -> Any:
            out = forward(layer, query, key, value, kv_cache, attn_metadata, *rest, **more)
            with torch.no_grad():
                recorder.attend(layer, query, key, value, attn_metadata)
            return out

        self.impl.forward = types.MethodType(listening, self.impl)

    def embed_and_tell(self: Any, input_: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.take_ids(input_)
        return embed(self, input_, *args, **kwargs)

    attention.__init__, embedding.forward = init, embed_and_tell
