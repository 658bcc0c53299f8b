"""Records what the attention layers of a Hugging Face transformers model see into a kvscope trace.

    with record(model, "trace.h5", tokenizer=tokenizer):
        model.generate(**inputs, max_new_tokens=64)
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import ConfigError, DataError, RecordError, RecordWarning, UnsupportedModelError
from .filters import Capture, parse_capture, parse_dtype, parse_rows, parse_seed
from .hooks import Recorder
from .provenance import TokenTexts, plain
from .schema import CaptureSet
from .sequence import Options
from .wrapped import plain_model

__all__ = [
    "CaptureSet", "ConfigError", "DataError", "RecordError", "RecordWarning", "Recorder", "UnsupportedModelError", "record",
]


def record(
    model: Any,
    path: str | os.PathLike[str],
    *,
    tokenizer: Any = None,
    layers: Iterable[int] | int | None = None,
    heads: Iterable[int] | int | None = None,
    rows: tuple[int, int | None] | range | slice | None = None,
    capture: Capture = None,
    page_size: int = 16,
    dtype: str = "auto",
    max_new_tokens: int | None = None,
    overwrite: bool = False,
    text_source: str = "",
    seed: int = 0,
    queue_bytes: int = 256 << 20,
) -> Recorder:
    """A context manager that records every forward pass of `model` inside it, as one sequence, to `path`.

    model         a transformers model whose attention goes through its attention interface; inside PEFT, nnsight (LanguageModel)
                  or TransformerLens (TransformerBridge), too
    path          the trace; with "{row}" in it, as in "trace-{row}.h5", each row of a batch becomes a trace of its own, without
                  its padding (in front of the prompt, or behind one that is not continued)
    tokenizer     its fast tokenizer: the trace then holds the bytes of each token
    layers        layers to record; default all with full or sliding softmax attention (a RecordWarning names others)
    heads         query heads to record, with the KV heads that they need; default all
    rows          (begin, end) positions whose q, lse, attention and logits are kept, end None = to the end of the
                  run; k and v are always kept whole
    capture       what to add to q, k, v and lse: "attn-topk=16,stats,logits,attn"; "no-qkv", "no-lse" take away. "index":
                  what the model's own indexer sees and chooses (DeepSeek-V3.2, GLM-5, MiniMax-M3, Qwen4); k-pre-rope: keys
                  before their rotation, too
    page_size     tokens per page of "stats"
    dtype         storage of q, k, v and attn: "auto" keeps the model's bits; "f32", "f16", "bf16" convert
    max_new_tokens  the number given to generate(): saves copying the trace when its length turns out
    overwrite     replace an existing trace, and what an earlier recording left
    text_source, seed  kept as provenance
    queue_bytes   host memory for what waits to be written; when it is full, the model waits

    Until the end the file is called PATH.part. An exception in the block leaves a valid file of the whole forward
    passes, marked as interrupted. Raises ConfigError and UnsupportedModelError here or at the first forward pass,
    DataError for NaN and Inf; warns with RecordWarning where the trace holds less than one may expect.
    """
    options = Options(
        capture=parse_capture(capture, page_size),
        layers=layers,
        heads=heads,
        rows=parse_rows(rows),
        dtype=parse_dtype(dtype),
        max_new_tokens=max_new_tokens,
        text_source=plain(text_source),
        seed=parse_seed(seed),
        overwrite=overwrite,
        queue_bytes=queue_bytes,
    )
    texts = TokenTexts(tokenizer) if tokenizer is not None else None
    return Recorder(plain_model(model), Path(path), options, texts)
