"""The families of transformers on tiny random configurations: what is recorded is what the model itself attended with."""

from __future__ import annotations

import re
import warnings

import h5py
import numpy as np
import pytest
import torch
import transformers
from conftest import IS_FIVE, ROOT, left_over, small_llama, token_ids
from families import NEWCOMERS, PARTLY, REFUSED, TAKEN, small
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from kvscope_recorder import ConfigError, RecordWarning, UnsupportedModelError, record
from kvscope_recorder.advice import NATIVE_FAMILIES, outside_of_interface

pytestmark = pytest.mark.slow

N_PROMPT, N_TOKENS = 20, 23


def build(family: str, settings: dict) -> torch.nn.Module:
    """The model with random weights and eager attention, which yields its probabilities."""
    if family not in CONFIG_MAPPING_NAMES:
        pytest.skip(f"transformers {transformers.__version__} has no {family}")
    torch.manual_seed(3)
    config = AutoConfig.for_model(family, **settings)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    try:
        outside = outside_of_interface(model) if (not IS_FIVE or family in NEWCOMERS) and family not in REFUSED else ""
        if outside:
            from kvscope_recorder.interface import attention_modules

            attention_modules(model)
    except UnsupportedModelError as error:
        pytest.skip(str(error))
    return model


def generate(model: torch.nn.Module) -> torch.Tensor:
    ids = torch.randint(3, 64, (1, N_PROMPT), generator=torch.Generator().manual_seed(5))
    return model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False, use_cache=True, pad_token_id=0)


def probabilities_of(trace: h5py.File, layer: int) -> np.ndarray:
    """exp(score - lse) from the file's q, k and lse [query heads, T, T]; what a row does not see is 0."""
    q, k, lse = (trace[f"/layers/{layer}/{name}"][...].astype("f8") for name in ("q", "k", "lse"))
    scale, cap = trace.attrs["score_scale"], trace.attrs.get("score_cap", 0.0)
    if "/model/layer_scores" in trace:
        scale, cap = trace["/model/layer_scores"][layer]
    score = scale * q @ np.repeat(k, q.shape[0] // k.shape[0], axis=0).swapaxes(1, 2)
    score = cap * np.tanh(score / cap) if cap else score
    window = int(trace["/model/windows"][layer]) if "/model/windows" in trace else 0
    row, key = np.indices(score.shape[1:])
    visible = (key <= row) & ((key > row - window) | (window == 0))
    return np.where(visible, np.exp(score - lse[:, :, None]), 0.0)


def check(model: torch.nn.Module, path, kvscope, layers: list[int]) -> None:
    """Recording leaves the output as it is; the trace is sound and its attention that of the model."""
    plain = generate(model)
    with record(model, path) as recorder:
        found = generate(model)
    assert torch.equal(plain, found)
    kvscope("verify", path)
    assert list(recorder.info.layers) == layers and recorder.info.n_tokens == N_TOKENS
    attentions = model(found[:, :N_TOKENS], output_attentions=True, use_cache=False).attentions
    attentions = [one for one in attentions if one is not None]
    if len(attentions) < len(layers):
        return  # this class does not collect them
    with h5py.File(path) as trace:
        for layer in layers:
            own = attentions[layer] if len(attentions) == recorder.info.n_layers else attentions[layers.index(layer)]
            np.testing.assert_allclose(probabilities_of(trace, layer), own[0].float(), atol=3e-5, err_msg=f"layer {layer}")


@pytest.mark.parametrize("family", TAKEN)
@torch.no_grad()
def test_taken(family, tmp_path, kvscope):
    model = build(family, TAKEN[family])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if family.startswith(("deepseek", "mimo")) else "error", RecordWarning)
        check(model, tmp_path / "trace.h5", kvscope, list(range(model.config.num_hidden_layers)))


@pytest.mark.parametrize("family", PARTLY)
@torch.no_grad()
def test_partly_taken(family, tmp_path, kvscope):
    settings, left_out = PARTLY[family]
    model = build(family, settings)
    layers = [layer for layer in range(model.config.num_hidden_layers) if layer not in left_out]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RecordWarning)
        check(model, tmp_path / "trace.h5", kvscope, layers)
    said = [str(warning.message) for warning in caught if warning.category is RecordWarning]
    if "chunked_attention" in left_out.values():
        assert len(said) == 1 and re.search(r"layers 0 to 2 \(chunked_attention\)", said[0])
    else:
        assert not said  # a layer without softmax has nothing that could be recorded
    assert record(model, tmp_path / "other.h5").left_out == left_out
    with pytest.raises(ConfigError, match=f"layer {min(left_out)} cannot be recorded: it is '{left_out[min(left_out)]}'"):
        record(model, tmp_path / "other.h5", layers=[min(left_out)])


