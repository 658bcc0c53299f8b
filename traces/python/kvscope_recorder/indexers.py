"""What a model's own indexer sees and chooses: index queries, keys, gates and the chosen blocks (schema version 1.2).

The indexers of DeepSeek-V3.2 and GLM-5 (DSA), MiniMax-M3 and Qwen4 (QSA) are modules named `indexer` of the attention
modules. DSA's and MiniMax's vectors are taken from the products that the indexer makes itself (torch.matmul), so they are
right whatever rotation comes before; QSA's from its own layers, since it makes products row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .errors import UnsupportedModelError
from .interface import _namespace, attention_modules, cache_of
from .schema import IndexShape


@dataclass
class IndexedCall:
    """One call of one indexer; slots of the batch on the token axes."""

    q: torch.Tensor  # [rows, n_heads, n, width]
    k: torch.Tensor  # [rows, n_key_heads, tokens so far, width]
    gates: torch.Tensor | None  # [rows, n_heads, n]
    chosen: torch.Tensor  # [rows, n_lists, n, any] numbers of blocks, in any order; below 0: none


class _Products(TorchFunctionMode):
    """The operands of the first products of matrices in a call."""

    def __init__(self) -> None:
        super().__init__()
        self.operands: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if function in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__) and len(self.operands) < 2:
            self.operands.append((args[0].detach(), args[1].detach()))
        return function(*args, **(kwargs or {}))


def _kind(indexer: torch.nn.Module) -> str | None:
    if all(hasattr(indexer, name) for name in ("wq_b", "wk", "weights_proj", "index_topk")):
        return "dsa"
    if all(hasattr(indexer, name) for name in ("q_proj", "k_proj", "block_size", "topk_blocks")):
        return "msa"
    if all(hasattr(indexer, name) for name in ("index_qk_proj", "q_layernorm", "k_layernorm", "compress_ratio")):
        return "qsa"
    return None


def find(model: torch.nn.Module) -> dict[int, torch.nn.Module]:
    """The indexers of a model by layer. Raises UnsupportedModelError for one of an unknown kind."""
    found = {}
    for module in attention_modules(model):
        indexer = getattr(module, "indexer", None)
        if not isinstance(indexer, torch.nn.Module):
            continue
        if _kind(indexer) is None:
            raise UnsupportedModelError(
                f"capture index: layer {module.layer_idx} has a {type(indexer).__name__}, which the recorder does not know; it "
                "knows those of DeepSeek-V3.2, GLM-5, MiniMax-M3 and Qwen4"
            )
        found[module.layer_idx] = indexer
    return found


def shape_of(indexers: dict[int, torch.nn.Module], layers: tuple[int, ...]) -> IndexShape | None:
    """The one shape of the indexers of the recorded layers; None if there are none."""
    shapes = {}
    for layer in layers:
        indexer = indexers.get(layer)
        if indexer is None:
            continue
        kind = _kind(indexer)
        if kind == "dsa":
            shapes[layer] = (indexer.n_heads, 1, indexer.head_dim, True, 1, indexer.index_topk, 1)
        elif kind == "msa":
            shapes[layer] = (indexer.num_heads, 1, indexer.head_dim, False, indexer.num_heads, indexer.topk_blocks, indexer.block_size)
        else:
            most = indexer.token_budget + indexer.compress_ratio - 1
            shapes[layer] = (indexer.index_n_heads, indexer.index_kv_heads, indexer.index_head_dim, False, 1, most, 1)
    if not shapes:
        return None
    if len(set(shapes.values())) > 1:
        raise UnsupportedModelError(f"capture index: the indexers of layers {sorted(shapes)} differ; a trace holds one shape")
    n_heads, n_key_heads, width, gates, n_lists, n_selected, block = next(iter(shapes.values()))
    return IndexShape(tuple(shapes), n_heads, n_key_heads, width, gates, 1 if n_lists == 1 else n_heads, n_selected, block)


def attach(indexers: dict[int, torch.nn.Module], took: Callable[[int, IndexedCall], None]) -> Callable[[], None]:
    """Calls took(layer, call) after every call of an indexer; returns what ends that."""
    for layer, indexer in indexers.items():
        original = indexer.forward

        @torch.compiler.disable
        def forward(*args: Any, _original: Any = original, _layer: int = layer, _indexer: Any = indexer, **kwargs: Any) -> Any:
            with _Products() as products:
                out = _original(*args, **kwargs)
            with torch.no_grad():
                took(_layer, _read(_indexer, products.operands, out, args, kwargs))
            return out

        indexer.forward = forward  # of this object alone

    def detach() -> None:
        for indexer in indexers.values():
            indexer.__dict__.pop("forward", None)

    return detach


def _read(indexer: torch.nn.Module, products: list, out: Any, args: tuple, kwargs: dict[str, Any]) -> IndexedCall:
    kind = _kind(indexer)
    if kind == "dsa" and len(products) >= 2 and products[0][0].dim() == 4 and products[1][0].dim() == 4:
        q, k = products[0]  # [rows, n, heads, width], [rows, 1, width, tokens]
        gates = products[1][0]  # [rows, n, 1, heads]
        return IndexedCall(q.transpose(1, 2), k.transpose(-1, -2), gates[:, :, 0].transpose(1, 2), out[:, None])
    if kind == "msa" and products and products[0][0].dim() == 4:
        q, k = products[0]  # [rows, heads, n, width], [rows, 1, width, tokens]
        return IndexedCall(q, k.transpose(-1, -2), None, out)
    if kind == "qsa":
        return _read_qsa(indexer, out, args, kwargs)
    raise UnsupportedModelError(f"capture index: {type(indexer).__name__} computes otherwise than the recorder expects")


def _read_qsa(indexer: Any, out: torch.Tensor, args: tuple, kwargs: dict[str, Any]) -> IndexedCall:
    """QSA normalises and rotates the mean of a block's raw keys; here of a block as far as each token knows it."""
    names = ("hidden_states", "position_embeddings", "attention_mask", "past_key_values")
    given = dict(zip(names, args)) | kwargs
    hidden, (cos, sin) = given["hidden_states"], given["position_embeddings"]
    rotate = _namespace(indexer, "apply_rotary_pos_emb")
    n_rows, n, width = hidden.shape[0], hidden.shape[1], indexer.index_head_dim
    parts = torch.split(
        indexer.index_qk_proj(hidden),
        [indexer.index_n_heads * width, indexer.index_kv_heads * width],
        dim=-1,
    )
    q = indexer.q_layernorm(parts[0].reshape(n_rows, n, -1, width))
    q = rotate(q, cos=cos[:, -n:], sin=sin[:, -n:], unsqueeze_dim=2)
    raw = parts[1].reshape(n_rows, n, width)
    cache = cache_of(given)
    n_before = cos.shape[1] - n
    if n_before > 0:
        whole = _cached_keys(cache, indexer.layer_idx)
        raw = torch.cat([whole[:, :n_before], raw], dim=1) if whole is not None else raw
    n_all, size = raw.shape[1], indexer.compress_ratio
    starts = torch.arange(n_all, device=raw.device) // size * size
    means = torch.stack([raw[:, start : token + 1].float().mean(1) for token, start in enumerate(starts.tolist())], dim=1)
    keys = indexer.k_layernorm(means.to(raw.dtype))
    keys = rotate(keys.unsqueeze(2), cos=cos[:, starts], sin=sin[:, starts], unsqueeze_dim=2).squeeze(2)
    most = indexer.token_budget + size - 1
    places = torch.arange(out.shape[-1], device=out.device).expand(out.shape).masked_fill(~out, -1)
    chosen = places.sort(dim=-1, descending=True).values[..., :most]
    return IndexedCall(q.transpose(1, 2), keys[:, None], None, chosen)


