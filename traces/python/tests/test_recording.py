"""Prefill, generation, chunks, filters and captures, on small random models against plain formulas."""

from __future__ import annotations

import subprocess
import sys

import h5py
import numpy as np
import pytest
import torch
from conftest import ROOT, SAMPLES, load, probabilities, small_llama, token_ids
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, MistralConfig, MistralForCausalLM

from kvscope_recorder import RecordWarning, record


def units(trace: h5py.File) -> list[list[int]]:
    return trace["/units"][...].tolist()


@torch.no_grad()
def test_sdpa_and_eager_record_the_same(tmp_path):
    ids = token_ids(70)
    traces = []
    for implementation in ("sdpa", "eager"):
        model = small_llama()
        model.set_attn_implementation(implementation)
        with record(model, tmp_path / f"{implementation}.h5", capture="attn"):
            model(ids)
        traces.append(h5py.File(tmp_path / f"{implementation}.h5"))
    for layer in (0, 1):
        for name in ("q", "k", "v", "lse", "attn"):
            at = f"/layers/{layer}/{name}"
            np.testing.assert_allclose(traces[0][at], traces[1][at], atol=2e-5)
        np.testing.assert_allclose(traces[0][f"/layers/{layer}/attn"], probabilities(traces[0], layer), atol=2e-5)


@pytest.mark.parametrize("planned", [None, 7, 30])
@torch.no_grad()
def test_generate(tmp_path, kvscope, planned):
    """The same file whether the length was known, unknown, or longer than what came."""
    model, ids = small_llama(), token_ids(20)
    path = tmp_path / "trace.h5"
    with record(model, path, max_new_tokens=planned, capture="attn,attn-topk=5,stats,logits", page_size=4) as recorder:
        out = model.generate(ids, max_new_tokens=7, min_new_tokens=7, do_sample=False)
    kvscope("verify", path)
    with h5py.File(path) as trace:
        assert recorder.info.n_tokens == trace.attrs["n_tokens"] == 26  # the last token that it yields is not run
        assert trace.attrs["status"] == b"complete" and trace.attrs["n_prompt"] == trace.attrs["chunk"] == 20
        assert units(trace) == [[0, 20, 0]] + [[i, i + 1, 1] for i in range(20, 26)]
        np.testing.assert_array_equal(trace["/tokens"], out[0, :26])
        np.testing.assert_array_equal(trace["/logits"][19:].argmax(-1), out[0, 20:])
        for layer in (0, 1):
            exact = probabilities(trace, layer)
            np.testing.assert_allclose(trace[f"/layers/{layer}/attn"], exact, atol=2e-5)
            k = trace[f"/layers/{layer}/k"][...]
            np.testing.assert_array_equal(trace[f"/layers/{layer}/stats/page_max"], k[:, :24].reshape(2, 6, 4, 8).max(2))
            np.testing.assert_allclose(trace[f"/layers/{layer}/stats/k_norm"], np.linalg.norm(k, axis=-1), rtol=1e-6)
            top = trace[f"/layers/{layer}/topk_pos"][...]
            assert (top[:, 2, 3:] == -1).all()
            np.testing.assert_array_equal(top[:, 25, 0], exact[:, 25].argmax(-1))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["trace.h5"]


