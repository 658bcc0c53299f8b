"""What kvs.policy lets in: models whose attention it cannot judge are refused in a sentence, or the block ends with a warning."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.masking_utils", reason="this transformers has no mask interface")
pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402
import transformers  # noqa: E402
from conftest import IS_FIVE, small_llama, token_ids  # noqa: E402
from families import EXPERTS, PARTLY, REFUSED, TAKEN, small  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # noqa: E402

IDS = token_ids(40).clamp(min=3)


def build(family, settings, attention="sdpa"):
    if family not in CONFIG_MAPPING_NAMES:
        pytest.skip(f"transformers {transformers.__version__} has no {family}")
    torch.manual_seed(3)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **settings), attn_implementation=attention).eval()


@torch.no_grad()
def logits(model, ids=IDS, **options):
    return model(ids, **options)[0]


def encoders():
    from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel, T5Config, T5ForConditionalGeneration

    sizes = dict(vocab_size=64, d_model=32)
    yield BartForConditionalGeneration(BartConfig(encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
                                                  encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=128, **sizes)), "encoder-decoder"
    yield T5ForConditionalGeneration(T5Config(d_kv=8, d_ff=48, num_layers=1, num_heads=4, **sizes)), "encoder-decoder"
    yield BertModel(BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)), (
        "is not causal|asks transformers' attention interface")


def test_encoders_are_refused_at_the_door():
    for model, sentence in encoders():
        before = model.config._attn_implementation
        with pytest.raises(kvs.UsageError, match=rf"policy recent@tokens=4: .*({sentence}).*expected a "):
            with kvs.policy(model, "recent@tokens=4"):
                pytest.fail("the block was entered")
        assert model.config._attn_implementation == before


@pytest.mark.parametrize("family", ["falcon", "gpt_neo", "bloom", "mpt", "xglm", "rwkv", "mamba"])
def test_models_that_never_ask_are_refused_at_the_door(family):
    model = build(family, REFUSED[family][0], "eager")
    with pytest.raises(kvs.UsageError, match=r"policy recent@tokens=4: no layer of \w+ \(\w+\) asks transformers' attention interface.*expected"):
        with kvs.policy(model, "recent@tokens=4"):
            pytest.fail("the block was entered")


def test_layers_that_all_slide_are_a_warning():
    model = build("mistral", TAKEN["mistral"])
    with pytest.warns(UserWarning, match="policy recent: the method was never asked.*every layer slides"), kvs.policy(model, "recent@tokens=4"):
        found = logits(model)
    assert torch.equal(found, logits(model))


@pytest.mark.skipif(not IS_FIVE, reason="configurations of transformers 5")
def test_layers_of_other_kinds_are_left_as_they_are():
    """Three of four layers of Llama 4 attend in chunks: there a row's keys begin anew."""
    model = build("llama4_text", PARTLY["llama4_text"][0] | {"attention_chunk_size": 16})
    plain = logits(model)
    with kvs.policy(model, "streamingllm@tokens=8") as policy, torch.no_grad():
        model.generate(IDS, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert list(policy.kept_by_layer) == [3] and policy.n_left == 3 * policy.n_calls // 4 and policy.kept < 1
    with pytest.warns(UserWarning, match="every key was kept"), kvs.policy(model, "streamingllm@tokens=4096"):
        torch.testing.assert_close(logits(model), plain, rtol=0, atol=1e-4)


def test_layers_that_all_stay_dense_are_a_warning():
    model = small_llama()
    with pytest.warns(UserWarning, match="its leading 2 layers are dense"), kvs.policy(model, "quest@tokens=16"):
        logits(model, token_ids(40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kvs.policy(model, "quest@tokens=16"):
            pass  # the model was not run: nothing to warn of
        with kvs.policy(model, "recent@tokens=16"):
            ids = token_ids(40)
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=2, do_sample=False, pad_token_id=0)


@pytest.mark.parametrize("family", ["gpt_oss", "granite_swa", "gemma2"])
def test_full_is_the_models_own_attention_and_methods_are_refused(family):
    """Sinks and soft caps, which sdpa does not know."""
    model = build(family, TAKEN.get(family, small(**EXPERTS)), "eager")
    with torch.no_grad():
        for module in model.modules():
            if getattr(module, "sinks", None) is not None:
                module.sinks.fill_(1.0)
    plain = logits(model)
    with kvs.policy(model, "full") as policy:
        assert torch.equal(logits(model), plain) and policy.kept == 1.0
    for spec in ("recent@tokens=4", "recent@tokens=4096"):
        with pytest.raises(kvs.UsageError, match="has attention sinks|caps its scores"), kvs.policy(model, spec):
            logits(model)
    model.set_attn_implementation(kvs.policy.attn_implementation("full"))
    with pytest.raises(kvs.UsageError, match="has attention sinks|caps its scores"):
        logits(model)


@pytest.mark.skipif(not IS_FIVE, reason="transformers 4 has no Gemma 4")
@torch.no_grad()
def test_layers_that_share_keys_get_all_queries_of_a_prompt():
    """Gemma 4 leaves out those that no logit needs where, as in generate(), the last logits alone are asked for."""
    model = build("gemma4_text", TAKEN["gemma4_text"], "sdpa")
    ids = token_ids(30)
    plain = model(ids, logits_to_keep=1).logits
    with kvs.policy(model, "recent@tokens=8", phases="decode") as policy:
        torch.testing.assert_close(model(ids, logits_to_keep=1).logits, plain, rtol=0, atol=1e-5)
        assert list(policy.kept_by_phase) == ["prefill"]
        model(ids[:, :1], past_key_values=DynamicCache(config=model.config))
    with kvs.policy(model, "snapkv:window=4@tokens=4096"):
        torch.testing.assert_close(model(ids, logits_to_keep=1).logits, plain, rtol=0, atol=1e-5)
        of_embeddings = model(input_ids=None, inputs_embeds=model.get_input_embeddings()(ids), logits_to_keep=1)
    torch.testing.assert_close(of_embeddings.logits, plain, rtol=0, atol=1e-5)
    model.set_attn_implementation(kvs.policy.attn_implementation("recent@tokens=8"))
    with pytest.raises(kvs.UsageError, match="share keys and may get a prompt's last queries alone"):
        model(ids, logits_to_keep=1)


def test_layers_without_a_number_are_refused():
    model = small_llama()
    model.model.layers[1].self_attn.layer_idx = -1
    with kvs.policy(model, "recent@tokens=4"), pytest.raises(kvs.UsageError, match="does not say which layer it is .layer_idx is -1"):
        logits(model, token_ids(20))


def test_keys_that_no_mask_hides_are_refused():
    """As cross attention without a mask would call it."""
    name = kvs.policy.attn_implementation("recent@tokens=4")
    attend = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS[name]
    module = small_llama().model.layers[0].self_attn
    q, k = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 7, 8)
    with pytest.raises(kvs.UsageError, match="3 queries of LlamaAttention see 7 keys without a mask"):
        attend(module, q, k, k, None)
    with pytest.raises(kvs.UsageError, match="is not causal"):
        attend(module, q, k[:, :, :3], k[:, :, :3], None, is_causal=False)


def with_picture(kind):
    """(model, inputs) of a tiny model with a tower for pictures."""
    text = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=64,
                max_position_embeddings=256)
    torch.manual_seed(4)
    if kind == "llava":
        from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

        tower = CLIPVisionConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=4,
                                 projection_dim=32)
        config = LlavaConfig(vision_config=tower, text_config=LlamaConfig(**text), image_token_id=60)
        ids = torch.cat([IDS[:, :8].clamp(max=50), torch.full((1, 16), 60), IDS[:, 8:20].clamp(max=50)], 1)
        return LlavaForConditionalGeneration(config).eval(), dict(input_ids=ids, pixel_values=torch.randn(1, 3, 16, 16))
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    tower = dict(depth=2, embed_dim=32, hidden_size=32, num_heads=4, patch_size=4, mlp_ratio=2)
    config = Qwen2VLConfig(vision_config=tower, image_token_id=60, vision_start_token_id=61, vision_end_token_id=62, text_config=text | dict(
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}))
    ids = torch.cat([IDS[:, :8].clamp(max=50), torch.tensor([[61]]), torch.full((1, 4), 60), torch.tensor([[62]]), IDS[:, 8:20].clamp(max=50)], 1)
    return Qwen2VLForConditionalGeneration(config).eval(), dict(
        input_ids=ids, pixel_values=torch.randn(16, 3 * 2 * 4 * 4), image_grid_thw=torch.tensor([[1, 4, 4]]), mm_token_type_ids=(ids == 60).int())


@pytest.mark.skipif(not IS_FIVE, reason="configurations of transformers 5")
@pytest.mark.parametrize("kind", ["llava", "qwen2_vl"])
@torch.no_grad()
def test_of_a_model_with_pictures_the_text_part_alone(kind):
    model, inputs = with_picture(kind)
    tower = model.config.vision_config._attn_implementation
    plain = model(**inputs).logits
    with kvs.policy(model, "recent@tokens=4096") as policy:
        assert model.config.vision_config._attn_implementation == tower
        torch.testing.assert_close(model(**inputs).logits, plain, rtol=0, atol=1e-4)
    assert policy.kept == 1.0 and policy.n_asked > 0
    with kvs.policy(model, "streamingllm@tokens=6") as policy:
        assert (model(**inputs).logits - plain).abs().max() > 1e-4
    assert policy.kept < 0.9 and model.config.get_text_config()._attn_implementation == tower
    assert torch.equal(model(**inputs).logits, plain)
