"""Own selectors in Python: the same answers as C++ ones, rules named, exceptions with their call."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("own") / "draft.h5")
    kvs.run("record", path, model="draft", max_tokens=192, chunk=64, progress=False)
    return path


COSTS = ["score_flops", "bytes", "metadata_bytes"]


def numbers(table, name: str, without=COSTS):
    """The rows of a method without its name, its costs, and intervals (resamples are drawn by the method's place)."""
    intervals = [column for column in table if column.endswith(("_low", "_high"))]
    return table[table["selector"] == name].drop(columns=["selector", *intervals, *without]).reset_index(drop=True)


@kvs.selector(name="own-recent", budgets=["tokens", "ratio"], phases=["prefill", "decode", "verify"])
def own_recent(n_kv, pos_begin):
    return np.tile(np.arange(pos_begin, dtype=np.float64), (n_kv, 1))


@kvs.selector(name="own-recent-keys", budgets=["tokens", "ratio"], phases=["prefill", "decode", "verify"])
def own_recent_keys(call):
    return [np.flatnonzero(alive[: call.pos_begin])[::-1][: call.budget.keys(head)] for head, alive in enumerate(call.alive)]


@kvs.selector(name="own-mean", phases=["prefill", "decode"])
def own_mean(q, k, budget, n_kv):
    mean = q.reshape(n_kv, -1, q.shape[1], q.shape[2]).mean((1, 2), dtype=np.float64)
    return kvs.top(np.einsum("hd,htd->ht", mean, k.astype(np.float64)), budget)


@kvs.selector(name="own-quest", owner="q_head", phases=["prefill", "decode", "verify"], budgets=["tokens", "ratio", "pages"],
              page_size=16)
def own_quest(call):
    return call.builtin("quest:dense-layers=0")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("own", [own_recent, own_recent_keys])
def test_scores_and_keys_are_what_the_same_method_in_cpp_gives(trace, own, phase):
    table = kvs.sweep(trace, ["recent", own], budgets=[16, 40, "ratio=0.1"], phase=phase, steps=4)
    assert len(numbers(table, "recent"))
    assert numbers(table, "recent").equals(numbers(table, str(own)))


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_builtin_inside_is_the_builtin(trace, phase):
    table = kvs.sweep(trace, ["quest:dense-layers=0", own_quest], budgets=[16, 48], phase=phase, steps=4)
    native = numbers(table, "quest:dense-layers=0", without=[])
    assert len(native) and native.equals(numbers(table, "own-quest", without=[]))  # costs too


def test_live_runs_take_it(trace):
    table = kvs.simulate.perplexity(model="draft", selectors=["full", "recent", own_recent], budgets=[32], max_tokens=160, prefill=0.5,
                                    dense_layers=0)
    rows = table.set_index("selector")
    assert rows.loc["recent", "perplexity"] == rows.loc["own-recent", "perplexity"] != rows.loc["full", "perplexity"]


def test_unknown_costs_are_empty_and_stated_ones_kept(trace):
    @kvs.selector(name="own-cost", cost=lambda call: (1.0, 2.0 * call.n_keys, 0.0))
    def with_cost(n_kv, pos_begin):
        return np.zeros((n_kv, pos_begin))

    with pytest.raises(kvs.UsageError, match="its cost: expected three numbers"):
        kvs.sweep(trace, kvs.selector(lambda n_kv, pos_begin: np.zeros((n_kv, pos_begin)), name="own-odd", cost=lambda call: "much"), budgets=[16])
    table = kvs.sweep(trace, [own_recent, with_cost], budgets=[16])
    assert table[table["selector"] == "own-recent"]["score_flops"].isna().all()
    assert (table[table["selector"] == "own-cost"]["score_flops"] > 0).any()


def test_top_lowest_position_wins():
    assert kvs.top([0.0, 2.0, 2.0, 1.0, 2.0], 2).tolist() == [1, 2]
    assert [keys.tolist() for keys in kvs.top(np.array([[1.0, 1.0], [0.0, 1.0]]), 1)] == [[0], [1]]
    assert kvs.top([1.0, -np.inf], 2).tolist() == [0]
    with pytest.raises(kvs.UsageError, match="NaN"):
        kvs.top([np.nan], 1)


def test_options_become_options_of_the_method(trace):
    seen = set()

    @kvs.selector(name="own-options")
    def with_options(n_kv, pos_begin, alpha=0.5, n_sink=4, is_on=True, word="a"):
        seen.add((alpha, n_sink, is_on, word))
        return np.zeros((n_kv, pos_begin))

    kvs.sweep(trace, ["own-options", with_options(alpha=2.0, n_sink=1, is_on=False), "own-options:word=b"], budgets=[16])
    assert seen == {(0.5, 4, True, "a"), (2.0, 1, False, "a"), (0.5, 4, True, "b")}
    with pytest.raises(kvs.UsageError, match="alpha: expected a number, found"):
        kvs.sweep(trace, "own-options:alpha=x", budgets=[16])
    with pytest.raises(kvs.UsageError, match="has no option beta"):
        kvs.sweep(trace, "own-options:beta=1", budgets=[16])
    row = kvs.selectors().set_index("name").loc["own-options"]
    assert {option["name"] for option in row["options"]} == {"alpha", "n-sink", "is-on", "word"}


def test_memory_begins_empty_in_every_sequence(trace):
    @kvs.selector(name="own-memory", phases=["prefill"])
    def with_memory(layer, n_kv, pos_begin, memory):
        assert memory.setdefault(layer, 0) <= pos_begin
        memory[layer] = pos_begin
        return np.zeros((n_kv, pos_begin))

    kvs.sweep(trace, with_memory, budgets=[16])
    kvs.sweep(trace, with_memory, budgets=[16])


def register(answer):
    """A selector that returns answer(call)."""

    @kvs.selector(name="own-bad", budgets=["tokens", "p"])
    def bad(call):
        return answer(call)

    return bad


@pytest.mark.parametrize("answer, sentence", [
    (lambda call: [[3, 3], [1]], "KV head 0 holds position 3 twice"),
    (lambda call: [[1], [call.n_keys]], "KV head 1 holds position .*, which lies in the future"),
    (lambda call: [[1], [-1]], "KV head 1 holds position -1"),
    (lambda call: [np.arange(17), [1]], "KV head 0 holds 17 keys before the call, over the budget of 16"),
    (lambda call: [[1]], "it returned 1 lists of keys, expected 2"),
    (lambda call: np.zeros((2, 3)), r"its scores have shape \[2, 3\], expected \[2, 64\]"),
    (lambda call: np.full((2, call.pos_begin), np.nan), "the score of position 0 in the list of KV head 0 is NaN"),
    (lambda call: "words", "UsageError: expected scores"),
    (lambda call: [[1.5], [1]], "expected positions of keys as integers, found float64"),
    (lambda call: np.zeros((2, call.pos_begin), complex), "expected scores .* found complex128"),
])
def test_broken_rules_are_named(trace, answer, sentence):
    own = register(lambda call: answer(call) if call.pos_begin == 64 else None)
    with pytest.raises((kvs.UsageError, kvs.SelectorError), match=f"selector own-bad: .*{sentence}.*; layer 0, prefill call .*budget tokens=16"):
        kvs.sweep(trace, own, budgets=[16], chunk=64)


def test_dead_keys_are_named(trace):
    own = register(lambda call: [np.arange(min(call.pos_begin, 4))] * call.n_kv)
    with pytest.raises(kvs.UsageError, match="whose key is dead"):
        kvs.sweep(trace, f"keydiff@tokens=16+{own}", budgets=[8], chunk=32)


def test_kept_arrays_are_noticed(trace):
    kept = []
    own = register(lambda call: kept.append(call.k))
    with pytest.raises(kvs.UsageError, match="keeps the call or one of its arrays"):
        kvs.sweep(trace, own, budgets=[16])
    kept.clear()


def test_exceptions_arrive_with_traceback_and_call(trace):
    def fails(call):
        return {}["missing"]

    own = register(fails)
    with pytest.raises(kvs.SelectorError, match="selector own-bad: KeyError: 'missing'; layer 0, prefill call") as raised:
        kvs.sweep(trace, own, budgets=[16])
    cause = raised.value.__cause__
    assert isinstance(cause, KeyError)
    names = []
    frame = cause.__traceback__
    while frame:
        names.append(frame.tb_frame.f_code.co_name)
        frame = frame.tb_next
    assert names[-1] == "fails"
    kvs.sweep(trace, "recent", budgets=[16])  # nothing is left behind


def test_arrays_are_read_only_and_not_copied(trace):
    seen = []

    def looks(call):
        seen.append((call.k.flags.writeable, call.k.flags.owndata, call.k.dtype, call.k.shape, np.from_dlpack(call.q).shape))

    kvs.sweep(trace, register(looks), budgets=[16], chunk=64)
    assert seen[-1] == (False, False, np.dtype("float32"), (2, 192, 32), (6, 64, 32))


def test_torch_through_dlpack(trace):
    torch = pytest.importorskip("torch")

    @kvs.selector(name="own-torch")
    def with_torch(call):
        q, k = torch.from_dlpack(call.q).double(), torch.from_dlpack(call.k).double()
        mean = q.reshape(call.n_kv, call.group, call.n_tok, -1).mean((1, 2))
        return (mean[:, None] @ k.mT)[:, 0]

    table = kvs.sweep(trace, [own_mean, with_torch], budgets=[16, 32])
    assert len(numbers(table, "own-mean")) and numbers(table, "own-mean").equals(numbers(table, "own-torch"))


def test_names_are_checked():
    with pytest.raises(kvs.UsageError, match="has a method of this name"):
        kvs.selector(name="quest")(lambda call: None)
    for odd in ("My Method", "Mine", "a:b", "a+b", "a@b", "-a", "a,b"):
        with pytest.raises(kvs.UsageError, match="expected lower-case letters"):
            kvs.selector(name=odd)(lambda call: None)
    with pytest.raises(kvs.UsageError, match="owner: expected one of"):
        kvs.selector(name="own-x", owner="head")(lambda call: None)
    with pytest.raises(kvs.UsageError, match="parameter keys: expected call, memory, one of"):
        kvs.selector(name="own-x")(lambda keys: None)


# Conformance


@pytest.mark.parametrize("method", [own_recent, own_recent_keys, own_mean, own_quest, "quest", "quoka", "snapkv", "oracle-topk"])
def test_conformance_holds(method):
    report = kvs.selftest(method, seeds=3)
    assert report.ok, str(report)


def test_conformance_finds_faults(tmp_path):
    @kvs.selector(name="own-forgetful", phases=["prefill", "decode"])
    def forgetful(n_kv, pos_begin, memory):
        memory["calls"] = memory.get("calls", 0) + 1  # rejected drafts change it, budgets share it
        return np.tile(np.random.default_rng(memory["calls"]).random(pos_begin), (n_kv, 1))

    @kvs.selector(name="own-deaf", phases=["prefill", "decode"])
    def deaf(call):
        n = min(call.budget.keys(), call.pos_begin)
        return [np.arange(n)] * call.n_kv  # takes dead keys too

    assert not kvs.selftest(deaf, seeds=2).ok
    assert "dead" in str(kvs.selftest(deaf, seeds=2))


@pytest.mark.slow
def test_selftest_command(tmp_path):
    good, bad, empty = tmp_path / "good.py", tmp_path / "bad.py", tmp_path / "empty.py"
    good.write_text("import numpy as np, kvscope as kvs\n@kvs.selector\ndef my_good(n_kv, pos_begin):\n    return np.zeros((n_kv, pos_begin))\n")
    bad.write_text("import kvscope as kvs\n@kvs.selector\ndef my_bad(n_kv):\n    return [[0, 0]] * n_kv\n")
    empty.write_text("")

    def selftest(file: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "kvscope", "selftest", file], capture_output=True, text=True)

    assert selftest(good).returncode == 0 and "my-good" in selftest(good).stdout
    assert selftest(bad).returncode == 5 and "holds position 0 twice" in selftest(bad).stdout
    assert selftest(empty).returncode == 3 and "registers no selector" in selftest(empty).stderr


