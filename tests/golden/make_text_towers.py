"""Makes tests/golden/towers: small models of texts and pictures, and the logits of transformers for a text alone.

    python tests/golden/make_text_towers.py [name ...]

Random weights; golden.h5 has /tokens and /logits, computed in float64. qwen2_vl_flat is qwen2_vl as the published files
have it: config.json without a text_config, tensors called model.layers and visual. Needs PyTorch, transformers 5, h5py.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = Path(__file__).resolve().parent / "towers"
TEXT = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.25, bos_token_id=0, eos_token_id=1,
    pad_token_id=None,
)
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
IDS = dict(image_token_id=60, video_token_id=61, vision_start_token_id=62, vision_end_token_id=63)
TOWERS = {
    "gemma3": (transformers.Gemma3Config, transformers.Gemma3ForConditionalGeneration, dict(
        text_config=TEXT | dict(head_dim=8, sliding_window=9, query_pre_attn_scalar=10,
                                layer_types=["sliding_attention", "full_attention"]),
        vision_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=28,
                           patch_size=14),
        mm_tokens_per_image=1, image_token_index=60, boi_token_index=61, eoi_token_index=62, tie_word_embeddings=True)),
    "gemma4": (transformers.Gemma4Config, transformers.Gemma4ForConditionalGeneration, dict(
        text_config=TEXT | dict(head_dim=8, global_head_dim=12, sliding_window=9, num_hidden_layers=4, num_kv_shared_layers=2,
                                pad_token_id=0, vocab_size_per_layer_input=64, hidden_size_per_layer_input=4,
                                layer_types=["sliding_attention", "full_attention"] * 2),
        vision_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, patch_size=2,
                           position_embedding_size=16),
        audio_config=None, image_token_id=60, boi_token_id=61, eoi_token_id=62, tie_word_embeddings=True)),
    "mistral3": (transformers.Mistral3Config, transformers.Mistral3ForConditionalGeneration, dict(
        text_config=TEXT | dict(model_type="mistral", head_dim=8, sliding_window=None),
        vision_config=dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                           num_attention_heads=1, image_size=28, patch_size=14),
        image_token_index=60, tie_word_embeddings=False)),
    "qwen2_vl": (transformers.Qwen2VLConfig, transformers.Qwen2VLForConditionalGeneration, dict(
        text_config=TEXT | dict(rope_parameters=MROPE),
        vision_config=dict(depth=1, embed_dim=8, hidden_size=32, num_heads=1, mlp_ratio=1, patch_size=2,
                           temporal_patch_size=1, spatial_merge_size=2),
        tie_word_embeddings=False, **IDS)),
    "qwen2_5_vl": (transformers.Qwen2_5_VLConfig, transformers.Qwen2_5_VLForConditionalGeneration, dict(
        text_config=TEXT | dict(rope_parameters=MROPE),
        vision_config=dict(depth=1, hidden_size=8, out_hidden_size=32, intermediate_size=8, num_heads=1, patch_size=2,
                           temporal_patch_size=1, spatial_merge_size=2, fullatt_block_indexes=[0]),
        tie_word_embeddings=True, **IDS)),
    "qwen3_vl": (transformers.Qwen3VLConfig, transformers.Qwen3VLForConditionalGeneration, dict(
        text_config=TEXT | dict(head_dim=8, rope_parameters=MROPE),
        vision_config=dict(depth=1, hidden_size=8, out_hidden_size=32, intermediate_size=8, num_heads=1, patch_size=2,
                           temporal_patch_size=1, spatial_merge_size=2, num_position_embeddings=4,
                           deepstack_visual_indexes=[0]),
        tie_word_embeddings=False, **IDS)),
}


def make(name: str) -> None:
    config_class, model_class, settings = TOWERS[name]
    torch.manual_seed(38)
    model = model_class(config_class(**settings, attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "norm" in parameter_name or parameter_name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(0, 60, (1, 24), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        logits = model.double()(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits[0]
    with h5py.File(folder / "golden.h5", "w") as file:
        file["tokens"] = tokens[0].numpy().astype(np.int64)
        file["logits"] = logits.numpy().astype(np.float32)


def make_flat() -> None:
    folder = HERE / "qwen2_vl_flat"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "qwen2_vl", folder)
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text.pop("model_type")
    text |= {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    (folder / "config.json").write_text(json.dumps(text | config, indent=1) + "\n")
    tensors = load_file(folder / "model.safetensors")
    flat = {name.replace("model.language_model.", "model.").replace("model.visual.", "visual."): tensor.clone()
            for name, tensor in tensors.items()}
    save_file(flat, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    for tower in sys.argv[1:] or TOWERS:
        make(tower)
        if tower == "qwen2_vl":
            make_flat()