@torch.no_grad()
def test_chunks_and_cacheless_generation_give_the_trace_of_one_pass(tmp_path, kvscope):
    model, ids = small_llama(), token_ids(45)
    with record(model, tmp_path / "whole.h5"):
        model(ids)
    with record(model, tmp_path / "chunks.h5"):
        cache = DynamicCache(config=model.config)
        for first in range(0, 45, 8):
            model(ids[:, first : first + 8], past_key_values=cache)
    with record(model, tmp_path / "again.h5"):
        for end in (30, 31, 45):
            model(ids[:, :end], use_cache=False)
    with h5py.File(tmp_path / "whole.h5") as whole:
        for name, n_prompt, chunk, n_units in (("chunks", 45, 8, 6), ("again", 45, 30, 3)):
            kvscope("verify", tmp_path / f"{name}.h5")
            with h5py.File(tmp_path / f"{name}.h5") as other:
                assert (other.attrs["n_prompt"], other.attrs["chunk"], len(units(other))) == (n_prompt, chunk, n_units)
                for layer in (0, 1):
                    for array_name in ("q", "k", "v", "lse"):
                        at = f"/layers/{layer}/{array_name}"
                        np.testing.assert_allclose(other[at], whole[at], atol=1e-5)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@torch.no_grad()
def test_sliding_windows(tmp_path, kvscope, cache):
    torch.manual_seed(2)
    model = MistralForCausalLM(MistralConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        vocab_size=64, sliding_window=6, initializer_range=0.3, max_position_embeddings=128)).eval()
    path = tmp_path / "trace.h5"
    with record(model, path, capture="attn"):
        model.generate(token_ids(15), max_new_tokens=9, min_new_tokens=9, do_sample=False, cache_implementation=cache, disable_compile=True)
    kvscope("verify", path)
    with h5py.File(path) as trace:
        assert trace["/model/windows"][...].tolist() == [6, 6]
        np.testing.assert_allclose(trace["/layers/1/attn"], probabilities(trace, 1, window=6), atol=2e-5)


@torch.no_grad()
def test_filters(tmp_path, kvscope):
    model, ids = small_llama(), token_ids(32)
    with record(model, tmp_path / "all.h5", capture="logits"):
        model(ids)
    with record(model, tmp_path / "some.h5", layers=[1], heads=[3], rows=(10, 20), capture="logits,attn"):
        model(ids)
    kvscope("verify", tmp_path / "some.h5")
    with h5py.File(tmp_path / "all.h5") as every, h5py.File(tmp_path / "some.h5") as some:
        assert list(some["/layers"]) == ["1"] and some["/recorded/kv_heads"][...].tolist() == [1]
        np.testing.assert_array_equal(some["/layers/1/q"], every["/layers/1/q"][3:, 10:20])
        np.testing.assert_array_equal(some["/layers/1/k"], every["/layers/1/k"][1:])
        np.testing.assert_array_equal(some["/layers/1/lse"], every["/layers/1/lse"][3:, 10:20])
        np.testing.assert_array_equal(some["/logits"], every["/logits"][10:20])
        assert some["/layers/1/attn"].shape == (1, 10, 32)


@torch.no_grad()
def test_bf16_is_kept_bit_by_bit(tmp_path, kvscope):
    model, ids = small_llama().to(torch.bfloat16), token_ids(24)
    seen = {}
    model.model.layers[0].self_attn.v_proj.register_forward_hook(lambda module, args, out: seen.update(v=out))
    with record(model, tmp_path / "trace.h5"):
        model(ids)
    kvscope("verify", tmp_path / "trace.h5")
    expected = seen["v"][0].view(24, 2, 8).transpose(0, 1)
    with h5py.File(tmp_path / "trace.h5") as trace:
        stored = trace["/layers/0/v"]
        assert stored.id.get_type().get_size() == 2 and stored.attrs["dtype_logical"] == b"bf16"
        np.testing.assert_array_equal(stored[...].astype("f4"), expected.float().numpy())
        raw = np.fromfile(tmp_path / "trace.h5", dtype="u2", count=stored.size, offset=stored.id.get_offset())
        np.testing.assert_array_equal(raw, expected.contiguous().view(torch.int16).numpy().view("u2").ravel())


