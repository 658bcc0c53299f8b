"""A batch becomes one trace per row: the same numbers as each prompt alone, whatever padding stands around it."""

from __future__ import annotations

import warnings

import h5py
import numpy as np
import pytest
import torch
from conftest import left_over, probabilities, small_llama, token_ids
from transformers import DynamicCache

from kvscope_recorder import ConfigError, RecordError, RecordWarning, UnsupportedModelError, record

LENGTHS = (20, 13, 17)


def padded(side: str, lengths=LENGTHS) -> tuple[torch.Tensor, torch.Tensor]:
    """ids and attention_mask of prompts of these lengths; row 1's prompt is the first 13 tokens of it, and so on."""
    longest = max(lengths)
    ids = torch.zeros((len(lengths), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, n in enumerate(lengths):
        where = slice(longest - n, longest) if side == "left" else slice(0, n)
        ids[row, where] = prompt(row, n)
        mask[row, where] = 1
    return ids, mask


def prompt(row: int, n: int) -> torch.Tensor:
    return torch.randint(4, 64, (n,), generator=torch.Generator().manual_seed(row + 11))


def without_end(model: torch.nn.Module) -> torch.nn.Module:
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def assert_equal(found, expected, tolerance: float = 2e-5) -> None:
    with h5py.File(found) as one, h5py.File(expected) as two:
        np.testing.assert_array_equal(one["/tokens"], two["/tokens"])
        np.testing.assert_array_equal(one["/units"], two["/units"])
        assert (one.attrs["n_prompt"], one.attrs["status"]) == (two.attrs["n_prompt"], two.attrs["status"])
        for layer in two["/layers"]:
            for name in two[f"/layers/{layer}"]:
                at = f"/layers/{layer}/{name}"
                if isinstance(two[at], h5py.Dataset):
                    np.testing.assert_allclose(one[at], two[at], atol=tolerance, err_msg=f"{found.name} {at}")
        np.testing.assert_allclose(one["/logits"], two["/logits"], atol=5e-5)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("cache", ["dynamic", "static", None])
@torch.no_grad()
def test_each_row_is_what_its_prompt_gives_alone(tmp_path, kvscope, implementation, cache):
    model = without_end(small_llama())
    model.set_attn_implementation(implementation)
    options = {"use_cache": True, "cache_implementation": cache} if cache else {"use_cache": False}
    if cache == "static":
        options["disable_compile"] = True
    ids, mask = padded("left")
    with record(model, tmp_path / "row{row}.h5", capture="attn,logits") as recorder:
        out = model.generate(ids, attention_mask=mask, max_new_tokens=6, min_new_tokens=6, do_sample=False, **options)
    assert [info.n_tokens for info in recorder.infos] == [n + 5 for n in LENGTHS] and recorder.n_tokens == 25
    for row, n in enumerate(LENGTHS):
        with record(model, tmp_path / f"alone{row}.h5", capture="attn,logits"):
            alone = model.generate(prompt(row, n)[None], max_new_tokens=6, min_new_tokens=6, do_sample=False,
                                   use_cache=cache is not None)
        assert torch.equal(alone[0, n:], out[row, 20:])
        assert_equal(tmp_path / f"row{row}.h5", tmp_path / f"alone{row}.h5")
    kvscope("verify", tmp_path / "row1.h5")


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_prefill_with_padding_on_either_side(tmp_path, kvscope, side):
    model = small_llama()
    ids, mask = padded(side)
    with record(model, tmp_path / "row{row}.h5", capture="logits"):
        model(ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp_min(0))
    for row, n in enumerate(LENGTHS):
        with record(model, tmp_path / f"alone{row}.h5", capture="logits"):
            model(prompt(row, n)[None])
        assert_equal(tmp_path / f"row{row}.h5", tmp_path / f"alone{row}.h5")
        kvscope("verify", tmp_path / f"row{row}.h5")


@torch.no_grad()
def test_chunks_of_nothing_but_padding(tmp_path, kvscope):
    """A short prompt begins in the second chunk; its trace has no empty call."""
    model = small_llama()
    ids, mask = padded("left", (20, 9))
    cache = DynamicCache(config=model.config)
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    with record(model, tmp_path / "row{row}.h5"):
        for first in range(0, 20, 8):
            last = min(first + 8, 20)
            model(ids[:, first:last], attention_mask=mask[:, :last], position_ids=positions[:, first:last], past_key_values=cache)
    with h5py.File(tmp_path / "row1.h5") as trace:
        assert trace["/units"][...].tolist() == [[0, 5, 0], [5, 9, 0]]
        np.testing.assert_array_equal(trace["/tokens"], prompt(1, 9))
    kvscope("verify", tmp_path / "row1.h5")


@torch.no_grad()
def test_sliding_windows_in_a_batch(tmp_path):
    from test_masks import small_mistral

    model = without_end(small_mistral())
    ids, mask = padded("left")
    with record(model, tmp_path / "row{row}.h5", capture="attn"):
        model.generate(ids, attention_mask=mask, max_new_tokens=9, min_new_tokens=9, do_sample=False)
    for row in range(3):
        with h5py.File(tmp_path / f"row{row}.h5") as trace:
            np.testing.assert_allclose(trace["/layers/1/attn"], probabilities(trace, 1, window=6), atol=2e-5)


@torch.no_grad()
def test_one_padded_prompt(tmp_path):
    model = small_llama()
    mask = torch.tensor([[0, 1, 1, 1]])
    with pytest.warns(RecordWarning, match="row 0 has 1 tokens of padding.*counts from 0"), record(model, tmp_path / "trace.h5") as recorder:
        model(token_ids(4), attention_mask=mask)
    assert recorder.info.n_tokens == 3
    with warnings.catch_warnings(), record(model, tmp_path / "right.h5"):
        warnings.simplefilter("error", RecordWarning)
        model(token_ids(4), attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(0))


@torch.no_grad()
def test_a_row_ends_with_its_end_token(tmp_path):
    """generate() goes on feeding padding to a row that is done: that is not part of its sequence."""
    model = without_end(small_llama())
    ids, mask = padded("left")
    free = model.generate(ids, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, do_sample=False)
    model.generation_config.eos_token_id = int(free[1, 22])
    with record(model, tmp_path / "row{row}.h5"):
        out = model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False)
    for row, n in enumerate(LENGTHS):
        with h5py.File(tmp_path / f"row{row}.h5") as trace:
            made = out[row, 20:].tolist()
            end = made.index(model.generation_config.eos_token_id) + 1 if model.generation_config.eos_token_id in made else None
            assert row != 1 or end is not None
            tokens = trace["/tokens"][n:].tolist()
            assert tokens == (made[:end] if end and end < len(made) else made[:-1])


@torch.no_grad()
def test_beams_are_refused_as_soon_as_they_change_places(tmp_path):
    model = without_end(small_llama())
    with pytest.raises(UnsupportedModelError, match=r"cache gives other keys for token \d+ .*beam search"):
        with record(model, tmp_path / "row{row}.h5"):
            model.generate(token_ids(8), num_beams=3, max_new_tokens=12, min_new_tokens=12, do_sample=False)
    assert not list(tmp_path.glob("*.h5"))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda model: model(token_ids(6), attention_mask=torch.tensor([[1, 1, 0, 1, 1, 1]])), "hides token 2 of row 0 between"),
        (lambda model: model(token_ids(6), attention_mask=torch.ones(1, 4)), r"expected 1 rows of 6 tokens"),
        (lambda model: _decode_after_right_padding(model), "row 1 goes on after padding.*padding_side = 'left'"),
        (lambda model: [model(torch.zeros((n, 4), dtype=torch.long)) for n in (2, 3)], "after a batch of 2"),
    ],
)
@torch.no_grad()
def test_paddings_that_a_trace_cannot_hold(tmp_path, call, sentence):
    model = small_llama()
    with pytest.raises(RecordError, match=sentence):
        with record(model, tmp_path / "row{row}.h5"):
            call(model)
    assert not list(tmp_path.glob("*.h5"))


def _decode_after_right_padding(model: torch.nn.Module) -> None:
    ids, mask = padded("right")
    out = model(ids, attention_mask=mask)
    mask = torch.nn.functional.pad(mask, (0, 1), value=1)
    model(ids[:, -1:], attention_mask=mask, past_key_values=out.past_key_values)


def test_a_row_whose_file_exists_is_refused_before_the_first_token(tmp_path):
    model = small_llama()
    (tmp_path / "row1.h5").write_text("x")
    with pytest.raises(ConfigError, match="row1.h5 exists"):
        with record(model, tmp_path / "row{row}.h5"):
            model(torch.zeros((2, 4), dtype=torch.long))
    assert left_over(tmp_path) == ["row1.h5"]
