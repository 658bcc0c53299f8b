"""Models inside other libraries: adapters of PEFT, nnsight's envoys, TransformerLens's bridges.

nnsight leaves the model as it is. TransformerLens 3 and newer (TransformerBridge) puts its own attention in the place of a
model's, so that hooks see scores and patterns: there the queries, keys and values are taken where its product of scores gets them,
behind its hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .errors import UnsupportedModelError

_PRODUCTS = {torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__}


def _library(thing: Any) -> str:
    return type(thing).__module__.partition(".")[0]


def plain_model(model: Any) -> Any:
    """The transformers model inside what a user holds. Raises UnsupportedModelError where there is none."""
    libraries = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    if "nnsight" in libraries:
        inner = getattr(model, "_module", None)
        if not isinstance(inner, torch.nn.Module) or next(inner.parameters(), torch.empty(0)).is_meta:
            raise UnsupportedModelError(f"nnsight's {type(model).__name__} has not loaded its model yet: expected one that is made of a "
                                        "model (LanguageModel(model, tokenizer=...)), or with dispatch=True")
        return inner
    if "transformer_lens" in libraries:
        inner = getattr(model, "original_model", None)
        if not isinstance(inner, torch.nn.Module):
            raise UnsupportedModelError(f"TransformerLens's {type(model).__name__} is no model of transformers: expected a "
                                        "TransformerBridge (TransformerBridge.boot_transformers, TransformerLens 3 or newer)")
        return inner
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # adapters wrap the model


def bridges_of(model: torch.nn.Module) -> dict[int, Any]:
    """TransformerLens's bridges, by the id of the attention module that each stands in for."""
    found = {}
    for bridge in model.modules():
        inner = bridge._modules.get("_original_component") if _library(bridge) == "transformer_lens" else None
        if inner is not None and hasattr(bridge, "_update_kv_cache") and isinstance(getattr(inner, "layer_idx", None), int):
            found[id(inner)] = bridge
    return found


class _Product(TorchFunctionMode):
    """Sees one attention call of a bridge: what enters the product of queries and keys, and what comes out."""

    def __init__(self, bridge: Any) -> None:
        super().__init__()
        self.bridge = bridge
        self.query = self.key = self.value = self.scores = self.mask = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.query is None and self.key is not None and func in _PRODUCTS and args[0].dim() == 4:
            self.query = args[0]
        return out

    def __enter__(self) -> _Product:
        kind = type(self.bridge)

        def update(*args: Any, **kwargs: Any) -> Any:
            self.key, self.value = out = kind._update_kv_cache(self.bridge, *args, **kwargs)
            return out

        def apply(attn_scores: Any, attention_mask: Any, *args: Any, **kwargs: Any) -> Any:
            self.scores, self.mask = attn_scores, attention_mask
            return kind._apply_reconstruct_attention_mask(self.bridge, attn_scores, attention_mask, *args, **kwargs)

        # Past the bridge's __setattr__, which hands on what the model's own module has, too.
        self.bridge.__dict__.update(_update_kv_cache=update, _apply_reconstruct_attention_mask=apply)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for name in ("_update_kv_cache", "_apply_reconstruct_attention_mask"):
            self.bridge.__dict__.pop(name, None)


def watch(bridge: Any, module: torch.nn.Module, attend: Callable[..., Any]) -> Callable[[], None]:
    """Hands the attention calls of a bridge to `attend` as transformers' interface would; returns what ends that."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        with _Product(bridge) as product:
            out = type(bridge).forward(bridge, *args, **kwargs)
        if product.query is not None and product.scores is not None:
            cap = getattr(module, "attn_logit_softcapping", None)
            scale = getattr(module, "scaling", None) or product.query.shape[-1] ** -0.5
            with torch.no_grad():
                _require_plain(module, product, scale, cap)
            attend(lambda *_, **__: (None, None), module, product.query, product.key, product.value, product.mask, scaling=scale,
                   softcap=cap, sliding_window=getattr(module, "sliding_window", None))
        return out

    bridge.__dict__["forward"] = forward
    return lambda: bridge.__dict__.pop("forward", None)


def _require_plain(module: Any, product: _Product, scale: float, cap: float | None) -> None:
    """Raises UnsupportedModelError unless the last query's scores are scale * q.k, with the soft cap if there is one."""
    key = product.key.repeat_interleave(product.query.shape[1] // product.key.shape[1], 1)
    expected = scale * (product.query[:, :, -1:].float() @ key.float().transpose(-2, -1))
    expected = cap * torch.tanh(expected / cap) if cap else expected
    found = product.scores[:, :, -1:].float()
    wide = max(1.0, float(found.abs().max())) if torch.isfinite(found).all() else 1.0
    if found.shape != expected.shape or float((found - expected).abs().max()) > 0.02 * wide:
        raise UnsupportedModelError(f"layer {module.layer_idx}: the scores of TransformerLens's {type(product.bridge).__name__} are not scale * "
                                    "(q . k), which is all that a trace holds (a position bias, or a hook that changes scores): expected "
                                    "attention by q and k alone")