@pytest.mark.parametrize("family", REFUSED)
@torch.no_grad()
def test_refused(family, tmp_path):
    settings, sentence = REFUSED[family]
    model = build(family, settings)
    with pytest.raises(UnsupportedModelError, match=sentence) as error:
        with record(model, tmp_path / "trace.h5"):
            generate(model)
    assert "use a model class of transformers itself" not in str(error.value)
    assert left_over(tmp_path) == []


@torch.no_grad()
def test_a_tower_for_pictures_has_layers_of_its_own(tmp_path, kvscope):
    """Gemma 4 as people load it: the tower's layers have the numbers of the text's, and other heads."""
    if "gemma4" not in CONFIG_MAPPING_NAMES:
        pytest.skip(f"transformers {transformers.__version__} has no gemma4")
    torch.manual_seed(3)
    vision = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16)
    config = AutoConfig.for_model("gemma4", text_config=TAKEN["gemma4_text"] | {"model_type": "gemma4_text", "pad_token_id": 0},
                                  vision_config=vision | {"model_type": "gemma4_vision"}, audio_config=None)
    model = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    with record(model, tmp_path / "trace.h5") as recorder:
        model.generate(token_ids(20).clamp(3), max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0)
    kvscope("verify", tmp_path / "trace.h5")
    assert {shape[:2] for shape in recorder.info.layer_shapes} == {(2, 8), (2, 16)}


@torch.no_grad()
def test_gemma2_with_and_without_its_soft_cap(tmp_path, kvscope):
    for cap in (None, 0.5):
        path = tmp_path / f"{cap}.h5"
        check(build("gemma2", small(head_dim=8, attn_logit_softcapping=cap, sliding_window=7)), path, kvscope, [0, 1])
        with h5py.File(path) as trace:
            assert trace.attrs.get("score_cap", None) == cap and (b"score-cap" in trace.attrs["features"]) == (cap is not None)


@torch.no_grad()
def test_values_narrower_than_keys_are_filled_up_with_zeros(tmp_path, kvscope):
    settings = TAKEN["deepseek_v3"]
    model = build("deepseek_v3", settings)
    seen = {}
    kv_b = model.model.layers[0].self_attn.kv_b_proj
    kv_b.register_forward_hook(lambda module, args, out: seen.update(v=out))
    with pytest.warns(RecordWarning, match="values are 16 wide, keys 24: the trace holds them with 8 zeros behind each"):
        with record(model, tmp_path / "trace.h5"):
            model(token_ids(20))
    kvscope("verify", tmp_path / "trace.h5")
    with h5py.File(tmp_path / "trace.h5") as trace:
        v = trace["/layers/0/v"][...]
        assert v.shape == (4, 20, 24) and not v[:, :, 16:].any()
        np.testing.assert_allclose(v[:, :, :16], seen["v"][0].view(20, 4, 32)[:, :, 16:].transpose(0, 1), atol=1e-6)


@torch.no_grad()
def test_a_model_without_rope_says_so_of_every_layer(tmp_path):
    model = build("jamba", PARTLY["jamba"][0])
    with record(model, tmp_path / "trace.h5") as recorder:
        model(token_ids(5))
    assert recorder.info.rope_kind == "none" and {kind[0] for kind in recorder.info.layer_kinds} == {0}


@pytest.mark.parametrize("use_cache", [True, False])
@torch.no_grad()
def test_sixteen_bits_without_a_cache_warn(tmp_path, use_cache):
    """The keys of a trace come from the pass that first saw them, the log-sum-exp of a row from its own pass."""
    model = small_llama().to(torch.bfloat16)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RecordWarning)
        with record(model, tmp_path / "trace.h5"):
            model.generate(token_ids(20), max_new_tokens=5, min_new_tokens=5, do_sample=False, use_cache=use_cache)
    said = [str(warning.message) for warning in caught if warning.category is RecordWarning]
    assert len(said) == (0 if use_cache else 1)
    assert use_cache or "use_cache=True" in said[0]


def test_models_from_elsewhere_get_advice_that_fits():
    class Own(torch.nn.Module):
        config = AutoConfig.for_model("llama", **small())

    sentence = outside_of_interface(Own())
    assert "without trust_remote_code" in sentence and "kvscope record --model FOLDER" in sentence
    Own.config = AutoConfig.for_model("llama", **small())
    Own.config.model_type = "my_own"
    sentence = outside_of_interface(Own())
    assert "let its attention call ALL_ATTENTION_FUNCTIONS" in sentence and "kvscope record" not in sentence


def test_the_families_of_the_native_recorder():
    source = (ROOT / "core" / "model" / "config_family.cpp").read_text()
    assert set(re.findall(r"(?:t\{|family = )ModelFamily::(\w+)", source)) == set(NATIVE_FAMILIES)
