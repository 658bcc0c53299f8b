"""Makes the quantised checkpoints of tests/golden/quantized and what transformers computes on what they stand for.

    python tests/golden/make_quantized.py

A small Llama of random weights (two layers, biases on q, k, v and o), quantised by the loops below in the layouts that
FP8 checkpoints of the hub have; golden.h5 holds /tokens and the /logits of transformers in float64 on the
weights that NumPy's reading of the stored numbers gives, and /weights/<module> of the first layer. Needs PyTorch,
transformers 5, safetensors, h5py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent / "quantized"
CONFIG = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0, eos_token_id=1, initializer_range=0.25,
    rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True,
)


def e4m3(byte: int) -> float:
    sign, exponent, mantissa = byte >> 7, byte >> 3 & 15, byte & 7
    size = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if sign else size


E4M3 = np.array([e4m3(byte) for byte in range(256)])
FINITE = np.array([byte for byte in range(256) if byte & 127 != 127])


def to_e4m3(values: np.ndarray) -> np.ndarray:
    """The nearest byte of each value."""
    return FINITE[np.abs(values[..., None] - E4M3[FINITE]).argmin(-1)].astype(np.uint8)


def fp8(weight: np.ndarray, block: tuple[int, int]) -> tuple[dict, np.ndarray]:
    rows, cols = weight.shape
    n_down, n_across = -(-rows // block[0]), -(-cols // block[1])
    scales = np.zeros((n_down, n_across), np.float32)
    stored = np.zeros((rows, cols), np.uint8)
    read = np.zeros((rows, cols), np.float32)
    for i in range(n_down):
        for j in range(n_across):
            part = np.s_[i * block[0]:(i + 1) * block[0], j * block[1]:(j + 1) * block[1]]
            scales[i, j] = np.abs(weight[part]).max() / 448
            stored[part] = to_e4m3(weight[part] / scales[i, j])
            for r, c in np.ndindex(stored[part].shape):
                read[part][r, c] = np.float32(E4M3[stored[part][r, c]]) * scales[i, j]
    return {"weight": torch.from_numpy(stored).view(torch.float8_e4m3fn), "scales": torch.from_numpy(scales)}, read


def kinds(rng):
    """name, quantization_config, function of a weight to (tensors, what they stand for)"""
    def scaled(block, name, shape=None):
        def quantise(weight):
            stored, read = fp8(weight, block or weight.shape)
            scales = stored.pop("scales")
            return {**stored, name: scales if shape is None else scales.reshape(shape)}, read
        return quantise

    yield "fp8_block", {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 20]}, \
        scaled((16, 20), "weight_scale_inv")
    yield "fp8_tensor", {"quant_method": "fp8", "activation_scheme": "static"}, scaled(None, "weight_scale", [])
    yield "fp8_row", {"quant_method": "fbgemm_fp8"}, lambda weight: scaled((1, weight.shape[1]), "weight_scale")(weight)


def main() -> None:
    config = transformers.LlamaConfig(**CONFIG)
    torch.manual_seed(38)
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    tokens = torch.randint(0, config.vocab_size, (1, 24), generator=torch.Generator().manual_seed(7))
    shutil.rmtree(HERE, ignore_errors=True)
    plain = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    for kind, settings, quantise in kinds(np.random.default_rng(38)):
        folder = HERE / kind
        folder.mkdir(parents=True)
        stored, weights, checked = {}, {}, {}
        for name, tensor in plain.items():
            if not name.endswith("_proj.weight"):
                stored[name] = tensor.to(torch.float16)
                weights[name] = stored[name].double()
                continue
            module = name.removesuffix(".weight")
            parts, read = quantise(tensor.numpy())
            stored |= {f"{module}.{part}": value.contiguous() for part, value in parts.items()}
            weights[name] = torch.from_numpy(read).double()
            if "layers.0" in name:
                checked[module] = read
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config.to_dict() | {
            "architectures": ["LlamaForCausalLM"], "quantization_config": settings}, indent=1, default=str) + "\n")
        model.double().load_state_dict(weights)
        with torch.no_grad():
            logits = model(tokens).logits[0]
        with h5py.File(folder / "golden.h5", "w") as file:
            file["tokens"] = tokens[0].numpy().astype(np.int64)
            file["logits"] = logits.numpy().astype(np.float32)
            for module, read in checked.items():
                file[f"weights/{module}"] = read


if __name__ == "__main__":
    main()
