"""What is particular about each layer: attention sinks, whether q and k are rotated, experts (schema version 1.1)."""

from __future__ import annotations

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
    if sorted(found) != list(range(n_layers)) or len({len(values) for values in found.values()}) != 1:
        raise UnsupportedModelError(
            f"attention sinks in layers {sorted(found)} only: a trace holds one per query head in all layers or none"
        )
    return np.stack([found[layer] for layer in range(n_layers)])


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
