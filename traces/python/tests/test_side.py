"""Side tensors: what indexers see and choose, and keys before their rotation, on tiny random models against plain formulas."""

from __future__ import annotations

import warnings

import h5py
import numpy as np
import pytest
import torch
from conftest import IS_FIVE, array, small_llama, token_ids
from families import MLA, small
from transformers import AutoConfig, AutoModelForCausalLM

from kvscope_recorder import ConfigError, UnsupportedModelError, record

TOPK = 6
INDEXED = {
    "deepseek_v32": small(v_head_dim=16, index_n_heads=3, index_head_dim=16, index_topk=TOPK, **MLA),
    "glm_moe_dsa": small(v_head_dim=16, index_n_heads=3, index_head_dim=16, index_topk=TOPK, **MLA),
    "qwen4_exp_text": small(
        head_dim=8, num_hidden_layers=2, layer_types=["linear_attention", "indexed_attention"], indexer_n_heads=3, indexer_kv_heads=1,
        indexer_head_dim=16, indexer_budget=8, indexer_compress_ratio=4, linear_num_value_heads=4, linear_num_key_heads=2,
        linear_key_head_dim=8, linear_value_head_dim=8, shared_expert_intermediate_size=16, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=16,
    ),
    "minimax_m3_vl_text": small(
        head_dim=16, num_hidden_layers=2, layer_types=["full_attention", "minimax_m3_sparse"], index_n_heads=2, index_head_dim=16,
        index_block_size=4, index_topk_blocks=3, index_local_blocks=1, num_local_experts=4, num_experts_per_tok=2,
        rotary_dim=8, partial_rotary_factor=0.5, dense_intermediate_size=48, shared_intermediate_size=16,
    ),
}

pytestmark = pytest.mark.skipif(not IS_FIVE, reason="indexers came with transformers 5")


def indexed_model(kind: str) -> torch.nn.Module:
    torch.manual_seed(3)
    try:
        config = AutoConfig.for_model(kind, **INDEXED[kind])
        config._attn_implementation = "eager"
        return AutoModelForCausalLM.from_config(config).eval()
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        pytest.skip(f"this transformers has no {kind} that fits: {error}")


