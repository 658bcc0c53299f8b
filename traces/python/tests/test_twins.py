"""Methods in torch give the lists of the C++ ones, key by key, on recorded q and k and where scores tie."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402
from kvscope._load import native  # noqa: E402
from kvscope.twins import TWINS, make_twin, top  # noqa: E402
from twin_cases import SPECS, cpp_masks, saved, twin_masks  # noqa: E402

BUDGETS = ["tokens=24", "tokens=64", "tokens=3", "ratio=0.2", "tokens=4096"]
#: Calls: a prompt in chunks of unequal length, then decoded tokens, several of which are verified at once.
CALLS = [64, 64, 47, 5, 1, 1, 1, 3, 1, 1, 4]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory):
    path = str(tmp_path_factory.mktemp("twins") / "draft.h5")
    kvs.run("record", path, model="draft", max_tokens=180, decode=12, progress=False)
    return kvs.open(path)


def test_top_takes_the_first_among_equals():
    assert top(torch.tensor([[1.0, 2.0, 2.0, 2.0, float("-inf")]]), 2).tolist() == [[False, True, True, False, False]]
    assert top(torch.tensor([[float("-inf"), 1.0]]), 2).tolist() == [[False, True]]


def compare(spec, budget, q, k, v, scale):
    """Every call's lists, of every query head and of every seventh row: q [n_q, n, d], k and v [n_kv, n, d]."""
    twin = twin_masks(spec, budget, torch.from_numpy(q), torch.from_numpy(k), scale, CALLS)
    for call, (expected, found) in enumerate(zip(cpp_masks(spec, budget, q, k, v, scale, CALLS, every=7), twin, strict=True)):
        differing = np.argwhere((expected != found[:, ::7]).any(-1))
        assert not len(differing), f"call {call}: (head, row) {differing[:4].tolist()} of {len(differing)}"


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("spec", SPECS)
def test_twins_give_the_lists_of_cpp(trace, spec, budget):
    layer = trace[3]
    compare(spec, budget, layer.q[:], layer.k[:], layer.v[:], trace.score_scale)


@pytest.mark.parametrize("n_q, n_kv", [(4, 4), (8, 2), (3, 1)])
@pytest.mark.parametrize("spec", SPECS)
def test_equal_scores_go_to_the_lowest_position(spec, n_q, n_kv):
    """Few different keys, so that most scores tie; small whole numbers, so that every sum is exact in any order."""
    random = np.random.default_rng(5)
    several = random.integers(-2, 3, (n_kv, 6, 8)).astype("f4")
    if spec.startswith("sparq"):  # divides queries by a root: sums of one term alone are then exact
        several *= np.arange(8) == random.integers(0, 8, (n_kv, 6, 1))
    k = several[:, random.integers(0, 6, 192)]
    q = random.integers(-2, 3, (n_q, 192, 8)).astype("f4")
    for budget in ("tokens=24", "ratio=0.3"):
        compare(spec, budget, q, k, k, 0.25)


def test_saved_lists_are_those_of_cpp():
    """The file that a machine without the native module (a GPU's) compares with is not out of date."""
    q, k, scale, caps, masks = saved()
    assert {spec for spec, _ in masks} == set(SPECS) and caps == {spec: native.caps(spec) for spec in ["full", *SPECS]}
    for (spec, budget), expected in masks.items():
        found = list(cpp_masks(spec, budget, q, k, k, scale, [mask.shape[1] for mask in expected]))
        assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True)), f"{spec} {budget}: write it anew (twin_cases.py)"


def test_every_method_has_its_twin():
    assert {spec.partition(":")[0] for spec in SPECS} == set(TWINS)
    assert {"quoka", "quest", "streamingllm", "snapkv", "keydiff", "tova", "sparq", "oracle-topk", "unique"} <= set(TWINS)


def test_unknown_options_are_named():
    assert make_twin("magicpig") is None
    with pytest.raises(ValueError, match="has no option owner"):
        make_twin("quest:owner=group_sum")
    with pytest.raises(ValueError, match="expected sparq:mean-value=false"):
        make_twin("sparq")
    with pytest.raises(ValueError, match="expected true or false"):
        make_twin("sparq:mean-value=no")
    with pytest.raises(ValueError, match="an odd kernel"):
        make_twin("snapkv:kernel=4")
