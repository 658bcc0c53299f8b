"""Methods in torch give the lists of the C++ ones, key by key, on recorded q and k."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402
from kvscope._load import native  # noqa: E402
from kvscope.twins import TWINS, make_twin, top  # noqa: E402


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory):
    path = str(tmp_path_factory.mktemp("twins") / "draft.h5")
    kvs.run("record", path, model="draft", max_tokens=180, decode=12, progress=False)
    return kvs.open(path)


def test_top_takes_the_first_among_equals():
    assert top(torch.tensor([[1.0, 2.0, 2.0, 2.0, float("-inf")]]), 2).tolist() == [[False, True, True, False, False]]
    assert top(torch.tensor([[float("-inf"), 1.0]]), 2).tolist() == [[False, True]]


@pytest.mark.parametrize("budget", ["tokens=24", "tokens=64", "ratio=0.2", "tokens=4096"])
@pytest.mark.parametrize("spec", ["recent", "streamingllm", "streamingllm:n-sink=2", "oracle-topk", "quest:dense-layers=0",
                                  "quest:page-size=8,dense-layers=0", "keydiff", "tova"])
def test_twins_give_the_lists_of_cpp(trace, spec, budget):
    layer = trace[3]
    q, k, v = layer.q[:], layer.k[:], layer.v[:]
    run = native.Run(spec, trace.n_layers, trace.n_q, trace.n_kv, trace.d_head, trace.n_tokens, trace.score_scale, [budget], dense_layers=0)
    twin = make_twin(spec)
    twin.scale = trace.score_scale
    for n_tok in [64, 64, 52] + [1] * 12:
        begin = run.n_keys
        end = begin + n_tok
        decode = n_tok == 1
        run.begin_call("decode" if decode else "prefill", n_tok)
        (selection,) = run.layer_call(3, *(np.ascontiguousarray(x) for x in (q[:, begin:end], k[:, :end], v[:, :end])))
        found = twin(torch.from_numpy(q[:, begin:end].copy()), torch.from_numpy(k[:, :end].copy()), budget, decode)
        for head in range(trace.n_q):
            for row in range(0, n_tok, 7):
                expected = native.attended(selection, trace.group, head, begin, row).tolist()
                mask = np.ones(end, bool) if found is None else found.expand(trace.n_q, n_tok, end)[head, row].numpy()
                assert np.flatnonzero(mask[: begin + row + 1]).tolist() == expected, (begin, head, row)


def test_unknown_options_are_named():
    assert make_twin("quoka") is None and "keydiff" in TWINS
    with pytest.raises(ValueError, match="has no option owner"):
        make_twin("quest:owner=group_sum")