def _cached_keys(cache: Any, layer: int) -> torch.Tensor | None:
    """The raw index keys that a cache holds, the running call's own among them: [rows, tokens, width]."""
    held = getattr(cache, "layers", [None] * (layer + 1))[layer]
    for name in ("indexer_keys", "index_keys", "indexer_key_cache"):
        keys = getattr(held, name, None)
        if isinstance(keys, torch.Tensor):
            return keys
    raise UnsupportedModelError(
        "capture index: this cache hides the indexer's keys, so chunks and decode steps after the first cannot be recorded: run "
        "the prompt in one pass, or without a cache"
    )


def chosen_blocks(chosen: torch.Tensor, first_row: int, index: IndexShape) -> torch.Tensor:
    """[n_lists, n, n_selected] as a trace holds them: rising, -1 behind; blocks after the row are none. chosen [lists, n, any]."""
    n = chosen.shape[1]
    own = (torch.arange(first_row, first_row + n, device=chosen.device) // index.block)[None, :, None]
    chosen = chosen.long()
    high = torch.iinfo(torch.int64).max
    kept = chosen.masked_fill((chosen < 0) | (chosen > own), high).sort(dim=-1).values
    kept = kept.masked_fill(kept == high, -1)[..., : index.n_selected]
    return torch.nn.functional.pad(kept, (0, index.n_selected - kept.shape[-1]), value=-1).to(torch.int32)
