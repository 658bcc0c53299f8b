"""What a trace says about itself, with the names of core/trace/info.hpp: the native writer makes the file of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kvscope._load import native

from .errors import ConfigError

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


class Rotation(NamedTuple):
    """The numbers of rotary embedding, whatever settings gave them."""

    frequencies: list[float]  # [n_layers * pairs], f32, radians per token; 0 = the pair stays
    amplitudes: list[float]  # [n_layers], f32, factor of the cosines and sines


def trace_info(**fields: Any) -> native.TraceInfo:
    """The header of a trace, filled. None leaves a field as it is. Raises ConfigError for what a trace cannot hold."""
    info = native.TraceInfo()
    for name, value in fields.items():
        try:
            if value is not None:
                setattr(info, name, value)
        except (TypeError, RuntimeError) as error:
            raise ConfigError(f"{name}: a trace cannot hold {value!r}") from error
    return info
