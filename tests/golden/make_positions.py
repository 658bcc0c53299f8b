"""Writes positions.json: by what Hugging Face transformers rotates q and k, for many spellings of the same settings.

    python make_positions.py positions.json          (transformers 5.24, torch)

Each case is the fields of a config.json and, for the first and the last layer, rotary_emb's frequencies and amplitude, or
"refused" where transformers refuses too, or kvscope says that it does not compute the kind.
"""

import json
import sys
import tempfile
from pathlib import Path

import transformers
from transformers import AutoConfig, AutoModelForCausalLM

transformers.logging.set_verbosity_error()
COMMON = dict(vocab_size=32, hidden_size=64, intermediate_size=32, num_hidden_layers=6, num_attention_heads=4,
              num_key_value_heads=2, head_dim=16, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=None)
FAMILIES = {
    "llama": {}, "mistral": {}, "qwen2": {}, "qwen3": {}, "smollm3": {}, "gemma2": {}, "gemma3_text": {}, "phi3": {},
    "olmo2": {}, "gpt_neox": {"num_key_value_heads": 4, "head_dim": 16},
    "gpt_oss": {"num_local_experts": 2, "num_experts_per_tok": 1},
}
NOT_COMPUTED = ("dynamic", "longrope", "su", "proportional", "mrope")
LINEAR = dict(rope_type="linear", factor=4.0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
PLAIN = dict(rope_type="default", rope_theta=1e6)


def old(group):
    return {("type" if name == "rope_type" else name): value for name, value in group.items()}


def less(group, *names):
    return {name: value for name, value in group.items() if name not in names}


# Of every family: which group counts, and whose original length.
SHORT = [
    {}, {"rope_theta": 5e5}, {"rope_parameters": PLAIN}, {"rope_scaling": LINEAR, "rope_parameters": PLAIN, "rope_theta": 1e6},
    {"rope_scaling": YARN, "rope_parameters": PLAIN}, {"rope_scaling": old(YARN), "rope_theta": 1e6},
    {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}}, {"rope_parameters": YARN, "original_max_position_embeddings": 32},
    {"rope_parameters": None, "rope_scaling": None}, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
]
LONG = [
    *({"rope_scaling": kind, "rope_theta": 1e6} for kind in (LINEAR, YARN, LLAMA3, old(LINEAR), old(LLAMA3), {}, None)),
    *({"rope_parameters": kind, "rope_theta": 1e6} for kind in (LINEAR, YARN, LLAMA3, old(YARN), {}, None)),
    *({"rope_parameters": PLAIN, "rope_scaling": kind} for kind in (LLAMA3, old(YARN), {}, None)),
    *({"rope_parameters": YARN | {"rope_theta": theta}} for theta in (1e4, 1e6)),
    {"rope_parameters": YARN | {"rope_theta": 1e6}, "rope_theta": 1e5},
    *({"rope_parameters": less(kind, "original_max_position_embeddings"), "rope_theta": 1e6} | beside
      for kind in (YARN, LLAMA3) for beside in ({}, {"original_max_position_embeddings": 32})),
    *({"rope_parameters": kind | {"original_max_position_embeddings": original}, "rope_theta": 1e6}
      for kind in (YARN, LLAMA3) for original in (32, 32.0, 100.5)),
    *({"rope_parameters": YARN | {"rope_theta": 1e6} | more} for more in (
        {"truncate": True}, {"truncate": False}, {"truncate": None}, {"truncate": False, "beta_fast": 8, "beta_slow": 2},
        {"beta_fast": None, "beta_slow": 0}, {"mscale": 1.0, "mscale_all_dim": 1.0}, {"mscale": 0.707, "mscale_all_dim": 1.0},
        {"mscale": 0.707}, {"mscale_all_dim": 1.0}, {"mscale": 0, "mscale_all_dim": 0}, {"attention_factor": None},
        {"attention_factor": 1.0}, {"attention_factor": 0.5}, {"factor": None}, {"factor": 0.5}, {"finetuned": True})),
    {"rope_parameters": LINEAR | {"factor": 0.5}}, {"rope_parameters": LINEAR | {"factor": 2}},
    *({"rope_scaling": {"rope_type": kind, "factor": 2.0}} for kind in NOT_COMPUTED),
    {"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2.0}},
]
FULL, LOCAL = PLAIN, {"rope_type": "default", "rope_theta": 2e4}
GEMMA3 = [
    {}, {"rope_theta": 5e5, "rope_local_base_freq": 3e4}, {"rope_scaling": LINEAR}, {"rope_scaling": YARN, "rope_theta": 1e5},
    {"rope_parameters": {"full_attention": FULL, "sliding_attention": LOCAL}},
    {"rope_parameters": {"full_attention": FULL, "sliding_attention": LOCAL}, "rope_scaling": LINEAR},
    {"rope_parameters": {"full_attention": FULL, "sliding_attention": LOCAL}, "rope_scaling": YARN},
    {"rope_parameters": {"full_attention": FULL | LINEAR, "sliding_attention": LOCAL}, "rope_scaling": None},
    {"rope_parameters": {"full_attention": None, "sliding_attention": LOCAL}, "rope_theta": 7e5},
    {"rope_parameters": {"full_attention": YARN | {"truncate": False, "beta_fast": 8}, "sliding_attention": LOCAL},
     "original_max_position_embeddings": 32},
]


def cases():
    for family in FAMILIES:
        for change in GEMMA3 if family == "gemma3_text" else SHORT + (LONG if family == "qwen3" else []):
            yield family, change
    yield "gpt_neox", {"rotary_pct": 1.0, "rotary_emb_base": 25000}
    yield "gpt_neox", {"rope_parameters": {"rope_theta": 3e4, "partial_rotary_factor": 0.5}}
    yield "phi3", {"partial_rotary_factor": 0.75}
    for kind in ("su", "yarn", "longrope"):
        yield "phi3", {"rope_scaling": {"type": kind, "long_factor": [2.0] * 8, "short_factor": [1.0] * 8}}


def layer_numbers(rotary, config, layer):
    kind = (getattr(config, "layer_types", None) or [""] * config.num_hidden_layers)[layer]
    prefix = f"{kind}_" if hasattr(rotary, f"{kind}_inv_freq") else ""
    frequencies = getattr(rotary, f"{prefix}inv_freq").double().tolist()
    amplitude = float(getattr(rotary, f"{prefix}attention_scaling"))
    return {"frequencies": [float(f"{value:.7g}") for value in frequencies], "amplitude": float(f"{amplitude:.9g}")}


def reference(fields):
    if "long_factor" in str(fields) or any(f"'{kind}'" in str(fields) for kind in NOT_COMPUTED):
        return "refused"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(fields))
        try:
            config = AutoConfig.from_pretrained(folder)
            model = AutoModelForCausalLM.from_config(config)
        except Exception as error:  # noqa: BLE001  any refusal is one
            print(fields["model_type"], {k: fields[k] for k in fields if k.startswith("rope")}, type(error).__name__, error)
            return "refused"
    rotary = next(module for name, module in model.named_modules() if name.endswith("rotary_emb"))
    return [layer_numbers(rotary, model.config, layer) for layer in (0, 5)]


def main():
    rows = []
    for family, change in cases():
        fields = COMMON | FAMILIES[family] | {"model_type": family} | change
        rows.append({"config": fields, "layers": reference(json.loads(json.dumps(fields)))})
    about = f"transformers {transformers.__version__}; made by make_positions.py"
    lines = ",\n".join(json.dumps(row) for row in rows)
    Path(sys.argv[1]).write_text(f'{{"about": {json.dumps(about)}, "cases": [\n{lines}\n]}}\n')
    print(len(rows), "cases")


main()
