"""Attention over exported arrays, in loops that follow each engine's documentation, gives the output of kvscope's own lists.

The engines need a GPU and are not run. Each format is tried with methods whose lists it holds exactly: a list per KV head for
FlashInfer's BSR, whole pages for the formats of pages, one list for all heads for those of DeepSeek's kind, samplers'
weights for sparse-attention-hub. What the lists of a place are, and which are refused, follows.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402

LAYER, POS = 2, 141
SCALE = 32**-0.5


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory):
    path = str(tmp_path_factory.mktemp("export") / "draft.h5")
    kvs.run("record", path, model="draft", max_tokens=160, decode=4, progress=False)
    return kvs.open(path)


class Tensors:
    """q [n_q, n_tok, d] of the queries; k, v [n_kv, n_keys, d] of the context, f64."""

    def __init__(self, trace, n_tok):
        part = trace[LAYER]
        self.n_tok, self.n_keys, self.group = n_tok, POS + n_tok, trace.group
        self.q = np.asarray(part.q[:, POS : POS + n_tok], "f8")
        self.k, self.v = (np.asarray(x[:, : POS + n_tok], "f8") for x in (part.k, part.v))
        assert abs(trace.score_scale - SCALE) < 1e-7

    def attend(self, head, row, keys, weights=1.0):
        """Each entry of keys counts once: one that is there twice counts twice."""
        kv_head = head // self.group
        scores = np.exp(self.k[kv_head, keys] @ self.q[head, row] * SCALE) * weights
        return scores @ self.v[kv_head, keys] / scores.sum()


def flashinfer(t, out):
    indptr, indices = out["indptr"], out["indices"]
    for head in range(len(t.q)):
        first = head // t.group * t.n_tok
        part = indptr[first : first + t.n_tok + 1] - indptr[first]  # what a wrapper of this KV head gets
        of_head = indices[indptr[first] : indptr[first + t.n_tok]]
        for row in range(t.n_tok):
            yield head, row, t.attend(head, row, of_head[part[row] : part[row + 1]])


def flashinfer_paged(t, out):
    pages_of_cache = np.arange(-(-t.n_keys // 16) * 16).reshape(-1, 16)  # page -> the positions in it
    for head in range(len(t.q)):
        request = head // t.group
        pages = out["kv_indices"][out["kv_indptr"][request] : out["kv_indptr"][request + 1]]
        length = (len(pages) - 1) * 16 + out["kv_last_page_len"][request]
        yield head, 0, t.attend(head, 0, pages_of_cache[pages].ravel()[:length])


def flashinfer_msa(t, out):
    for head in range(len(t.q)):
        for row in range(t.n_tok):
            blocks = out["q2k_indices"][head // t.group, row]
            keys = [key for block in blocks[blocks >= 0] for key in range(block * 16, block * 16 + 16) if key <= POS + row]
            yield head, row, t.attend(head, row, keys)


def one_list(name):
    def loop(t, out):
        for head in range(len(t.q)):
            for row in range(t.n_tok):
                indices = {"flashmla": "indices", "attention-gym": "kv_indices", "sglang": "indices"}[name]
                keys = out[indices][row] if name == "sglang" else out[indices][0, row]
                if name == "sglang":
                    keys = keys[: out["lengths"][row]]
                yield head, row, t.attend(head, row, keys[keys >= 0])

    return loop


def flashmla_prefill(t, out):
    indices = out["indices"][0][:, None]  # [s_q, h_kv = 1, topk]; numbers >= s_kv are invalid too
    for head in range(len(t.q)):
        for row in range(t.n_tok):
            yield head, row, t.attend(head, row, [key for key in indices[row, 0] if 0 <= key < t.n_keys])


def sparse_attention_hub(t, out):
    for row in range(t.n_tok):
        for head in range(len(t.q)):
            keys = out["sparse_list"][row, head, : out["sparse_len"][row, head]]
            yield head, row, t.attend(head, row, keys, out["weight_list"][row, head, keys])


CASES = [
    ("flashinfer", flashinfer, "quoka", "tokens=12", 5, {}),
    ("flashinfer", flashinfer, "snapkv:window=8", "tokens=24", 3, {}),
    ("flashinfer-paged", flashinfer_paged, "quest:owner=group_sum", "tokens=48", 1, {}),
    ("flashinfer-paged", flashinfer_paged, "unique:owner=group_sum,sink=16,recent=20", "tokens=32", 1, {}),
    ("flashinfer-msa", flashinfer_msa, "quest:owner=group_sum", "tokens=48", 1, {"top_k": 9}),
    ("flashinfer-msa", flashinfer_msa, "quest", "tokens=48", 5, {}),
    ("flashmla", one_list("flashmla"), "streamingllm", "tokens=20", 5, {"top_k": 64}),
    ("flashmla", flashmla_prefill, "streamingllm", "ratio=0.1", 5, {"top_k": 64}),
    ("attention-gym", one_list("attention-gym"), "streamingllm", "ratio=0.1", 5, {"top_k": 32}),
    ("sglang", one_list("sglang"), "streamingllm", "ratio=0.1", 5, {}),
    ("sparse-attention-hub", sparse_attention_hub, "oracle-topk", "tokens=12", 5, {}),
    ("sparse-attention-hub", sparse_attention_hub, "vattention:n-sink=4,n-recent=8,epsilon=0.5,delta=0.4", "tokens=24", 1, {}),
]


@pytest.mark.parametrize("format, loop, method, budget, n_tok, options", CASES, ids=lambda x: str(x) if isinstance(x, (str, int)) else "-")
def test_attending_with_the_arrays_is_attending_with_the_lists(trace, format, loop, method, budget, n_tok, options):
    lists = kvs.select(trace, method, budget, layer=LAYER, pos=POS, n_tok=n_tok)
    tensors = Tensors(trace, n_tok)
    seen = 0
    for head, row, output in loop(tensors, kvs.export(lists, format, **options)):
        expected = tensors.attend(head, row, lists.keys(head, row), np.exp(lists.weights(head, row)))
        np.testing.assert_allclose(output, expected, rtol=1e-6, atol=1e-9)
        seen += 1
    assert seen == 6 * n_tok
    everything = tensors.attend(0, n_tok - 1, np.arange(POS + n_tok))
    kept = tensors.attend(0, n_tok - 1, lists.keys(0, n_tok - 1), np.exp(lists.weights(0, n_tok - 1)))
    assert np.abs(everything - kept).max() > 1e-6  # the lists leave something out


def test_a_sampler_has_weights(trace):
    lists = kvs.select(trace, "vattention:n-sink=4,n-recent=8,epsilon=0.5,delta=0.4", "tokens=24", layer=LAYER, pos=POS)
    assert max(lists.weights(head).max() for head in range(6)) > 0.1
    with pytest.raises(kvs.UsageError, match="samples, and flashmla has no weights"):
        kvs.export(lists, "flashmla", union=True)


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