def test_loaded_into_a_command(trace, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("import numpy as np, kvscope as kvs\n@kvs.selector(name='own-loaded')\ndef f(n_kv, pos_begin):\n    return np.zeros((n_kv, pos_begin))\n")
    done = subprocess.run([sys.executable, "-m", "kvscope", "--load", mine, "sweep", trace, "--selector", "own-loaded", "--budget", "16"],
                          capture_output=True, text=True, check=True)
    assert "own-loaded" in done.stdout


@pytest.mark.slow
def test_overhead_of_a_call_of_a_builtin(tmp_path):
    """At most 1.3 times the method itself on a sweep of 4096 tokens, in processor time, the best of interleaved runs."""
    path = str(tmp_path / "long.h5")
    kvs.run("record", path, model="draft", max_tokens=4096, progress=False)
    times: dict[str, list[float]] = {"quest:dense-layers=0": [], "own-quest": []}
    for _ in range(3):
        for spec, taken in times.items():
            start = time.process_time()
            kvs.sweep(path, spec, budgets=[64, 256, 1024], threads=1, progress=False)
            taken.append(time.process_time() - start)
    native, own = (min(taken) for taken in times.values())
    print(f"native {native:.3f} s, through Python {own:.3f} s, ratio {own / native:.3f}")
    assert own / native <= 1.3
