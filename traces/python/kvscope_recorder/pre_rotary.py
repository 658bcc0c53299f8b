"""Keys before their rotation: what a model's source file hands to its apply_rotary_pos_emb (schema version 1.2)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from .errors import UnsupportedModelError
from .interface import attention_modules

_NAME = "apply_rotary_pos_emb"


class PreRotary:
    """Keeps the key that was rotated last, until its layer's attention asks for it."""

    def __init__(self) -> None:
        self._key: torch.Tensor | None = None

    def attach(self, model: torch.nn.Module) -> Callable[[], None]:
        """Starts listening; returns what ends that. Raises UnsupportedModelError."""
        files = {kind.__module__ for module in attention_modules(model) for kind in type(module).__mro__}
        places = [sys.modules[name].__dict__ for name in files if _NAME in getattr(sys.modules.get(name), "__dict__", {})]
        if not places:
            raise UnsupportedModelError(
                f"capture k-pre-rope: {type(model).__name__} has no {_NAME} in its source file, so the keys before their rotation "
                "are not seen"
            )
        before = [(place, place[_NAME]) for place in places]
        for place, function in before:
            place[_NAME] = self._listening(function)

        def detach() -> None:
            for place, function in before:
                place[_NAME] = function

        return detach

    def _listening(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def rotate(*args: Any, **kwargs: Any) -> Any:
            key = args[1] if len(args) > 1 else kwargs.get("k")
            self._key = key.detach() if isinstance(key, torch.Tensor) else None
            return function(*args, **kwargs)

        return rotate

    def take(self, layer: int, key: torch.Tensor, n: int, has_rope: bool) -> torch.Tensor:
        """The keys [rows, n_kv, n, d_head] of the running call. `key`: what attention got, for layers without rotation."""
        found, self._key = self._key, None
        if not has_rope:
            return key[:, :, -n:]
        expected = [key.shape[0], key.shape[1], n, key.shape[3]]
        if found is None or list(found.shape) != expected:
            shape = None if found is None else list(found.shape)
            raise UnsupportedModelError(
                f"capture k-pre-rope: layer {layer} rotated keys of shape {shape}, expected {expected}: models that rotate a part "
                "of their channels apart (MLA, partial rotary), or queries and keys apart (Gemma 3n and 4), are not followed"
            )
        return found
