"""What to do about a model whose attention cannot be seen: a sentence that fits the model."""

from __future__ import annotations

import sys
from typing import Any

import transformers

#: What `kvscope record` computes itself (core/model/config_family.cpp).
NATIVE_FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "smollm3", "gpt_oss", "gemma2", "gemma3_text", "gemma4_text", "phi3",
    "olmo2", "gpt_neox",
)
_ALIBI = ("bloom", "mpt")
_NO_SOFTMAX = ("rwkv", "mamba", "mamba2", "falcon_mamba", "xlstm")


def outside_of_interface(model: Any) -> str:
    """Why there is nothing to record in `model`, whose source file does not use the attention interface, and what to do."""
    name, family = type(model).__name__, str(getattr(model.config, "model_type", ""))
    source = type(model).__module__
    start = f"the attention of {name} ({family}) does not go through transformers' attention interface (ALL_ATTENTION_FUNCTIONS): "
    if not source.startswith("transformers."):
        ours = family in transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
        file = getattr(sys.modules.get(source), "__file__", None) or source
        return start + f"its code is {file}; " + (
            f"transformers {transformers.__version__} has {family} too: load it without trust_remote_code" + _or_native(family)
            if ours else "let its attention call ALL_ATTENTION_FUNCTIONS as the files of transformers do" + _or_native(family)
        )
    if family in _NO_SOFTMAX:
        return f"{name} ({family}) has no softmax attention, and a trace holds nothing else; choose a model that has"
    if family in _ALIBI or getattr(model.config, "alibi", False):
        return start + (
            "besides, it adds ALiBi's bias by distance to every score, which a trace (scale * q.k) cannot hold; choose a family "
            "with rotary or learned positions"
        )
    if int(transformers.__version__.split(".")[0]) < 5:
        newer = f"newer versions of transformers brought more families to it: try 5 (this is {transformers.__version__})"
        return start + newer + _or_native(family)
    return start + (
        f"{source.rsplit('.', 1)[-1]}.py computes it on its own, so neither this package nor 'kvscope record' can follow; choose a "
        "family that goes through it (Llama, Qwen, Mistral, Gemma 3, GPT-NeoX, GPT-2, Phi, OLMo, most newer ones)"
    )


def _or_native(family: str) -> str:
    if family not in NATIVE_FAMILIES:
        return ""
    return f", or record the checkpoint with 'kvscope record --model FOLDER', which computes {family} itself"
