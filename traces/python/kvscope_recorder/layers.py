"""What is particular about each layer: attention sinks, whether q and k are rotated, experts (schema version 1.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .errors import UnsupportedModelError
from .interface import attention_modules


def sinks_of(model: Any, n_layers: int) -> np.ndarray | None:
    """The learned logits [n_layers, n_q] f32 that join every softmax, or None. Raises UnsupportedModelError."""
    found: dict[int, np.ndarray] = {}
    for module in attention_modules(model):
        sinks = getattr(module, "sinks", None)
        if sinks is not None:
            found[module.layer_idx] = sinks.detach().float().cpu().numpy().ravel()
    if not found:
        return None
    if len({len(values) for values in found.values()}) != 1:
        raise UnsupportedModelError(f"attention sinks of layers {sorted(found)}: a trace holds as many in each, one per query head")
    none = np.full_like(next(iter(found.values())), -np.inf)
    return np.stack([found.get(layer, none) for layer in range(n_layers)])


@dataclass(frozen=True)
class LayerShape:
    """What one layer's attention is made of."""

    n_kv: int
    d_head: int
    scale: float
    cap: float  # scores become cap * tanh(score / cap); 0 = they stay
    keys_of: int = -1  # the earlier layer whose keys and values it attends to; -1 = its own


def shapes_of(model: Any, config: Any, n_q: int, first: int, found: LayerShape) -> dict[int, LayerShape]:
    """What each layer's attention is made of by its module's own numbers; all like `found`, seen in layer `first`, where these do
    not say what was seen there. config: of the attending modules; a picture's tower has another one, and numbers of layers too."""
    shapes: dict[int, LayerShape] = {}
    owners: dict[Any, int] = {}  # by layer type: the last layer with keys of its own
    for module in attention_modules(model):
        if module.config is not config:
            continue
        layer, kind = module.layer_idx, getattr(module, "layer_type", None)
        is_shared = bool(getattr(module, "is_kv_shared_layer", False))
        if not is_shared:
            owners[kind] = layer
        group, width, scaling = (getattr(module, name, None) for name in ("num_key_value_groups", "head_dim", "scaling"))
        n_kv = n_q // group if isinstance(group, int) and group > 0 else found.n_kv
        d_head = width if isinstance(width, int) else found.d_head
        scale = float(np.float32(scaling)) if isinstance(scaling, float) else found.scale
        shapes[layer] = LayerShape(n_kv, d_head, scale, found.cap, owners.get(kind, -1) if is_shared else -1)
    if replace(shapes[first], keys_of=-1) != found:
        return {layer: replace(found, keys_of=shape.keys_of) for layer, shape in shapes.items()}
    return shapes


def experts_per_token(config: Any) -> int:
    """How many experts a token is routed to; 0 = the model has none."""
    return int(getattr(config, "num_experts_per_tok", None) or 0)


def kinds_of(model: Any, config: Any, n_layers: int, is_rotated: bool) -> tuple[tuple[int, int], ...]:
    """Per layer (has_rope, n_experts), or nothing where no layer is out of the ordinary.

    is_rotated: the model has RoPE at all (Jamba, GPT-2 and OPT have none).
    """
    rotated = list(getattr(config, "no_rope_layers", None) or [])  # despite its name: 1 = with RoPE
    has_rope = [int(value) for value in rotated] if len(rotated) == n_layers else [int(is_rotated)] * n_layers
    n_experts = 0
    if experts_per_token(config):
        names = ("num_local_experts", "num_experts", "n_routed_experts")
        n_experts = next((int(getattr(config, name)) for name in names if getattr(config, name, None)), 0)
    with_experts = set()
    for name, _ in model.named_modules():
        parts = name.split(".")
        if n_experts and parts[-1] == "experts":
            with_experts |= {int(part) for part in parts if part.isdecimal()}
    kinds = tuple((has_rope[layer], n_experts if layer in with_experts else 0) for layer in range(n_layers))
    return kinds if any(kind != (1, 0) for kind in kinds) else ()
