"""Writes a checkpoint folder with random weights in a model's shape, to measure speed with: what a
forward call costs does not depend on what the weights are.

    python tests/bench/random_model.py OUT_DIR [--layers 32] [--d-model 4096] ...

The defaults are the shape of Llama-3.1-8B. Weights are bf16, drawn on a GPU where torch sees one.
"""

import argparse
import json
import os

import torch


def tensors(c):
    """(name, shape, is_norm) of every tensor, in the order of the file."""
    d, d_ff, d_q = c.d_model, c.d_ff, c.n_q * c.d_head
    d_kv = c.n_kv * c.d_head
    yield "model.embed_tokens.weight", (c.vocab, d), False
    for i in range(c.layers):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (d,), True
        yield at + "self_attn.q_proj.weight", (d_q, d), False
        yield at + "self_attn.k_proj.weight", (d_kv, d), False
        yield at + "self_attn.v_proj.weight", (d_kv, d), False
        yield at + "self_attn.o_proj.weight", (d, d_q), False
        yield at + "post_attention_layernorm.weight", (d,), True
        yield at + "mlp.gate_proj.weight", (d_ff, d), False
        yield at + "mlp.up_proj.weight", (d_ff, d), False
        yield at + "mlp.down_proj.weight", (d, d_ff), False
    yield "model.norm.weight", (d,), True
    yield "lm_head.weight", (c.vocab, d), False


def config(c):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": c.d_model, "intermediate_size": c.d_ff, "num_hidden_layers": c.layers,
        "num_attention_heads": c.n_q, "num_key_value_heads": c.n_kv, "head_dim": c.d_head,
        "vocab_size": c.vocab, "max_position_embeddings": c.positions, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "tie_word_embeddings": False, "attention_bias": False,
        "mlp_bias": False, "dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    for name, value in [("layers", 32), ("d-model", 4096), ("d-ff", 14336), ("n-q", 32), ("n-kv", 8),
                        ("d-head", 128), ("vocab", 128256), ("positions", 131072), ("seed", 1)]:
        parser.add_argument("--" + name, type=int, default=value)
    c = parser.parse_args()
    os.makedirs(c.out, exist_ok=True)
    header, at = {}, 0
    for name, shape, _ in tensors(c):
        n = 2
        for extent in shape:
            n *= extent
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    draw = torch.Generator(device).manual_seed(c.seed)
    with open(os.path.join(c.out, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape, is_norm in tensors(c):
            if is_norm:
                values = torch.ones(shape, dtype=torch.bfloat16)
            else:
                values = torch.randn(shape, generator=draw, device=device, dtype=torch.bfloat16)
                values = (values * shape[1] ** -0.5).cpu()
            file.write(values.view(torch.int16).numpy().data)
    with open(os.path.join(c.out, "config.json"), "w") as file:
        json.dump(config(c), file, indent=1)
    print(f"{c.out}: {at / 2e9:.2f} G parameters, {at / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