@torch.no_grad()
def test_sixteen_bits_say_by_how_much_they_move_scores(tmp_path, kvscope):
    model = small_llama(attention_bias=True)
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.k_proj.bias)
    model.model.layers[1].self_attn.k_proj.bias += 300.0  # as Qwen2.5's first layer
    with pytest.warns(RecordWarning, match=r"storing q and k in bf16 moves scores of layers 1 by up to [0-9.e+]+ nats"):
        with record(model, tmp_path / "trace.h5", dtype="bf16"):
            model(token_ids(40)[:, :30], use_cache=True)
    kvscope("verify", tmp_path / "trace.h5")  # which finds less than the trace says
    with h5py.File(tmp_path / "trace.h5") as trace:
        moved = trace["/recorded/moved_scores"][()]
    assert 0 < moved[0] < 0.5 < moved[1]


@torch.no_grad()
def test_equal_runs_give_equal_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    model, ids = small_llama(), token_ids(24)
    for name in ("a.h5", "b.h5"):
        with record(model, tmp_path / name):
            model.generate(ids, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


@pytest.mark.parametrize("name", ["verifier", "draft"])
def test_the_embedded_pair_loads_as_it_was_trained(name):
    """Its text, RoPE and cache, in transformers 5 and 4: generate() without a cache computes each key again and again."""
    folder = SAMPLES / name
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.generation_config.use_cache and len(tokenizer) == 4096
    inputs = tokenizer("It was", return_tensors="pt")
    assert inputs.input_ids[0, 0] != tokenizer.convert_tokens_to_ids("<s>") and set(inputs) == {"input_ids", "attention_mask"}
    slowest = 500000.0 ** -(1 - 2 / model.config.head_dim)
    assert float(model.model.rotary_emb.inv_freq[-1]) == pytest.approx(slowest, rel=1e-5)


@torch.no_grad()
def test_the_kind_of_rope_is_that_of_the_module_not_of_a_changed_configuration(tmp_path):
    model = small_llama()
    model.config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    with record(model, tmp_path / "trace.h5") as recorder:
        model(token_ids(8))
    assert (recorder.info.rope_kind, recorder.info.rope_factor) == ("default", 1.0)
    assert recorder.info.capture.page_size == 16 and recorder.info.calls[0][0] == 0 and recorder.info.index[0] == []


@torch.no_grad()
def test_the_embedded_verifier_with_text(tmp_path, kvscope, write_ids):
    """Token text and tokenizer fingerprint equal the native recorder's; Quest and sweep run on the file."""
    folder = SAMPLES / "verifier"
    model, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    text = (SAMPLES / "texts" / "kidnapped.txt").read_text()[:3000]
    ids = tokenizer(text, return_tensors="pt").input_ids[:, :600]
    path, native_path = tmp_path / "trace.h5", tmp_path / "native.h5"
    with record(model, path, tokenizer=tokenizer, max_new_tokens=4, text_source="kidnapped.txt"):
        model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False, use_cache=True)
    kvscope("verify", path)
    kvscope("record", "--model", folder, "--tokens", write_ids(ids), "--layers", "0", "-o", native_path)
    with h5py.File(path) as trace, h5py.File(native_path) as native:
        assert trace.attrs["tokenizer_hash"] == native.attrs["tokenizer_hash"]
        end = native["/token_offsets"][-1]
        np.testing.assert_array_equal(trace["/token_offsets"][:601], native["/token_offsets"][:601])
        np.testing.assert_array_equal(trace["/token_bytes"][:end], native["/token_bytes"][:end])
        assert bytes(trace["/token_bytes"][:end]).decode() == tokenizer.decode(ids[0])
    kvscope("analyze", "quest", path, "-o", tmp_path / "quest.h5")
    kvscope("sweep", path, "--selector", "quest", "--budget", "ratio=0.25", "--layers", "2", "-o", tmp_path / "sweep.csv")
    example = ROOT / "traces" / "python" / "examples" / "read_trace.py"
    shown = subprocess.run([sys.executable, example, path], capture_output=True, text=True, check=True).stdout
    assert "verifier complete 603 tokens" in shown and "row 602" in shown
