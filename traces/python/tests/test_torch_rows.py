"""What methods ask about queries and keys, answered in torch, gives the lists of the C++ engine in f64, key by key, on recorded q
and k and where scores tie."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402
from kvscope._load import native  # noqa: E402
from kvscope.policy_method import Method  # noqa: E402
from list_cases import SPECS, masks  # noqa: E402

BUDGETS = ["tokens=24", "tokens=64", "tokens=3", "ratio=0.2", "tokens=4096"]
#: Calls: a prompt in chunks of unequal length, then decoded tokens, several of which are verified at once.
CALLS = [64, 64, 47, 5, 1, 1, 1, 3, 1, 1, 4]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory):
    path = str(tmp_path_factory.mktemp("rows") / "draft.h5")
    kvs.run("record", path, model="draft", max_tokens=180, decode=12, progress=False)
    return kvs.open(path)


def compare(spec, budget, q, k, scale):
    """Every call's lists, of every query head and of every seventh row: q [n_q, n, d], k [n_kv, n, d]."""
    in_torch = masks(spec, budget, torch.from_numpy(q), torch.from_numpy(k), scale, CALLS, in_torch=True, every=7)
    for call, (expected, found) in enumerate(zip(masks(spec, budget, q, k, scale, CALLS, every=7), in_torch, strict=True)):
        differing = np.argwhere((expected != found).any(-1))
        assert not len(differing), f"call {call}: (head, row) {differing[:4].tolist()} of {len(differing)}"


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("spec", SPECS)
def test_lists_are_those_of_copies(trace, spec, budget):
    compare(spec, budget, trace[3].q[:], trace[3].k[:], trace.score_scale)


@pytest.mark.parametrize("spec, budget", [("oracle-topp", "p=0.9"), ("oracle-topp", "p=0.5"), ("ceiling:level=0.01", "tokens=1")])
def test_lists_by_weight_are_those_of_copies(trace, spec, budget):
    compare(spec, budget, trace[3].q[:], trace[3].k[:], trace.score_scale)


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
        compare(spec, budget, q, k, 0.25)


def test_which_methods_do_without_copies():
    assert all(native.caps(spec)["host_rows"] != "all" for spec in SPECS)
    for spec in ("quest@tokens=16", "quoka:scope=whole@tokens=16", "pqcache@tokens=16"):
        assert native.caps(spec.partition("@")[0])["host_rows"] == "all" and not Method(spec).can_ask_torch
        with pytest.raises(kvs.UsageError, match='engine: the method looks at the keys itself, with these options: expected engine="cpp"'):
            Method(spec, engine="torch")


def test_answers_of_the_wrong_size_are_refused():
    """A short one would be read beyond its end."""

    class Rows:
        def __init__(self, products, norms):
            self.products, self.norms = products, norms

        def largest_scores(self, vectors, begin, end):
            return np.ones(self.products)

        def inverse_norms(self, lists, eps):
            return [np.ones(n) for n in self.norms]

    def ask(rows, q=True, spec="quoka", f32=True):
        run = native.Run(spec, 1, 2, 2, 8, 64, 1.0, ["tokens=4"], f32=f32)
        run.begin_call("prefill", 32)
        run.skip_call(0)
        run.begin_call("decode", 1)
        return run.remote_call(0, rows, np.ones((2, 1, 8), "f4") if q else None)

    right = Rows(64, [33, 33])
    assert len(ask(right)[0].keys)
    for rows, sentence in ((Rows(1, [33, 33]), "expected 64 numbers, found 1"), (Rows(64, [33, 3]), "expected 33 numbers, found 3"),
                           (Rows(64, [33]), "expected 2 rows, found 1")):
        with pytest.raises(Exception, match=f"an answer of rows in Python: {sentence}"):
            ask(rows)
    with pytest.raises(Exception, match="quoka looks at queries itself"):
        ask(right, q=False)
    for spec, f32 in (("quest:dense-layers=0", True), ("quoka", False)):
        with pytest.raises(Exception, match=f"{spec.partition(':')[0]} looks at keys itself"):
            ask(right, spec=spec, f32=f32)


@pytest.mark.parametrize("spec", ["quest:page-size=4,dense-layers=0", "lagkv:n-sink=2,lag=8", "keydiff"])
def test_a_run_that_holds_copies_gets_only_new_keys(spec):
    random = np.random.default_rng(2)
    q, k, v = (random.standard_normal((n, 60, 8)).astype("f4") for n in (4, 2, 2))
    needs_values = native.caps(spec)["needs_values"]
    whole, held = (native.Run(spec, 1, 4, 2, 8, 64, 0.35, ["tokens=12"], f32=True) for _ in range(2))
    for n_tok in [20, 20, *[1] * 8, 4, 1]:
        first = whole.n_keys
        end = first + n_tok
        phase = "prefill" if end <= 40 else "decode" if n_tok == 1 else "verify"
        both = []
        for run in (whole, held):
            run.begin_call(phase, n_tok)
        both.append(whole.layer_call(0, *(np.ascontiguousarray(x) for x in (q[:, first:end], k[:, :end], v[:, :end])))[0])
        new = slice(held.n_held, end)
        both.append(held.next_call(0, *(np.ascontiguousarray(x) for x in (q[:, first:end], k[:, new])),
                                   np.ascontiguousarray(v[:, new]) if needs_values else None)[0])
        assert held.n_held == end
        assert both[0].is_dense == both[1].is_dense and np.array_equal(both[0].keys, both[1].keys)
        if phase == "verify":
            for run in (whole, held):
                run.rollback(end - 2)
    held.begin_call("decode", 1)
    for shape in ((2, 2, 8), (3, 1, 8), (2, 1, 9), (2, 8)):
        with pytest.raises(Exception, match=r"keys or values that the run does not have yet: expected the shape \[2, 1, 8\], found"):
            held.next_call(0, np.ones((4, 1, 8), "f4"), np.ones(shape, "f4"))
