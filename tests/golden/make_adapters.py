"""Makes the adapters of tests/golden/adapters with the Python package peft, and the logits of the model that they change.

    python tests/golden/make_adapters.py

Random weights for tests/golden/llama2_mha; golden.h5 holds /tokens and the
/logits of transformers in float64 after merge_and_unload(). Needs PyTorch, transformers 5, peft, h5py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import peft
import torch
import transformers

HERE = Path(__file__).resolve().parent
ADAPTERS = {
    "plain": dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"]),
    "patterns": dict(
        r=2, lora_alpha=3, use_rslora=True, target_modules=r"model\.layers\.\d\.(self_attn\.o_proj|mlp\..*_proj)",
        rank_pattern={"down_proj": 4, r"layers\.1\.mlp\.up_proj": 1}, alpha_pattern={r"model\.layers\.0\..*o_proj": 7},
    ),
    "dora": dict(r=3, lora_alpha=3, use_dora=True, target_modules=["k_proj", "gate_proj", "o_proj"]),
    "embedding": dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "q_proj"], modules_to_save=["lm_head"]),
}


def make(name: str, settings: dict) -> None:
    base = HERE / "llama2_mha"
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    torch.manual_seed(38)
    adapted = peft.get_peft_model(model, peft.LoraConfig(**settings))
    with torch.no_grad():
        for parameter_name, parameter in adapted.named_parameters():
            if "lora_" in parameter_name or "modules_to_save" in parameter_name:
                noise = 0.1 * torch.randn_like(parameter)
                parameter.copy_(parameter * (1 + noise) if "magnitude" in parameter_name else parameter + noise)
    folder = HERE / "adapters" / name
    shutil.rmtree(folder, ignore_errors=True)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": "../../llama2_mha"}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    merged = adapted.double().merge_and_unload()
    tokens = torch.randint(0, model.config.vocab_size, (1, 24), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        logits = merged(tokens).logits[0]
    with h5py.File(folder / "golden.h5", "w") as file:
        file["tokens"] = tokens[0].numpy().astype(np.int64)
        file["logits"] = logits.numpy().astype(np.float32)


if __name__ == "__main__":
    for name, settings in ADAPTERS.items():
        make(name, settings)
