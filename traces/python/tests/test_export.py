"""Lists of a place; that every format for engines reads back as the lists is test_export_round_trip's."""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory):
    path = str(tmp_path_factory.mktemp("export") / "draft.h5")
    kvs.run("record", path, model="draft", max_tokens=160, decode=4, progress=False)
    return kvs.open(path)


def test_lists_are_the_best_keys_of_exact_rows(trace):
    lists = kvs.select(trace, "oracle-topk", 12, layer=2, pos=150)
    row = trace[2].attention(4, 150)[:151]  # the query's own key competes
    assert set(lists.keys(4).tolist()) == set(np.argsort(-row, kind="stable")[:12].tolist())
    assert "oracle-topk" in repr(lists)


def test_methods_with_a_history_live_through_it(trace):
    assert len(kvs.select(trace, "h2o", 24, layer=1, pos=160).keys(0)) <= 25


@pytest.mark.parametrize("method", ["expected-attention", "lessismore:n-sink=1,dense-layers=0"])
def test_methods_that_need_the_model_or_layers_before(trace, method):
    """The lists are those of replay: as many keys, the same mass."""
    row = kvs.sweep(trace, method, budgets=48, phase="decode", steps=4, chunk=160, dense_layers=0, progress=False).query("layer == 3")
    lists = {pos: kvs.select(trace, method, 48, layer=3, pos=pos, chunk=160) for pos in range(160, 164)}
    kept = [(head, pos, lists[pos].keys(head)) for pos in lists for head in range(trace.n_q)]
    mass = [trace[3].attention(head, pos)[keys].sum() for head, pos, keys in kept]
    assert np.mean([len(keys) for _, _, keys in kept]) == pytest.approx(row["kept"].iloc[0])
    assert np.mean(mass) == pytest.approx(row["mass_mean"].iloc[0], abs=1e-6)


def test_wrong_places_are_named(trace):
    with pytest.raises(kvs.UsageError, match="chunk: expected at least 1, found 0"):
        kvs.select(trace, "recent", 8, layer=0, pos=10, chunk=0)
    with pytest.raises(kvs.UsageError, match="critical: needs the model's output projection, which a recording does not have"):
        kvs.select(trace, "critical", 8, layer=0, pos=10)
    with pytest.raises(kvs.UsageError, match="expected a part of the trace's 164 tokens"):
        kvs.select(trace, "recent", 8, layer=0, pos=164)
    with pytest.raises(kvs.UsageError, match="layer 7 is not recorded"):
        kvs.select(trace, "recent", 8, layer=7, pos=10)
    with pytest.raises(kvs.UsageError, match="needs"):
        kvs.select(trace, "specattn", "p=0.9", layer=0, pos=10)


@pytest.fixture(params=[("recent", 1), ("oracle-topk", 1), ("oracle-topk", 5)])
def lists(trace, request):
    method, n_tok = request.param
    return kvs.select(trace, method, 12, layer=2, pos=140, n_tok=n_tok)


def test_unknown_formats_and_narrow_arrays_are_named(lists):
    with pytest.raises(kvs.UsageError, match="format: expected flashinfer"):
        kvs.export(lists, "nothing")
    with pytest.raises(kvs.UsageError, match="top_k=2 is less than the longest list"):
        kvs.export(lists, "flashmla", top_k=2, union=True)
    if lists.n_tok > 1:
        with pytest.raises(kvs.UsageError, match="decode steps"):
            kvs.export(lists, "flashinfer-paged")
    if lists.owner != "layer" and lists.method == "oracle-topk":
        with pytest.raises(kvs.UsageError, match="one list for all heads"):
            kvs.export(lists, "flashmla")


def test_show_gives_a_picture(trace):
    program = os.environ.get("KVSCOPE_PROGRAM")
    explorer = os.environ.get("KVSCOPE_EXPLORER") or (program and program + "-explorer")
    if not explorer or not os.path.exists(explorer):
        pytest.skip("no explorer")
    os.environ["KVSCOPE_EXPLORER"] = explorer
    picture = kvs.show(trace, layer=2, row=100, picture=True, size="400x300")
    assert picture.png.startswith(b"\x89PNG")
