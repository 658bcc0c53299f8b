"""The plug-in for vLLM against a stand-in of vLLM's interface, which runs transformers' layers over a paged cache of its own.

The stand-in has what the plug-in touches, with vLLM's names and arguments: Attention (layer_name, sliding_window, impl, forward),
the impl's forward(layer, query, key, value, kv_cache, attn_metadata, output), FlashAttention's metadata, VocabParallelEmbedding,
get_current_vllm_config. Steps are padded behind, as for CUDA graphs; blocks of the cache lie out of order.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from importlib import metadata as distributions

import h5py
import numpy as np
import pytest
import torch
import vllm_check
from conftest import array, small_llama, token_ids
from transformers import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvscope_recorder import ConfigError, RecordError, UnsupportedModelError, record, vllm_plugin

BLOCK, PADDING = 4, 3


@dataclass
class FlashAttentionMetadata:
    num_actual_tokens: int
    max_query_len: int
    query_start_loc: torch.Tensor
    max_seq_len: int
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor


class Impl:
    def __init__(self, num_heads, head_size, scale, num_kv_heads, kv_cache_dtype="auto", logits_soft_cap=None):
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = num_heads, head_size, scale, num_kv_heads
        self.kv_cache_dtype, self.logits_soft_cap, self.alibi_slopes, self.sinks = kv_cache_dtype, logits_soft_cap, None, None

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output=None, output_scale=None, output_block_scale=None):
        if attn_metadata is None:
            return output
        n, end = attn_metadata.num_actual_tokens, int(attn_metadata.seq_lens[0])
        kv_cache[0].view(-1, *key.shape[1:])[attn_metadata.slot_mapping] = key[:n]
        kv_cache[1].view(-1, *key.shape[1:])[attn_metadata.slot_mapping] = value[:n]
        k, v = (part[attn_metadata.block_table[0]].flatten(0, 1)[:end].transpose(0, 1) for part in kv_cache)
        group = self.num_heads // self.num_kv_heads
        seen = torch.ones(n, end, dtype=torch.bool).tril(end - n)
        out = torch.nn.functional.scaled_dot_product_attention(query[:n].transpose(0, 1), k.repeat_interleave(group, 0),
                                                               v.repeat_interleave(group, 0), attn_mask=seen, scale=self.scale)
        output[:n] = out.transpose(0, 1)
        return output


class Attention(torch.nn.Module):
    metadata = None  # of the running step

    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, prefix="", per_layer_sliding_window=None, **extra):
        super().__init__()
        self.layer_name, self.sliding_window = prefix, per_layer_sliding_window
        self.impl = Impl(num_heads, head_size, scale, num_kv_heads, **extra)
        self.kv_cache = torch.zeros(2, 64, BLOCK, num_kv_heads, head_size)

    def forward(self, query, key, value):
        output = torch.zeros_like(query)
        self.impl.forward(self, query, key, value, self.kv_cache, Attention.metadata, output=output)
        return output


class VocabParallelEmbedding(torch.nn.Embedding):
    def forward(self, input_):
        return super().forward(input_)


class Engine:
    """Runs a transformers model through the stand-in's layers, a request at a time, the prompt in chunks."""

    def __init__(self, **layer_options):
        self.model = small_llama()
        config = self.model.config
        self.layers = [Attention(4, 8, 8**-0.5, 2, prefix=f"model.layers.{i}.self_attn.attn", **layer_options) for i in range(2)]
        embedding = VocabParallelEmbedding(64, 32)
        embedding.load_state_dict(self.model.model.embed_tokens.state_dict())
        self.model.model.embed_tokens = embedding
        ALL_ATTENTION_FUNCTIONS.register("stand-in", self.attend)
        self.model.set_attn_implementation("stand-in")
        assert config.num_hidden_layers == 2

    def attend(self, module, query, key, value, attention_mask, **kwargs):
        n = query.shape[2]
        q, k, v = (torch.cat([x[0, :, -n:].transpose(0, 1), torch.full((PADDING, x.shape[1], 8), 9.0)]) for x in (query, key, value))
        return self.layers[module.layer_idx](q, k, v)[None, :n], None

    @torch.no_grad()
    def run(self, ids, chunks, n_decoded, **changes):
        cache, done, text = DynamicCache(config=self.model.config), 0, ids
        for n in [*chunks, *[1] * n_decoded]:
            end = done + n
            table = torch.arange(63, 63 - -(-end // BLOCK), -1)
            slots = (table[:, None] * BLOCK + torch.arange(BLOCK)).flatten()[done:end]
            Attention.metadata = FlashAttentionMetadata(n, n, torch.tensor([0, n]), end, torch.tensor([end]), table[None], slots)
            for name, value in changes.items():
                setattr(Attention.metadata, name, value)
            logits = self.model(text[:, done:end], past_key_values=cache, use_cache=True).logits
            done = end
            if done == text.shape[1]:
                text = torch.cat([text, logits[:, -1:].argmax(-1)], 1)
        return text[:, :done]


@pytest.fixture
def vllm(monkeypatch, tmp_path):
    """A module vllm with the stand-in's classes, made anew for each test; and the plug-in not yet registered."""
    fresh = type("Attention", (Attention,), {}), type("VocabParallelEmbedding", (VocabParallelEmbedding,), {})
    config = types.SimpleNamespace(model_config=types.SimpleNamespace(hf_config=small_llama().config), parallel_config=types.SimpleNamespace(world_size=1))
    modules = {"vllm": {}, "vllm.config": {"get_current_vllm_config": lambda: config}, "vllm.model_executor": {}, "vllm.model_executor.layers": {},
               "vllm.model_executor.layers.attention": {"Attention": fresh[0]},
               "vllm.model_executor.layers.vocab_parallel_embedding": {"VocabParallelEmbedding": fresh[1]}}
    for name, content in modules.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys.modules[__name__], "Attention", fresh[0])
    monkeypatch.setattr(sys.modules[__name__], "VocabParallelEmbedding", fresh[1])
    monkeypatch.setattr(vllm_plugin, "_recorder", None)
    monkeypatch.setenv("KVSCOPE_VLLM_TRACE", str(tmp_path / "trace-{request}.h5"))
    yield config
    if vllm_plugin._recorder is not None and vllm_plugin._recorder._worker is not None:
        vllm_plugin._recorder._worker.close()
        vllm_plugin._recorder._sequence = vllm_plugin._recorder._worker = None
    ALL_ATTENTION_FUNCTIONS._global_mapping.pop("stand-in", None)


def reference(path, ids, chunks, n_decoded):
    """The same tokens through transformers' own layers and the recorder."""
    model = small_llama()
    cache, done = DynamicCache(config=model.config), 0
    with record(model, path), torch.no_grad():
        for n in [*chunks, *[1] * n_decoded]:
            model(ids[:, done : done + n], past_key_values=cache, use_cache=True)
            done += n


def test_the_trace_is_that_of_the_recorder(vllm, tmp_path, kvscope):
    vllm_plugin.register()
    vllm_plugin.register()  # vLLM may call it several times
    engine = Engine()
    prompts, chunks = [token_ids(40), token_ids(40).flip(1)[:, :21]], [[16, 16, 8], [21]]
    texts = [engine.run(prompt, parts, 6) for prompt, parts in zip(prompts, chunks)]
    infos = vllm_plugin.finish()
    assert [info.n_tokens for info in infos] == [46, 27]
    for at, (text, parts) in enumerate(zip(texts, chunks)):
        reference(tmp_path / f"reference-{at}.h5", text, parts, 6)
        with h5py.File(tmp_path / f"trace-{at}.h5") as found, h5py.File(tmp_path / f"reference-{at}.h5") as expected:
            np.testing.assert_array_equal(found["/tokens"], expected["/tokens"])
            np.testing.assert_array_equal(found["/units"], expected["/units"])
            assert found.attrs["n_prompt"] == expected.attrs["n_prompt"] and found.attrs["text_source"] == b"vLLM"
            for layer in range(2):
                for name in ("q", "k", "v", "lse"):
                    np.testing.assert_allclose(array(found, f"/layers/{layer}/{name}"), array(expected, f"/layers/{layer}/{name}"), atol=2e-5)
        kvscope("verify", tmp_path / f"trace-{at}.h5")


def test_the_script_for_a_gpu(vllm, tmp_path, monkeypatch, capsys):
    """What it does, with the stand-in for vLLM; and what it says where there is none."""
    class LLM:
        def __init__(self, model, **options):
            assert options["max_num_seqs"] == 1 and options["enforce_eager"] and not options["enable_prefix_caching"]
            vllm_plugin.register()
            self.engine = Engine()

        def generate(self, prompts, params):
            for prompt in prompts:
                ids = torch.tensor([prompt["prompt_token_ids"]])
                self.engine.run(ids, [ids.shape[1]], params.max_tokens - 1)

    monkeypatch.setattr(sys.modules["vllm"], "LLM", LLM, raising=False)
    monkeypatch.setattr(sys.modules["vllm"], "SamplingParams", types.SimpleNamespace, raising=False)
    for name in ("KVSCOPE_VLLM_TRACE", "VLLM_ENABLE_V1_MULTIPROCESSING"):
        monkeypatch.setenv(name, "")  # put back at the end
    traces = vllm_check.in_vllm("draft", [token_ids(40)[0].tolist(), token_ids(40)[0, 5:30].tolist()], tmp_path)
    model = small_llama()
    for trace, n_tokens in zip(traces, (47, 32)):
        vllm_check.in_transformers(model, trace, tmp_path / "reference.h5")
        assert vllm_check.compare(trace, tmp_path / "reference.h5", dict.fromkeys("kv", (1e-6, 1e-5)) | {"lse": (1e-6, 1e-5)}).startswith(f"{n_tokens} tokens")
    with h5py.File(traces[0], "r+") as file:
        file["/layers/1/k"][0] *= 1.5
    vllm_check.in_transformers(model, traces[0], tmp_path / "reference.h5")
    with pytest.raises(AssertionError, match="layer 1, k: off by"):
        vllm_check.compare(traces[0], tmp_path / "reference.h5", vllm_check.CLOSE)
    monkeypatch.delitem(sys.modules, "vllm")
    assert vllm_check.main([]) == 2 and "nothing was checked" in capsys.readouterr().out


def test_soft_caps_are_recorded(vllm, tmp_path, kvscope):
    vllm_plugin.register()
    Engine(logits_soft_cap=0.5).run(token_ids(40), [16, 24], 2)
    vllm_plugin.finish()
    with h5py.File(tmp_path / "trace-0.h5") as trace:
        assert trace.attrs["score_cap"] == np.float32(0.5)
        q, k = array(trace, "/layers/1/q")[3], array(trace, "/layers/1/k")[1]
        scores = 0.5 * np.tanh(q @ k.T * 8**-0.5 / 0.5)
        expected = [np.log(np.exp(scores[i, : i + 1]).sum()) for i in range(42)]
        np.testing.assert_allclose(array(trace, "/layers/1/lse")[3], expected, atol=2e-5)
    kvscope("verify", tmp_path / "trace-0.h5")


def test_rows_and_layers(vllm, tmp_path, monkeypatch):
    monkeypatch.setenv("KVSCOPE_VLLM_ROWS", "10:30")
    monkeypatch.setenv("KVSCOPE_VLLM_LAYERS", "1")
    vllm_plugin.register()
    Engine().run(token_ids(40), [16, 24], 2)
    vllm_plugin.finish()
    with h5py.File(tmp_path / "trace-0.h5") as trace:
        assert list(trace["/layers"]) == ["1"] and trace["/layers/1/q"].shape == (4, 20, 8) and trace["/layers/1/lse"].shape == (4, 20)
        assert trace["/layers/1/k"].shape == (2, 42, 8)


def test_results_stay_as_they_are_and_trial_runs_are_left_out(vllm, monkeypatch):
    monkeypatch.delenv("KVSCOPE_VLLM_TRACE")
    vllm_plugin.register()
    assert vllm_plugin._recorder is None and vllm_plugin.finish() == []
    plain = Engine().run(token_ids(40), [40], 6)
    monkeypatch.setenv("KVSCOPE_VLLM_TRACE", "/nowhere/trace.h5")
    vllm_plugin.register()
    engine = Engine()
    Attention.metadata = None
    engine.layers[0](*(torch.zeros(5, n, 8) for n in (4, 2, 2)))  # a profiling run
    monkeypatch.setattr(vllm_plugin._recorder, "attend", lambda *args: None)
    assert torch.equal(plain, engine.run(token_ids(40), [40], 6))


def step(**facts):
    """What the recorder gets of a step of 5 tokens, with these facts in its metadata."""
    layer = Attention(4, 8, 8**-0.5, 2, prefix="model.layers.0.self_attn.attn")
    vllm_plugin._recorder.attend(layer, *(torch.zeros(5, n, 8) for n in (4, 2, 2)), types.SimpleNamespace(num_actual_tokens=5, **facts))


@pytest.mark.parametrize("starts, lengths, sentence", [
    ([0, 3, 5], [3, 20], "a step of 2 requests and 5 tokens: .* expected LLM"),
    ([0, 5], [13], "begins at position 8 where 0 are recorded .a cached prefix"),
    ([0, 5], [5], "did not pass through the model's embedding"),
])
def test_what_one_sequence_cannot_hold_is_refused(vllm, starts, lengths, sentence):
    vllm_plugin.register()
    with pytest.raises(RecordError, match=sentence):
        step(query_start_loc=torch.tensor(starts), seq_lens=torch.tensor(lengths))


@pytest.mark.parametrize("options, sentence", [
    ({"kv_cache_dtype": "fp8"}, "attends to keys rounded to fp8"),
    ({"per_layer_sliding_window": 16}, "a window of 16 where config.json says 0"),
])
def test_layers_that_do_not_fit_are_refused(vllm, options, sentence):
    vllm_plugin.register()
    with pytest.raises(UnsupportedModelError, match=sentence):
        Engine(**options).run(token_ids(40), [40], 0)


def test_other_interfaces_are_named(vllm, monkeypatch):
    vllm.parallel_config.world_size = 2
    vllm_plugin.register()
    with pytest.raises(UnsupportedModelError, match="2 workers: expected one"):
        Engine()
    vllm.parallel_config.world_size = 1
    with pytest.raises(UnsupportedModelError, match="does not say which tokens are whose .* FLASH_ATTN or TRITON_ATTN; this plug-in follows"):
        step(slot_mapping=torch.arange(5))
    monkeypatch.setattr(vllm_plugin, "_recorder", None)
    monkeypatch.delitem(sys.modules, "vllm.model_executor.layers.attention")
    with pytest.raises(ConfigError, match="tested with a stand-in of it, never with vLLM itself"):
        vllm_plugin.register()


def test_the_entry_point_is_installed():
    if "site-packages" not in vllm_plugin.__file__:
        pytest.skip("kvscope runs from its sources")
    points = distributions.entry_points(group="vllm.general_plugins")
    assert [point.value for point in points if point.name == "kvscope"] == ["kvscope.engine_plugin:register"]


def test_the_entry_point_registers_where_asked(vllm, monkeypatch):
    from kvscope.engine_plugin import register

    register()
    assert vllm_plugin._recorder is not None
    monkeypatch.setattr(vllm_plugin, "_recorder", None)
    monkeypatch.delenv("KVSCOPE_VLLM_TRACE")
    register()
    assert vllm_plugin._recorder is None
