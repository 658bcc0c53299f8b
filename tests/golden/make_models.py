"""Makes the checkpoints of gemma2, gemma3, gemma4, phi3, olmo2 and gpt_neox and what Hugging Face transformers computes on them.

    python tests/golden/make_models.py [family ...]

Random weights, float32 on disk; golden.h5 is computed in float64: /tokens [T], /logits [T, vocab] and per layer
/layers/<i>/{q,k,v,attn}, q and k after RoPE. Needs PyTorch, transformers 5, h5py.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers

HERE = Path(__file__).resolve().parent
N_TOKENS = 34
COMMON = dict(
    vocab_size=256, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=None, initializer_range=0.25,
    rms_norm_eps=1e-5,
)
FAMILIES = {
    "gemma3": ("gemma3", transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM, dict(
        num_hidden_layers=3, head_dim=12, sliding_window=9, query_pre_attn_scalar=10, final_logit_softcapping=8.0,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        },
    )),
    # embeddings by layer, layers with another one's keys and a wide MLP; keys as values, and a cap of logits
    "gemma4": ("gemma4", transformers.Gemma4TextConfig, transformers.Gemma4ForCausalLM, dict(
        num_hidden_layers=6, head_dim=12, global_head_dim=20, sliding_window=9, num_kv_shared_layers=2,
        vocab_size_per_layer_input=256, hidden_size_per_layer_input=6, use_double_wide_mlp=True,
        layer_types=["sliding_attention", "full_attention"] * 3,
    )),
    "gemma4_keys_as_values": ("gemma4", transformers.Gemma4TextConfig, transformers.Gemma4ForCausalLM, dict(
        num_hidden_layers=3, head_dim=12, global_head_dim=16, num_global_key_value_heads=1, sliding_window=9,
        attention_k_eq_v=True, hidden_size_per_layer_input=0, final_logit_softcapping=8.0,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    )),
    "gemma2": ("gemma2", transformers.Gemma2Config, transformers.Gemma2ForCausalLM, dict(
        num_hidden_layers=3, head_dim=12, sliding_window=9, query_pre_attn_scalar=10, final_logit_softcapping=8.0,
        attn_logit_softcapping=3.0,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )),
    "phi3": ("phi3", transformers.Phi3Config, transformers.Phi3ForCausalLM, dict(
        num_hidden_layers=2, sliding_window=17, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75},
    )),
    "olmo2": ("olmo2", transformers.Olmo2Config, transformers.Olmo2ForCausalLM, dict(
        num_hidden_layers=2, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )),
    "gpt_neox": ("gpt_neox", transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM, dict(
        num_hidden_layers=2, num_key_value_heads=None, rms_norm_eps=None, layer_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    )),
    "gpt_neox_serial": ("gpt_neox", transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM, dict(
        num_hidden_layers=2, num_key_value_heads=None, rms_norm_eps=None, layer_norm_eps=1e-5, tie_word_embeddings=True,
        use_parallel_residual=False, attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    )),
}


def make(name: str) -> None:
    package, config_class, model_class, changes = FAMILIES[name]
    values = {field: value for field, value in (COMMON | changes).items() if value is not None or field == "pad_token_id"}
    config = config_class(**values, attn_implementation="eager")
    torch.manual_seed(20)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "norm" in parameter_name or parameter_name.endswith("bias"):  # as made they are all equal, and a mix-up would not show
                parameter.add_(0.3 * torch.randn_like(parameter))
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("layer_scalar"):
                buffer.add_(0.3 * torch.randn_like(buffer))
    folder = HERE / name
    model.save_pretrained(folder)
    if "num_global_key_value_heads" in changes:  # as the published files say it
        said = json.loads((folder / "config.json").read_text())
        del said["per_layer_config"]
        said |= {name: changes[name] for name in ("global_head_dim", "num_global_key_value_heads")}
        (folder / "config.json").write_text(json.dumps(said, indent=2) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)

    model = model.double()
    modeling = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
    seen: list[tuple[torch.Tensor, ...]] = []

    # Everything in float64: the eager attention rounds probabilities to float32, which is repeated here without.
    def attend(module, query, key, value, attention_mask, scaling=None, softcap=None, **_):
        groups = query.shape[1] // key.shape[1]
        k, v = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        scores = query @ k.transpose(2, 3) * scaling
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        if attention_mask is not None:
            scores = scores + attention_mask
        attn = torch.softmax(scores, dim=-1, dtype=torch.float64)
        seen.append((query[0], key[0], value[0], attn[0]))
        return (attn @ v).transpose(1, 2).contiguous(), attn

    modeling.eager_attention_forward = attend
    # Norms compute in float32 by casting; in float64 the cast is left out.
    torch.Tensor.float = torch.Tensor.double
    for attribute in dir(modeling):
        if attribute.endswith("RMSNorm"):
            norm = getattr(modeling, attribute)
            if hasattr(norm(4), "variance_epsilon"):
                norm.forward = lambda self, x: self.weight * (
                    x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))
    tokens = torch.randint(0, config.vocab_size, (1, N_TOKENS), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        logits = model(tokens).logits[0]
    assert logits.dtype == torch.float64 and len(seen) == config.num_hidden_layers

    with h5py.File(folder / "golden.h5", "w") as file:
        file.attrs["torch"] = str(torch.__version__)
        file.attrs["transformers"] = transformers.__version__
        file["tokens"] = tokens[0].numpy().astype(np.int64)
        file["logits"] = logits.numpy().astype(np.float32)
        for layer, arrays in enumerate(seen):
            for what, array in zip(("q", "k", "v", "attn"), arrays):
                file[f"layers/{layer}/{what}"] = array.numpy().astype(np.float32)


if __name__ == "__main__":
    for family in sys.argv[1:] or FAMILIES:
        make(family)
