"""What a policy cannot judge, said in a sentence before it could be silently wrong: models whose attention is not causal
self-attention, layers that never ask transformers' attention interface, scores that sdpa does not know."""

from __future__ import annotations

import warnings
from typing import Any

from kvscope_recorder.errors import UnsupportedModelError
from kvscope_recorder.interface import attention_modules
from kvscope_recorder.wrapped import bridges_of

from .errors import UsageError


class TextPart:
    """The language model inside a model: the part whose attention a policy answers."""

    def __init__(self, model: Any, spec: Any) -> None:
        """Raises UsageError for a model whose attention no policy can answer."""
        name = type(model).__name__
        if getattr(model.config, "is_encoder_decoder", False):
            raise UsageError(f"policy {spec}: {name} is an encoder-decoder model, whose encoder and cross attention are not causal: "
                             "expected a decoder alone")
        self.model = model
        self.config = model.config.get_text_config(decoder=True) if hasattr(model.config, "get_text_config") else model.config
        self.path = _path_to(model.config, self.config) or []
        try:
            found = attention_modules(model)
        except UnsupportedModelError:
            raise UsageError(f"policy {spec}: no layer of {name} ({model.config.model_type}) asks transformers' attention interface, so "
                             "the method would never be asked: expected a family whose attention goes through it (Llama, Qwen, "
                             "Mistral, Gemma 3, GPT-NeoX, GPT-2, Phi, OLMo, most newer ones)") from None
        if bridges_of(model):
            raise UsageError(f"policy {spec}: TransformerLens computes the attention of {name} itself, which no policy reaches: expected the "
                             "model of transformers before it is bridged (kvscope.record takes the bridge)")
        for module in [module for module in found if module.config is self.config] or found:
            if getattr(module, "is_causal", True) is False:
                raise UsageError(f"policy {spec}: {type(module).__name__} of {name} is not causal: expected a decoder, in which a token "
                                 "sees those before it")
        self.before = self.config._attn_implementation
        if self.before not in ("sdpa", "eager"):
            raise UsageError(f"policy {spec}: the model's attention is {self.before}: expected sdpa (or eager), whose masks a policy can read")

    def set(self, implementation: str) -> bool:
        """Of the text part alone: a picture's tower goes on with its own. True if the model took it."""
        wanted: Any = implementation
        for key in reversed(self.path):
            wanted = {key: wanted}
        self.model.set_attn_implementation(wanted)
        return self.config._attn_implementation == implementation


def _path_to(config: Any, wanted: Any) -> list[str] | None:
    """The names that lead from a configuration to one inside it; None: it is not there."""
    if config is wanted:
        return []
    for key in getattr(config, "sub_configs", None) or ():
        inside = getattr(config, key, None)
        path = None if inside is None else _path_to(inside, wanted)
        if path is not None:
            return [key, *path]
    return None


def refuse_cache(policy: Any, cache: Any) -> None:
    """Raises UsageError for a cache in which keys change after a method with a history has seen them."""
    kinds = [kind.__name__ for layer in getattr(cache, "layers", None) or () for kind in type(layer).__mro__]
    if policy.has_history and any("Quantized" in kind for kind in kinds):
        raise UsageError(f"policy {policy.spec}: the cache is quantised ({kinds[0]}), so keys change after the method has seen them, and what "
                         "it chooses depends on what it saw: expected a cache that keeps keys as they are, or a method that chooses by "
                         "the keys alone (quest, quoka, recent, ...)")


def refuse_call(spec: str, module: Any, query: Any, key: Any, mask: Any, kwargs: dict[str, Any]) -> None:
    """Raises UsageError for an attention call that a policy, or the sdpa function under it, would answer wrongly."""
    name = type(module).__name__
    if kwargs.get("s_aux") is not None or getattr(module, "sinks", None) is not None:
        raise UsageError(f"policy {spec}: {name} has attention sinks, which sdpa does not know: expected a model without")
    if kwargs.get("softcap") is not None:
        raise UsageError(f"policy {spec}: {name} caps its scores, which sdpa does not know: expected a model without")
    if kwargs.get("cu_seq_lens_q") is not None:
        raise UsageError(f"policy {spec}: the sequences are packed: expected one per row of the batch")
    if not query.is_floating_point() or query.dtype != key.dtype:
        raise UsageError(f"policy {spec}: expected q and k of one floating type, found {query.dtype} and {key.dtype}")
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int) or layer < 0:
        raise UsageError(f"policy {spec}: {name} does not say which layer it is (layer_idx is {layer}), so its keys cannot be told apart: "
                         "expected a language model's layers, each with a number of its own")
    if kwargs.get("is_causal") is False or getattr(module, "is_causal", True) is False:
        raise UsageError(f"policy {spec}: {name} is not causal: expected a decoder, in which a token sees those before it")
    n_tok, n_key = query.shape[2], key.shape[2]
    if mask is None and n_key > n_tok > 1 and bool(key[:, :, n_tok:].any()):  # a static cache's free slots are zeros
        raise UsageError(f"policy {spec}: {n_tok} queries of {name} see {n_key} keys without a mask: expected causal self-attention")


def warn_if_nothing_chosen(policy: Any) -> None:
    """A method that chose nothing made the plain model's text under its own name."""
    if policy.n_asked:
        if policy.kept == 1.0:
            warnings.warn(f"policy {policy.spec}: every key was kept: methods choose among the keys before a call, and evict after one; "
                          "a prompt in chunks, decoding, or a lower budget gives them a choice", UserWarning, stacklevel=4)
        return
    if policy.n_calls == 0:
        why = "no layer called transformers' attention interface"
    elif policy.n_left == policy.n_calls:
        why = "every layer slides over a window or is otherwise without full attention, which a policy leaves as it is"
    else:
        why = (f"in none of {policy.n_calls} attention calls: its leading {policy.n_dense} layers are dense, it acts in "
               f"{', '.join(policy.phases)}, and the calls were of {', '.join(policy.kept_by_phase) or 'no phase'}")
    warnings.warn(f"policy {policy.spec}: the method was never asked, so this was the plain model: {why}", UserWarning, stacklevel=4)
