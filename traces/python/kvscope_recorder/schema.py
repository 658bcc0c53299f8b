"""Trace schema version 1 (1.0 to 1.2): what a trace says about itself, and which arrays it therefore has.

The format is defined in traces/README.md of kvscope; this module is its Python reading, in the same order
and with the same names as traces/schema.cpp and traces/hash.cpp.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import xxhash

FORMAT = "kvscope-trace"

#: Storage types of q, k, v and dense attention, and the numpy type that carries their bits.
CARRIERS = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}


class Unit(NamedTuple):
    """One forward call: tokens [begin, end)."""

    begin: int
    end: int
    is_decode: bool


@dataclass(frozen=True)
class CaptureSet:
    """Which arrays a recording holds."""

    qkv: bool = True
    lse: bool = True
    logits: bool = False
    attn_dense: bool = False  # [n_q, rows, T]: grows with the square of the context
    attn_topk: int = 0  # 0 = off; else the N largest probabilities of each row
    stats: bool = False  # norms and page minima and maxima
    page_size: int = 16  # tokens per page of the stats
    k_pre_rope: bool = False  # keys before their rotation, beside those after it
    index: bool = False  # what the model's own indexer sees and chooses

    @property
    def maps(self) -> bool:
        """True if attention probabilities have to be computed."""
        return self.attn_dense or self.attn_topk > 0


class IndexShape(NamedTuple):
    """The indexers of a recording: all of one shape."""

    layers: tuple[int, ...]  # recorded layers that have one
    n_heads: int
    n_key_heads: int
    width: int  # channels of index vectors
    has_gates: bool
    n_lists: int  # of chosen blocks: 1 for all heads, or one per index head
    n_selected: int  # chosen blocks of a row at most
    block: int  # tokens that one chosen number stands for


@dataclass(frozen=True)
class Rotation:
    """The numbers of rotary embedding, whatever settings gave them."""

    frequencies: np.ndarray  # [n_layers, pairs] f32, radians per token; 0 = the pair stays
    amplitudes: np.ndarray  # [n_layers] f32, factor of the cosines and sines

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rotation) and all(
            np.array_equal(a, b) for a, b in ((self.frequencies, other.frequencies), (self.amplitudes, other.amplitudes)))


@dataclass(frozen=True)
class TraceInfo:
    """Shapes and provenance of a trace; the fields carry the names of the root attributes."""

    # the model
    model_name: str
    model_family: str
    model_config: bytes
    n_layers: int
    n_q: int
    n_kv: int
    d_head: int
    d_model: int
    n_vocab: int
    score_scale: float
    score_cap: float  # scores become cap * tanh(score / cap); 0 = they stay
    windows: tuple[int, ...]  # per layer of the model; 0 = a row sees all positions before it
    rope_kind: str
    rope_theta: float
    rope_factor: float
    qk_norm: bool
    rotation: Rotation | None  # what q and k were rotated by; None = not known
    sinks: np.ndarray | None  # [n_layers, n_q] f32: a logit per query head in every softmax; None = the model has none
    layer_kinds: tuple[tuple[int, int], ...]  # per layer has_rope, n_experts; empty = ordinary layers
    n_experts_per_token: int
    # what is captured
    capture: CaptureSet
    dtype: str  # key of CARRIERS
    layers: tuple[int, ...]
    q_heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    rows: tuple[int, int]  # positions whose q, lse, attention and logits are kept
    n_prompt: int
    chunk: int
    units: tuple[Unit, ...]
    token_text_capacity: int = 0
    # provenance
    created: str = ""
    writer: str = ""
    command_line: str = ""
    host: str = ""
    text_source: str = ""
    tokenizer_hash: str = ""
    seed: int = 0
    status: str = "recording"
    uuid: str = ""
    content_hash: str = ""
    index: IndexShape | None = None

    @property
    def schema_version(self) -> str:
        """The oldest version that knows everything in the file."""
        if self.rotation is not None:
            return "1.3"
        if self.score_cap or self.index is not None or self.capture.k_pre_rope:
            return "1.2"
        return "1.1" if self.sinks is not None or self.layer_kinds else "1.0"

    @property
    def n_tokens(self) -> int:
        return self.units[-1].end if self.units else 0

    @property
    def n_rows(self) -> int:
        return self.rows[1] - self.rows[0]

    def replace(self, **changes: object) -> TraceInfo:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ArraySpec:
    """One array that is filled unit by unit."""

    path: str
    type: str  # "f32", "f16", "bf16" or "i32"
    dims: tuple[int, ...]
    along: str  # what runs along the growing axis: "tokens", "rows" or "full_pages"
    axes: str
    units: str
    has_heads: bool = field(init=False)
    keys_last: bool = field(init=False)  # a unit fills the columns [0, unit end) only

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_heads", "head" in self.axes)
        object.__setattr__(self, "keys_last", self.axes.endswith("key"))

    @property
    def checksum_path(self) -> str:
        return "/checksums" + self.path

    @property
    def n_heads(self) -> int:
        return self.dims[0] if self.has_heads else 1

    @property
    def n_positions(self) -> int:
        return self.dims[1 if self.has_heads else 0]

    @property
    def row_size(self) -> int:
        """Elements of one head at one position."""
        return int(np.prod(self.dims[2 if self.has_heads else 1 :], dtype=np.int64))

    @property
    def itemsize(self) -> int:
        return 2 if self.type in ("f16", "bf16") else 4

    def filled_row_size(self, end: int) -> int:
        """Elements of a row that a unit which ends at token `end` fills."""
        return end if self.keys_last else self.row_size


def trace_arrays(info: TraceInfo) -> list[ArraySpec]:
    """All arrays of a trace in the order of the format: tokens, then layer by layer, then logits."""
    capture, d, rows, tokens = info.capture, info.d_head, info.n_rows, info.n_tokens
    hq, hk = len(info.q_heads), len(info.kv_heads)
    arrays = [ArraySpec("/tokens", "i32", (tokens,), "tokens", "token", "token id")]
    for layer in info.layers:

        def add(name: str, kind: str, dims: tuple[int, ...], along: str, axes: str, units: str) -> None:
            arrays.append(ArraySpec(f"/layers/{layer}/{name}", kind, dims, along, axes, units))  # noqa: B023

        if capture.qkv:
            add("q", info.dtype, (hq, rows, d), "rows", "q_head,row,dim", "1")
            add("k", info.dtype, (hk, tokens, d), "tokens", "kv_head,token,dim", "1")
            add("v", info.dtype, (hk, tokens, d), "tokens", "kv_head,token,dim", "1")
        if capture.lse:
            add("lse", "f32", (hq, rows), "rows", "q_head,row", "nat")
        if capture.attn_dense:
            add("attn", info.dtype, (hq, rows, tokens), "rows", "q_head,row,key", "probability")
        if capture.attn_topk > 0:
            n = capture.attn_topk
            add("topk_pos", "i32", (hq, rows, n), "rows", "q_head,row,rank", "token")
            add("topk_prob", "f32", (hq, rows, n), "rows", "q_head,row,rank", "probability")
        index = info.index
        if index is not None and layer in index.layers:
            add("index_q", info.dtype, (index.n_heads, rows, index.width), "rows", "index_head,row,dim", "1")
            add("index_k", info.dtype, (index.n_key_heads, tokens, index.width), "tokens", "index_key_head,token,dim", "1")
            if index.has_gates:
                add("index_w", "f32", (index.n_heads, rows), "rows", "index_head,row", "1")
            if index.n_selected > 0:
                add("index_selected", "i32", (index.n_lists, rows, index.n_selected), "rows", "list_head,row,rank", "block")
        if capture.k_pre_rope:
            add("k_pre_rope", info.dtype, (hk, tokens, d), "tokens", "kv_head,token,dim", "1")
        if capture.stats:
            pages = tokens // capture.page_size
            add("stats/q_norm", "f32", (hq, rows), "rows", "q_head,row", "1")
            add("stats/k_norm", "f32", (hk, tokens), "tokens", "kv_head,token", "1")
            add("stats/page_min", "f32", (hk, pages, d), "full_pages", "kv_head,page,dim", "1")
            add("stats/page_max", "f32", (hk, pages, d), "full_pages", "kv_head,page,dim", "1")
    if capture.logits:
        arrays.append(ArraySpec("/logits", "f32", (rows, info.n_vocab), "rows", "row,vocab", "nat"))
    return arrays


def positions_of(spec: ArraySpec, info: TraceInfo, begin: int, end: int) -> tuple[int, int]:
    """The positions along the growing axis that tokens [begin, end) fill."""
    if spec.along == "rows":
        first, last = info.rows
        return min(max(begin, first), last) - first, min(max(end, first), last) - first
    if spec.along == "full_pages":
        return begin // info.capture.page_size, end // info.capture.page_size
    return begin, end


def features_of(info: TraceInfo) -> list[str]:
    """What a reader has to know to understand all of the file."""
    capture = info.capture
    present = {
        "qkv": capture.qkv,
        "lse": capture.lse,
        "attn-dense": capture.attn_dense,
        "attn-topk": capture.attn_topk > 0,
        "logits": capture.logits,
        "stats": capture.stats,
        "token-text": info.token_text_capacity > 0,
        "checksums": True,
        "sinks": info.sinks is not None,
        "score-cap": info.score_cap > 0,
        "index": info.index is not None,
        "k-pre-rope": capture.k_pre_rope,
    }
    return [name for name, is_there in present.items() if is_there]


def _g(value: float, digits: int) -> str:
    return f"{value:.{digits}g}"


def hash_contents(
    info: TraceInfo, tokens: bytes, checksums: list[bytes], text_checksums: bytes
) -> str:
    """XXH128 over the shape-defining metadata, the tokens (i32) and the checksum tables (u64)."""

    def listed(values: tuple[int, ...]) -> str:
        return ",".join(map(str, values))

    lines = [
        "kvscope-trace 1",
        f"model {info.model_family} {info.n_layers} {info.n_q} {info.n_kv} {info.d_head} {info.d_model} {info.n_vocab}",
        f"scale {_g(float(np.float32(info.score_scale)), 9)}",
        f"rope {info.rope_kind} {_g(info.rope_theta, 17)} {_g(info.rope_factor, 17)}",
        f"dtype {info.dtype}",
        f"tokens {info.n_tokens} {info.n_prompt}",
        f"rows {info.rows[0]} {info.rows[1]}",
        f"layers {listed(info.layers)}",
        f"q_heads {listed(info.q_heads)}",
        f"kv_heads {listed(info.kv_heads)}",
    ]
    if info.score_cap:
        lines.append(f"cap {_g(float(np.float32(info.score_cap)), 9)}")
    lines += [f"window {window}" for window in info.windows]
    digest = xxhash.xxh3_128(("\n".join(lines) + "\n").encode())
    if info.sinks is not None:
        digest.update(b"sinks\n" + info.sinks.astype("<f4").tobytes())
    if info.index is not None:
        numbers = " ".join(str(int(value)) for value in info.index[1:])
        digest.update(f"index {numbers} layers {listed(info.index.layers)}\n".encode())
    units = "".join(f"unit {unit.begin} {unit.end} {int(unit.is_decode)}\n" for unit in info.units)
    for block in (units.encode(), tokens, *checksums, text_checksums):
        digest.update(block)
    return "xxh128:" + digest.hexdigest()


def derive_uuid(info: TraceInfo) -> str:
    """A version-8 UUID of contents and provenance."""
    fields = (info.content_hash, info.model_name, info.created, info.writer, info.host, info.command_line, info.seed)
    digits = list(xxhash.xxh3_128_hexdigest("".join(f"{value}\n" for value in fields).encode()))
    digits[12] = "8"  # version
    digits[16] = "89ab"[ord(digits[16]) % 4]  # variant
    text = "".join(digits)
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
