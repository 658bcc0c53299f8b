"""What a row may see: causal, within the configured window, and nothing else, whatever says so."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch
from conftest import IS_FIVE, left_over, probabilities, small_llama, token_ids
from transformers import MistralConfig, MistralForCausalLM

from kvscope_recorder import UnsupportedModelError, record

flex_attention = pytest.importorskip("torch.nn.attention.flex_attention", reason="this PyTorch has no flex_attention")

# PyTorch has much to say about flex attention that is not compiled.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:flex_attention called without")


@pytest.fixture
def flex(monkeypatch):
    """Flex attention as it is without a compiler, which would take a minute; the same function, interpreted."""
    from transformers.integrations import flex_attention as integration

    def interpreted(query, key, value, training=False, **kwargs):
        return flex_attention.flex_attention(query, key, value, **kwargs)

    monkeypatch.setattr(integration, "compile_friendly_flex_attention", interpreted)


def with_flex(model: torch.nn.Module) -> torch.nn.Module:
    model.set_attn_implementation("flex_attention")
    return model


def small_mistral() -> torch.nn.Module:
    torch.manual_seed(2)
    return MistralForCausalLM(MistralConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        vocab_size=64, sliding_window=6, initializer_range=0.3, max_position_embeddings=128)).eval()


@torch.no_grad()
@pytest.mark.slow
def test_flex_attention_is_recorded(tmp_path, kvscope, flex):
    model, ids = small_llama(), token_ids(30)
    with record(model, tmp_path / "sdpa.h5"):
        expected = model.generate(ids, max_new_tokens=2, min_new_tokens=2, do_sample=False)
    with_flex(model)
    with record(model, tmp_path / "flex.h5", capture="attn"):
        found = model.generate(ids, max_new_tokens=2, min_new_tokens=2, do_sample=False)
    kvscope("verify", tmp_path / "flex.h5")
    assert torch.equal(found, expected)
    with h5py.File(tmp_path / "sdpa.h5") as sdpa, h5py.File(tmp_path / "flex.h5") as trace:
        for layer in (0, 1):
            for name in ("q", "k", "v", "lse"):
                at = f"/layers/{layer}/{name}"
                np.testing.assert_allclose(trace[at], sdpa[at], atol=2e-5)
            np.testing.assert_allclose(trace[f"/layers/{layer}/attn"], probabilities(trace, layer), atol=2e-5)


@torch.no_grad()
@pytest.mark.slow
def test_flex_attention_with_a_window(tmp_path, kvscope, flex):
    model = with_flex(small_mistral())
    with record(model, tmp_path / "trace.h5", capture="attn"):
        model(token_ids(25))
    kvscope("verify", tmp_path / "trace.h5")
    with h5py.File(tmp_path / "trace.h5") as trace:
        np.testing.assert_allclose(trace["/layers/1/attn"], probabilities(trace, 1, window=6), atol=2e-5)


@torch.no_grad()
def test_a_block_mask_that_is_not_causal_is_refused(tmp_path, flex):
    model, ids = with_flex(small_llama()), token_ids(30)

    def prefix(batch, head, row, key):  # the first ten tokens see each other
        return (key <= row) | (key < 10)

    mask = flex_attention.create_block_mask(prefix, 1, None, 30, 30, device="cpu")
    module = model.model.layers[0].self_attn
    with pytest.raises(UnsupportedModelError, match=r"layer 0 is not causal .* shows key 1 for row 0"):
        with record(model, tmp_path / "trace.h5"):
            forward = module.forward
            module.forward = lambda *args, **kwargs: forward(*args, **(kwargs | {"attention_mask": mask}))
            model(ids)
    assert left_over(tmp_path) == []


SIZES = dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2)


def made(kind):
    """The mask [1, 1, 30, 30] that transformers makes of a kind, and what is wrong with it where a token has to see all before it."""
    from transformers import LlamaConfig, masking_utils as make

    positions, every_third = torch.arange(30)[None], torch.arange(30) % 3 > 0
    config = LlamaConfig(sliding_window=8, attention_chunk_size=8, **SIZES)
    config._attn_implementation = "sdpa"
    whole = dict(config=config, inputs_embeds=torch.zeros(1, 30, 32), attention_mask=None, cache=None, position_ids=positions)
    two_ways = {name: value for name, value in whole.items() if name != "position_ids"}
    seen = torch.ones(1, 30, dtype=torch.long)
    return {
        "causal": lambda: (make.create_causal_mask(**whole, allow_is_causal_skip=False), None),
        "padding in front": lambda: (make.create_causal_mask(**whole | {"attention_mask": seen.index_fill(1, torch.arange(7), 0)}), None),
        "packed": lambda: (make.create_causal_mask(**whole | {"position_ids": PACKED}), "shows padding for row -12 .positions count from key 12"),
        "or": lambda: (make.create_causal_mask(**whole, or_mask_function=lambda b, h, q, k: k < 10), "shows key 1 for row 0"),
        "and": lambda: (make.create_causal_mask(**whole, and_mask_function=lambda b, h, q, k: every_third[k]), "hides key"),
        "blocks": lambda: (make.create_causal_mask(**whole, block_sequence_ids=positions // 10), "shows key 1 for row 0"),
        "sliding": lambda: (make.create_sliding_window_causal_mask(**whole), "count from key 22"),
        "chunked": lambda: (make.create_chunked_causal_mask(**whole), "count from key 24"),
        "bidirectional": lambda: (make.create_bidirectional_mask(**two_ways, allow_is_bidirectional_skip=False), "shows key 1 for row 0"),
        "bidirectional, sliding": lambda: (make.create_bidirectional_sliding_window_mask(**two_ways), "count from key 21"),
        "padding behind": lambda: (torch.ones(30, 30, dtype=torch.bool).tril().index_fill(0, torch.tensor([29]), False)[None, None], "shows"),
        "one head": lambda: (torch.stack([torch.ones(30, 30).tril(), torch.ones(30, 30)]).repeat(2, 1, 1).bool()[None], "shows key 1 for row 0"),
    }[kind]()


@pytest.mark.skipif(not IS_FIVE, reason="mask functions of transformers 5")
@pytest.mark.parametrize("kind", ["causal", "padding in front", "packed", "or", "and", "blocks", "sliding", "chunked", "bidirectional",
                                  "bidirectional, sliding", "padding behind", "one head"])
@torch.no_grad()
def test_every_kind_of_mask_that_transformers_makes(tmp_path, kind):
    """Recorder and policies take the same ones."""
    kvs = pytest.importorskip("kvscope")
    model, ids, (mask, wrong) = small_llama(), token_ids(30), made(kind)
    plain = model(ids, attention_mask=mask, use_cache=False).logits[:, 7:]
    blocks = ((lambda: kvs.policy(model, "recent@tokens=4096"), f"is not causal.*{wrong}.*one sequence per row"), (lambda: record(model, tmp_path / "t.h5"), "a trace holds"))
    for open_block, sentence in blocks[: 1 if kind == "padding behind" else 2]:  # which a trace is not part of
        if wrong is None:
            with open_block():
                torch.testing.assert_close(model(ids, attention_mask=mask, use_cache=False).logits[:, 7:], plain, rtol=0, atol=1e-5)
        else:
            with pytest.raises(kvs.Error, match=sentence), open_block():
                model(ids, attention_mask=mask, use_cache=False)


PACKED = torch.tensor([[*range(12), *range(18)]])


@pytest.mark.parametrize("implementation", ["flex_attention", "sdpa", "eager"])
@torch.no_grad()
def test_packed_sequences_are_refused(tmp_path, flex, implementation):
    model = small_llama()
    model.set_attn_implementation(implementation)
    sentence = r"position_ids go from 11 to 0 at token 12.*several sequences packed into one.*\{row\}"
    with pytest.raises(UnsupportedModelError, match=sentence):
        with record(model, tmp_path / "trace.h5"):
            model(token_ids(30), position_ids=PACKED, use_cache=False)
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("how", ["positions", "lengths"])
@torch.no_grad()
def test_packing_that_only_flash_attention_sees_is_refused(tmp_path, how):
    """Flash attention gets no mask: it finds sequences in position_ids (a gap is enough) or in cu_seq_lens."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register("flash_attention_stand_in", sdpa_attention_forward)
    model = small_llama()
    model.config._attn_implementation = "flash_attention_stand_in"
    positions = torch.tensor([[*range(12), *range(20, 38)]])
    lengths = torch.tensor([0, 12, 30], dtype=torch.int32)
    call = {"positions": {"position_ids": positions},
            "lengths": {"cu_seq_lens_q": lengths, "cu_seq_lens_k": lengths}}[how]
    sentence = {"positions": r"position_ids go from 11 to 20 at token 12", "lengths": "cu_seq_lens_q .* 2 sequences"}[how]
    mask = model.model.layers[0].self_attn
    with pytest.raises(UnsupportedModelError, match=sentence):
        with record(model, tmp_path / "trace.h5"):
            for layer in model.model.layers:
                _without_mask(layer.self_attn)
            model(token_ids(30), use_cache=False, **call)
    assert mask is not None and left_over(tmp_path) == []


def _without_mask(module: torch.nn.Module) -> None:
    forward = module.forward
    module.forward = lambda *args, **kwargs: forward(*args, **(kwargs | {"attention_mask": None}))
