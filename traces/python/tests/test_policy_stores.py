"""Caches that keep their keys otherwise under kvs.policy: quantised ones, and ones that lie elsewhere between two calls."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.masking_utils", reason="this transformers has no mask interface")
pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402
from conftest import IS_FIVE, small_llama, token_ids  # noqa: E402
from transformers import DynamicCache  # noqa: E402
from transformers import cache_utils  # noqa: E402

FROM_KEYS = ["quest:page-size=4,dense-layers=0@tokens=8", "quoka@tokens=6", "recent@tokens=8"]
EVICTING = ["keydiff@tokens=12", "h2o@tokens=12"]
IDS = token_ids(60)


@pytest.fixture(scope="module")
def model():
    return small_llama(head_dim=32, hidden_size=128)


class Rounded(getattr(cache_utils, "QuantizedLayer", object)):
    """A layer whose keys are rounded to sixteenths when they are packed: transformers' own layer, without a package."""

    def _quantize(self, tensor, axis):
        return (tensor * 16).round()

    def _dequantize(self, packed):
        return packed / 16


def quantised(model, backend):
    if backend == "rounded":
        return cache_utils.Cache(layers=[Rounded(residual_length=4) for _ in range(2)])
    if backend == "fp8" and not IS_FIVE:
        pytest.skip("transformers 4 has no fp8 cache")
    if backend != "fp8":
        pytest.importorskip({"quanto": "optimum.quanto", "hqq": "hqq"}[backend], reason=f"{backend} is not installed")
    return cache_utils.QuantizedCache(backend, model.config)


@torch.no_grad()
def step(model, cache, ids):
    return model(ids, past_key_values=cache, use_cache=True).logits


def keys_of(model, cache, ids):
    """What each layer attends to: the keys and values that the cache gives back."""
    given = {}
    update = type(cache).update

    def listen(self, key, value, layer, *args, **kwargs):
        given[layer] = update(self, key, value, layer, *args, **kwargs)
        return given[layer]

    cache.update = listen.__get__(cache)
    logits = step(model, cache, ids)
    del cache.update
    return logits, given


@pytest.mark.parametrize("backend", ["rounded", "fp8", "quanto", "hqq"])
@pytest.mark.parametrize("spec", FROM_KEYS)
def test_a_quantised_cache_is_the_keys_that_it_gives_back(model, spec, backend):
    with kvs.policy(model, spec) as policy:
        cache = quantised(model, backend)
        step(model, cache, IDS[:, :30])
        for at in range(30, 40):
            found, given = keys_of(model, cache, IDS[:, at : at + 1])
    plain = DynamicCache(config=model.config)
    for layer, (key, value) in given.items():
        plain.update(key[:, :, :-1].clone(), value[:, :, :-1].clone(), layer)
    plain.update = lambda key, value, layer, *args, **kwargs: given[layer]
    with kvs.policy(model, spec):
        assert torch.equal(step(model, plain, IDS[:, 39:40]), found)
    assert policy.kept_by_phase["decode"] < 1.0


@pytest.mark.parametrize("backend", ["rounded", "fp8"])
@pytest.mark.parametrize("spec", EVICTING)
def test_a_history_is_refused_before_anything_runs(model, spec, backend):
    cache = quantised(model, backend)
    with pytest.raises(kvs.UsageError, match=r"the cache is quantised \(\w+\), so keys change after.*expected a cache that keeps"), \
            kvs.policy(model, spec):
        step(model, cache, IDS[:, :30])
    assert cache.get_seq_length() == 0


class NoStream:
    """What a GPU's stream is to a cache, where there is none."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def wait_stream(self, other):
        return None


@pytest.mark.skipif(not IS_FIVE, reason="the offloaded cache of transformers 5")
@pytest.mark.parametrize("spec", FROM_KEYS + EVICTING)
def test_an_offloaded_cache_is_a_dynamic_one(model, spec, monkeypatch):
    """The order of copies as it is; without a GPU nothing moves, but each layer is prefetched and put away."""
    expected, found = [], []
    with kvs.policy(model, spec):
        cache = DynamicCache(config=model.config)
        for begin, end in ((0, 30), (30, 45), (45, 46), (46, 47)):
            expected.append(step(model, cache, IDS[:, begin:end]))
    monkeypatch.setattr(torch, "Stream", NoStream)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device=None: NoStream())
    away = []
    monkeypatch.setattr(cache_utils.DynamicLayer, "offload", lambda self: away.append(self))
    with kvs.policy(model, spec):
        cache = DynamicCache(config=model.config, offloading=True)
        for begin, end in ((0, 30), (30, 45), (45, 46), (46, 47)):
            found.append(step(model, cache, IDS[:, begin:end]))
    assert all(map(torch.equal, expected, found)) and len(away) == 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU takes it")
def test_without_a_gpu_transformers_refuses_offloading_itself(model):
    with kvs.policy(model, FROM_KEYS[0]), pytest.raises(Exception, match="(?i)cuda|accelerator|device"):
        model.generate(IDS[:, :8], max_new_tokens=2, do_sample=False, cache_implementation="offloaded", pad_token_id=0)
