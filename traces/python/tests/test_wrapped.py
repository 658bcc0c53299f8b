"""Recording inside TransformerLens and nnsight: the same trace as of the plain model. Skipped where they are not installed."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from conftest import array, small_llama, token_ids  # noqa: E402

from kvscope_recorder import UnsupportedModelError, record  # noqa: E402

IDS = token_ids(40)


def recorded(path, model, run):
    with record(model, path), torch.no_grad():
        run()
    return path


@pytest.fixture
def plain(tmp_path):
    model = small_llama()
    return recorded(tmp_path / "plain.h5", model, lambda: model(IDS))


def same(first, second, tolerance):
    with h5py.File(first) as a, h5py.File(second) as b:
        for layer in a["/recorded/layers"]:
            for name in ("q", "k", "v", "lse"):
                at = f"/layers/{layer}/{name}"
                np.testing.assert_allclose(array(b, at), array(a, at), atol=tolerance, rtol=0, err_msg=at)
        assert a["/tokens"][...].tolist() == b["/tokens"][...].tolist()


def keeps_the_same(first, second):
    kvs = pytest.importorskip("kvscope")
    pytest.importorskip("kvscope._native", reason="the native module was not built")
    for method in ("quest:page-size=4", "quoka", "keydiff"):
        ours, theirs = (kvs.select(kvs.Trace(path), method, 8, layer=1, pos=39) for path in (first, second))
        assert [ours.keys(head, 0).tolist() for head in range(4)] == [theirs.keys(head, 0).tolist() for head in range(4)], method


# ---- nnsight -----------------------------------------------------------------------------------------


@pytest.fixture
def envoy():
    nnsight = pytest.importorskip("nnsight", reason="nnsight is not installed")
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({str(i): i for i in range(64)}, "0")), pad_token="0")
    return nnsight.LanguageModel(small_llama(), tokenizer=words)


def test_nnsight_is_recorded_bit_by_bit(plain, envoy, tmp_path):
    def trace():
        with envoy.trace(IDS):
            envoy.model.layers[0].output.save()

    with h5py.File(plain) as a, h5py.File(recorded(tmp_path / "nnsight.h5", envoy, trace)) as b:
        assert a.attrs["content_hash"] == b.attrs["content_hash"]
    keeps_the_same(plain, tmp_path / "nnsight.h5")


def test_a_policy_acts_inside_nnsight(envoy):
    kvs = pytest.importorskip("kvscope")
    pytest.importorskip("kvscope._native", reason="the native module was not built")
    model = small_llama()
    with kvs.policy(model, "streamingllm@tokens=8"), torch.no_grad():
        expected = model(IDS).logits
    with kvs.policy(envoy, "streamingllm@tokens=8") as policy, torch.no_grad():
        with envoy.trace(IDS):
            found = envoy.output.logits.save()
    assert torch.equal(found, expected) and policy.kept < 0.6


# ---- TransformerLens ---------------------------------------------------------------------------------


@pytest.fixture
def bridge():
    pytest.importorskip("transformer_lens.model_bridge", reason="TransformerLens 3 or newer is not installed")
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    model = small_llama()
    return build_bridge_from_module(model, "LlamaForCausalLM", hf_config=model.config)


def test_transformer_lens_is_recorded(plain, bridge, tmp_path):
    path = recorded(tmp_path / "lens.h5", bridge, lambda: bridge(IDS))
    same(plain, path, 1e-5)  # its attention sums in another order
    keeps_the_same(plain, path)
    cache = {}
    again = recorded(tmp_path / "again.h5", bridge, lambda: cache.update(bridge.run_with_cache(IDS)[1]))
    with h5py.File(again) as file:  # what its hooks see is what is recorded
        for layer in (0, 1):
            for name, hook in (("q", "hook_rot_q"), ("k", "hook_rot_k"), ("v", "hook_v")):
                seen = cache[f"blocks.{layer}.attn.{hook}"][0].numpy()
                heads = array(file, f"/layers/{layer}/{name}")
                np.testing.assert_array_equal(heads, seen.reshape(40, heads.shape[0], 8).transpose(1, 0, 2))
    assert not [name for block in bridge.blocks for name in ("forward", "_update_kv_cache") if name in block.attn.__dict__]


def test_hooks_of_transformer_lens_are_in_the_recording(bridge, tmp_path):
    def without_a_head(q, hook):
        q[:, :, 2] = 0.0
        return q

    def run():
        bridge.run_with_hooks(IDS, fwd_hooks=[("blocks.1.attn.hook_rot_q", without_a_head)])

    with h5py.File(recorded(tmp_path / "cut.h5", bridge, run)) as file:
        assert not array(file, "/layers/1/q")[2].any() and array(file, "/layers/1/q")[1].any() and array(file, "/layers/0/q")[2].any()


def test_generation_in_transformer_lens(bridge, tmp_path):
    text = recorded(tmp_path / "long.h5", bridge, lambda: bridge.generate(
        IDS, max_new_tokens=4, do_sample=False, stop_at_eos=False, use_past_kv_cache=False, verbose=False))
    with h5py.File(text) as file:
        assert file.attrs["n_tokens"] == 43


def test_what_transformer_lens_computes_itself_is_refused(bridge, tmp_path, monkeypatch):
    kvs = pytest.importorskip("kvscope")
    pytest.importorskip("kvscope._native", reason="the native module was not built")
    with pytest.raises(kvs.UsageError, match="TransformerLens computes the attention.*expected the model of transformers"), \
            kvs.policy(bridge, "recent@tokens=8"):
        pass
    attention = type(bridge.blocks[0].attn)
    apply = attention._apply_reconstruct_attention_mask
    monkeypatch.setattr(attention, "_apply_reconstruct_attention_mask",
                        lambda self, attn_scores, *rest, **more: apply(self, attn_scores, *rest, **more))
    product = torch.matmul
    monkeypatch.setattr(torch, "matmul", lambda a, b: product(a, b) * 1.5)  # a position bias would do the same
    with pytest.raises(UnsupportedModelError, match=r"layer 0: the scores of TransformerLens's .* are not scale \* \(q \. k\)"):
        recorded(tmp_path / "bias.h5", bridge, lambda: bridge(IDS))
