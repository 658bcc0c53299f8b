"""Tiny configurations of the model families that transformers has, and what the recorder makes of each.

The keys are model_types. `TAKEN` are recorded whole, of those in `PARTLY` some layers are, those in `REFUSED` say in one
sentence why not.
"""

from __future__ import annotations

from typing import Any

SMALL = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, initializer_range=0.2, pad_token_id=None, bos_token_id=None, eos_token_id=None,
)
GPT = dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128, initializer_range=0.2,
           pad_token_id=None, bos_token_id=None, eos_token_id=None)
EXPERTS = dict(num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
MLA = dict(
    q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, num_key_value_heads=4, n_group=1, topk_group=1,
    n_shared_experts=1, first_k_dense_replace=1, **EXPERTS,
)


def small(**changes: Any) -> dict[str, Any]:
    return SMALL | changes


TAKEN: dict[str, dict[str, Any]] = {
    "llama": small(),
    "gemma": small(head_dim=8),
    "gemma2": small(head_dim=8, sliding_window=7, attn_logit_softcapping=0.5),
    "vaultgemma": small(head_dim=8, attn_logit_softcapping=0.5),
    "gemma3_text": small(head_dim=8, num_hidden_layers=6, sliding_window=7, query_pre_attn_scalar=16),
    "gemma3n_text": small(num_hidden_layers=4, head_dim=8, sliding_window=7, num_kv_shared_layers=2, vocab_size_per_layer_input=64,
                          layer_types=["sliding_attention", "full_attention"] * 2),
    "gemma4_text": small(num_hidden_layers=6, head_dim=8, global_head_dim=16, num_global_key_value_heads=1, sliding_window=7,
                         num_kv_shared_layers=2, vocab_size_per_layer_input=64, hidden_size_per_layer_input=8,
                         layer_types=["sliding_attention", "full_attention"] * 3),
    "mimo_v2_flash": small(num_hidden_layers=4, head_dim=16, v_head_dim=8, sliding_window=7, **EXPERTS,
                           layer_types=["full_attention", "sliding_attention"] * 2),
    "phi": small(partial_rotary_factor=0.5),
    "phi3": small(),
    "phimoe": small(**EXPERTS),
    "olmo": small(),
    "olmo2": small(),
    "olmo3": small(num_hidden_layers=4, sliding_window=7),
    "olmoe": small(**EXPERTS),
    "gpt_neox": small(rotary_pct=0.25),
    "gpt2": GPT,
    "gpt_bigcode": GPT,
    "gptj": GPT | dict(rotary_dim=4),
    "codegen": GPT | dict(rotary_dim=4),
    "opt": small(ffn_dim=48, word_embed_proj_dim=32),
    "stablelm": small(),
    "starcoder2": small(),
    "cohere": small(),
    "cohere2": small(num_hidden_layers=4, sliding_window=7),
    "granite": small(attention_multiplier=0.3),
    "granitemoe": small(**EXPERTS),
    "nemotron": small(),
    "glm": small(head_dim=8),
    "glm4": small(head_dim=8),
    "glm4_moe": small(head_dim=8, **MLA),
    "mistral": small(sliding_window=7),
    "ministral": small(head_dim=8, sliding_window=7),
    "mixtral": small(**EXPERTS),
    "qwen2": small(),
    "qwen2_moe": small(**EXPERTS, shared_expert_intermediate_size=16),
    "qwen3": small(head_dim=8),
    "qwen3_moe": small(head_dim=8, **EXPERTS),
    "gpt_oss": small(head_dim=8, sliding_window=7, **EXPERTS),
    "smollm3": small(num_hidden_layers=4),
    "exaone4": small(sliding_window=7),
    "ernie4_5": small(),
    "hunyuan_v1_dense": small(head_dim=8),
    "seed_oss": small(head_dim=8),
    "helium": small(head_dim=8),
    "persimmon": small(),
    "biogpt": small(),
    "ctrl": small(),
    "arcee": small(),
    "apertus": small(),
    "modernbert-decoder": small(num_hidden_layers=3, pad_token_id=0, bos_token_id=1, eos_token_id=2, local_attention=14),
    "deepseek_v2": small(v_head_dim=16, **MLA),
    "deepseek_v3": small(v_head_dim=16, **MLA),
    "dots1": small(**MLA),
    "nanochat": small(),
    "falcon_h1": small(head_dim=8, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=8),
    "flex_olmo": small(**EXPERTS),
    "minimax_m2": small(**EXPERTS),
    "ernie4_5_moe": small(**EXPERTS),
    "dbrx": dict(vocab_size=64, d_model=32, n_heads=4, n_layers=2, max_seq_len=128,
                 attn_config=dict(kv_n_heads=2, clip_qkv=8.0, rope_theta=10000.0),
                 ffn_config=dict(ffn_hidden_size=16, moe_num_experts=4, moe_top_k=2)),
}

#: Families that came to the attention interface after transformers 5.12: skipped where they have not.
NEWCOMERS = ("gptj", "codegen")

#: Some layers are recorded; the others, which are {layer: kind}, are left out.
PARTLY: dict[str, tuple[dict[str, Any], dict[int, str]]] = {
    "llama4_text": (small(num_hidden_layers=4, head_dim=8, attention_chunk_size=64, **EXPERTS),
                    {0: "chunked_attention", 1: "chunked_attention", 2: "chunked_attention"}),
    "jamba": (small(attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, mamba_dt_rank=4,
                    use_mamba_kernels=False, num_experts=4), {0: "linear_attention"}),
    "bamba": (small(attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8), {0: "linear_attention"}),
    "granitemoehybrid": (small(layer_types=["mamba", "attention"], mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8,
                               shared_intermediate_size=16, **EXPERTS), {0: "linear_attention"}),
    "lfm2": (small(layer_types=["conv", "full_attention"]), {0: "conv"}),
    "qwen3_next": (small(num_hidden_layers=4, head_dim=8, linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8,
                         linear_value_head_dim=8, shared_expert_intermediate_size=16, **EXPERTS),
                   {0: "linear_attention", 1: "linear_attention", 2: "linear_attention"}),
    "minimax": (small(head_dim=8, layer_types=["full_attention", "linear_attention"], **EXPERTS), {1: "linear_attention"}),
    "recurrent_gemma": (small(num_hidden_layers=3, head_dim=8, attention_window_size=7),
                        {0: "linear_attention", 1: "linear_attention"}),
}

#: (configuration, what the sentence has to say)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "falcon": (small(alibi=False), "FalconForCausalLM .falcon. does not go through"),
    "gpt_neo": (small(num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]),
                "GPTNeoForCausalLM .gpt_neo. does not go through"),
    "bloom": (small(n_layer=2, n_head=4), "ALiBi"),
    "mpt": (dict(d_model=32, n_heads=4, n_layers=2, vocab_size=64, max_seq_len=64), "ALiBi"),
    "xglm": (small(), "XGLMForCausalLM .xglm. does not go through"),
    "rwkv": (small(), "no softmax attention"),
    "diffllama": (small(), "attends twice|does not go through"),
    "doge": (small(), "mask adds 1 to key 0 for row 0"),
    "mamba": (small(), "no layer can be recorded.*linear_attention|no softmax attention"),
    "zamba2": (small(num_hidden_layers=3, layers_block_type=["mamba", "hybrid", "hybrid"], n_mamba_heads=8, mamba_headdim=8,
                     mamba_d_state=8, chunk_size=8, num_mem_blocks=1, hybrid_layer_ids=[1, 2], adapter_rank=4),
               r"layers \[1, 2\] made no call .*as Zamba's do.*|does not go through"),
    "glm_moe_dsa": (small(**MLA), "no layer can be recorded.*indexed_attention"),
    "deepseek_v4": (small(), "no layer can be recorded.*compressed"),
}
