"""What a trace says about itself, with the names of core/trace/info.hpp: the native writer makes the file of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

#: Storage types of q, k, v and dense attention, and the numpy type that carries their bits.
CARRIERS = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}


class Call(NamedTuple):
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
    sinks: np.ndarray | None  # [n_layers, n_q] f32: a logit per query head in every softmax, -inf in layers without; None = no layer has
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
    calls: tuple[Call, ...]
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
    # Where layers differ, per layer of the model: n_kv, d_head, score_scale, score_cap, and the layer whose keys it attends to
    # (-1: its own). The fields above then speak of the first recorded layer without a window.
    layer_shapes: tuple[tuple[int, int, float, float, int], ...] = ()
    is_rounded: bool = False  # q and k lose digits when they are stored: the writer gets by how much scores move

    @property
    def n_tokens(self) -> int:
        return self.calls[-1].end if self.calls else 0

    @property
    def n_rows(self) -> int:
        return self.rows[1] - self.rows[0]

    def replace(self, **changes: object) -> TraceInfo:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]