def products(trace: h5py.File, layer: int) -> np.ndarray:
    """[index heads, rows, tokens] of index queries and keys."""
    q, k = array(trace, f"/layers/{layer}/index_q"), array(trace, f"/layers/{layer}/index_k")
    return np.einsum("hrc,htc->hrt", q, np.repeat(k, len(q) // len(k), axis=0))


def chosen(trace: h5py.File, layer: int) -> list[list[set[int]]]:
    table = trace[f"/layers/{layer}/index_selected"][...]
    assert table.dtype == np.int32
    for rows in table:
        for row, blocks in enumerate(rows):
            kept = blocks[blocks >= 0]
            assert (np.diff(kept) > 0).all() and (blocks[len(kept) :] == -1).all()
            assert (kept * trace.attrs["index_block"] <= row).all()
    return [[set(blocks[blocks >= 0].tolist()) for blocks in rows] for rows in table]


def best(scores: np.ndarray, n: int) -> set[int]:
    return set(np.argsort(-scores, kind="stable")[:n].tolist())


@pytest.mark.parametrize("kind", ["deepseek_v32", "glm_moe_dsa"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@torch.no_grad()
def test_dsa(tmp_path, kvscope, kind, implementation):
    model, path = indexed_model(kind), tmp_path / "trace.h5"
    model.set_attn_implementation(implementation)
    ids = token_ids(30)
    plain = model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    with record(model, path, capture="index", rows=(0, None)):
        assert torch.equal(plain, model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False))
    assert not any("forward" in module.__dict__ for module in model.modules())
    kvscope("verify", path)
    with h5py.File(path) as trace:
        assert trace.attrs["schema_version"] == b"1.2" and b",index" in trace.attrs["features"]
        layers = trace["/recorded/index_layers"][...].tolist()
        assert layers and trace.attrs["index_heads"] == 3 and trace.attrs["index_gates"] == 1
        for layer in layers:
            scores = np.einsum("hr,hrt->rt", array(trace, f"/layers/{layer}/index_w"), np.maximum(products(trace, layer), 0))
            for row, blocks in enumerate(chosen(trace, layer)[0]):
                visible = scores[row, : row + 1]
                assert blocks == best(visible, TOPK) or np.isclose(*[np.sort(visible)[::-1][i] for i in (TOPK - 1, TOPK)], atol=1e-5)


@torch.no_grad()
def test_msa(tmp_path, kvscope):
    model, path = indexed_model("minimax_m3_vl_text"), tmp_path / "trace.h5"
    with record(model, path, capture="index"):
        model(token_ids(30))
    kvscope("verify", path)
    with h5py.File(path) as trace:
        (layer,) = trace["/recorded/index_layers"][...].tolist()
        assert trace.attrs["index_block"] == 4 and trace.attrs["index_lists"] == 2
        scores = products(trace, layer)
        for head, rows in enumerate(chosen(trace, layer)):
            for row, blocks in enumerate(rows):
                own = row // 4
                values = np.array([scores[head, row, 4 * b : min(4 * b + 4, row + 1)].max() for b in range(own)] + [np.inf])
                assert blocks == best(values, 3)


@torch.no_grad()
def test_qsa(tmp_path, kvscope):
    """A block's index key stands at its last token, in one pass and in chunks with a cache."""
    model, ids = indexed_model("qwen4_exp_text"), token_ids(30)
    with record(model, tmp_path / "one.h5", capture="index"):
        model(ids)
    with record(model, tmp_path / "steps.h5", capture="index"):
        cache = model(ids[:, :13]).past_key_values
        for at in range(13, 30):
            cache = model(ids[:, at : at + 1], past_key_values=cache).past_key_values
    for name in ("one", "steps"):
        kvscope("verify", tmp_path / f"{name}.h5")
    with h5py.File(tmp_path / "one.h5") as trace, h5py.File(tmp_path / "steps.h5") as steps:
        (layer,) = trace["/recorded/index_layers"][...].tolist()
        for name in ("index_q", "index_k"):
            np.testing.assert_allclose(array(trace, f"/layers/{layer}/{name}"), array(steps, f"/layers/{layer}/{name}"), atol=2e-5)
        scores = np.maximum(products(trace, layer), 0).sum(0)
        for row, tokens in enumerate(chosen(trace, layer)[0]):
            whole = (row + 1) // 4
            kept = best(scores[row, 3 : 4 * whole : 4], 2)
            expected = {4 * block + i for block in kept for i in range(4)} | set(range(4 * whole, row + 1))
            assert tokens == expected


@torch.no_grad()
def test_keys_before_their_rotation(tmp_path, kvscope):
    model, ids = small_llama(), token_ids(25)
    seen = {}
    for layer, block in enumerate(model.model.layers):
        block.self_attn.k_proj.register_forward_hook(lambda module, args, out, layer=layer: seen.setdefault(layer, []).append(out))
    with record(model, tmp_path / "trace.h5", capture="k-pre-rope", heads=[2, 3]):
        model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    kvscope("verify", tmp_path / "trace.h5")
    with h5py.File(tmp_path / "trace.h5") as trace:
        assert trace.attrs["schema_version"] == b"1.3" and b"k-pre-rope" in trace.attrs["features"]
        for layer in (0, 1):
            keys = torch.cat(seen[layer], dim=1)[0].reshape(28, 2, 8)[:, 1]
            np.testing.assert_allclose(trace[f"/layers/{layer}/k_pre_rope"][0], keys, atol=1e-6)
            assert np.abs(trace[f"/layers/{layer}/k"][0, 1:] - keys[1:].numpy()).max() > 0.01
    import transformers.models.llama.modeling_llama as source

    assert not hasattr(source.apply_rotary_pos_emb, "__wrapped__") or "pre_rotary" not in source.apply_rotary_pos_emb.__code__.co_filename


def rotated(trace, layer, head=0):
    """k_pre_rope turned by the trace's own numbers."""
    before = trace[f"/layers/{layer}/k_pre_rope"][head].astype("f8")
    frequencies, amplitude = trace["/model/rope_frequencies"][layer], trace["/model/rope_amplitudes"][layer]
    angles = (np.arange(len(before), dtype="f4")[:, None] * frequencies).astype("f8")
    c, s, half = amplitude * np.cos(angles), amplitude * np.sin(angles), len(frequencies)
    x, y = before[:, :half], before[:, half:]
    return np.concatenate([x * c - y * s, y * c + x * s], axis=1)


def settings_after_load(model):
    model.config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}


def frequencies_by_hand(model):
    model.model.rotary_emb.inv_freq *= 0.25


@torch.no_grad()
@pytest.mark.skipif(not IS_FIVE, reason="rope_parameters are transformers 5's")
@pytest.mark.parametrize("change", [settings_after_load, frequencies_by_hand])
def test_the_trace_says_what_the_keys_were_rotated_by(tmp_path, kvscope, change):
    model, ids = small_llama(), token_ids(25)
    change(model)
    with record(model, tmp_path / "trace.h5", capture="k-pre-rope"):
        model(ids)
    kvscope("verify", tmp_path / "trace.h5")
    with h5py.File(tmp_path / "trace.h5", "r+") as trace:
        np.testing.assert_allclose(rotated(trace, 1), trace["/layers/1/k"][0], atol=1e-5)
        trace["/model/rope_frequencies"][:, 0] *= 0.5
    result = kvscope("verify", tmp_path / "trace.h5", ok=False)
    assert result.returncode != 0 and "rope_frequencies" in result.stdout + result.stderr


@torch.no_grad()
@pytest.mark.skipif(not IS_FIVE, reason="rope_parameters are transformers 5's")
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_no_one_table_where_the_rotation_changes_with_the_length(tmp_path, kind):
    factors = {"long_factor": [2.0] * 4, "short_factor": [1.0] * 4, "original_max_position_embeddings": 32}
    config = small_llama().config
    config.max_position_embeddings = 32
    config.rope_parameters = {"rope_type": kind, "factor": 4.0, "rope_theta": 1e4} | (factors if kind == "longrope" else {})
    model, ids = AutoModelForCausalLM.from_config(config), token_ids(25)
    for n_new in (4, 16):
        with warnings.catch_warnings(record=True) as said, record(model, tmp_path / f"{n_new}.h5", capture="k-pre-rope"):
            model.generate(ids, max_new_tokens=n_new, min_new_tokens=n_new, do_sample=False)
        changed = any("rotary embedding changed" in str(one.message) for one in said)
        with h5py.File(tmp_path / f"{n_new}.h5") as trace:
            assert ("/model/rope_frequencies" in trace) is not changed
        assert changed is (n_new == 16)


@torch.no_grad()
def test_what_a_model_has_not_is_said(tmp_path):
    with pytest.raises(UnsupportedModelError, match="has an indexer; 'kvscope fit indexer' learns one"):
        record(small_llama(), tmp_path / "a.h5", capture="index")
    with pytest.raises(ConfigError, match="k-pre-rope"):
        record(small_llama(), tmp_path / "a.h5", capture="pre-rope")
    model = indexed_model("deepseek_v32")
    with pytest.raises(UnsupportedModelError, match="capture='index' records layers with an indexer"):
        record(model, tmp_path / "b.h5")
    with pytest.raises(UnsupportedModelError, match="k-pre-rope"), record(model, tmp_path / "c.h5", capture="index,k-pre-rope"):
        model(token_ids(30))
    ids, mask = token_ids(12), torch.ones(1, 12, dtype=torch.long)
    mask[:, :3] = 0
    with pytest.raises(UnsupportedModelError, match="padding in front"), record(model, tmp_path / "d.h5", capture="index"):
        model(ids, attention_mask=mask)
