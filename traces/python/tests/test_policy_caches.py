"""What is done to a cache between calls under kvs.policy: each row is what it would be in a run of its own, or is refused."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.masking_utils", reason="this transformers has no mask interface")
pytest.importorskip("kvscope._native", reason="the native module was not built")
import cache_fuzzer  # noqa: E402
import kvscope as kvs  # noqa: E402
from conftest import IS_FIVE, small_llama, token_ids  # noqa: E402
from kvscope import sequences  # noqa: E402
from kvscope.policy_method import Method  # noqa: E402
from transformers import DynamicCache  # noqa: E402

FROM_KEYS = ["quest:page-size=4,dense-layers=0@tokens=8", "quoka@tokens=6", "unique:page-size=4,sink=4,recent=6@tokens=8", "recent@tokens=8",
             "pqcache:parts=2,bits=2,n-recent=2,n-sink=1@tokens=6", "loki:rank=4@tokens=6"]
EVICTING = ["keydiff@tokens=12", "tova@tokens=12", "snapkv:window=4@tokens=12", "h2o@tokens=12"]
METHODS = {name for name in kvs.selectors()["name"] if not name.startswith("own-")}  # those of other tests
A, B, MORE = token_ids(90)[:, :30], token_ids(90)[:, 30:60], token_ids(90)[:, 60:]


@pytest.fixture(scope="module")
def model():
    return small_llama().double()


def engines(spec):
    return ["cpp", "torch"] if Method(spec).can_ask_torch else ["cpp"]


def cases(specs):
    return [(spec, engine) for spec in specs for engine in engines(spec)]


@torch.no_grad()
def feed(model, cache, *parts):
    """Calls one after the other; the last one's logits [rows, tokens, vocabulary]."""
    for ids in parts:
        out = model(ids, past_key_values=cache, use_cache=True).logits
    return out


def alone(model, spec, engine, *parts):
    with kvs.policy(model, spec, engine=engine):
        return feed(model, DynamicCache(config=model.config), *parts)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-8)


def steps(n, rows=1, begin=0):
    return [MORE[:, begin + i : begin + i + 1].expand(rows, 1) for i in range(n)]


@pytest.mark.parametrize("spec, engine", cases(FROM_KEYS + EVICTING))
def test_rows_that_change_places(model, spec, engine):
    with kvs.policy(model, spec, engine=engine):
        cache = DynamicCache(config=model.config)
        both = torch.cat([A, B])
        feed(model, cache, both[:, :16], both[:, 16:])
        cache.reorder_cache(torch.tensor([1, 0]))
        found = feed(model, cache, *steps(3, rows=2))
    close(found[:1], alone(model, spec, engine, B[:, :16], B[:, 16:], *steps(3)))
    close(found[1:], alone(model, spec, engine, A[:, :16], A[:, 16:], *steps(3)))


def doubled(model, spec, engine):
    with kvs.policy(model, spec, engine=engine):
        cache = DynamicCache(config=model.config)
        both = torch.cat([A, B])
        feed(model, cache, both[:, :16], both[:, 16:], *steps(1, rows=2))
        cache.reorder_cache(torch.tensor([1, 1]))
        return feed(model, cache, *steps(3, rows=2, begin=1))


@pytest.mark.parametrize("spec, engine", cases(FROM_KEYS + EVICTING[:3]))
def test_a_row_that_is_doubled(model, spec, engine):
    found = doubled(model, spec, engine)
    for row in (0, 1):
        close(found[row : row + 1], alone(model, spec, engine, B[:, :16], B[:, 16:], *steps(4)))


def test_a_history_that_the_method_keeps_itself_cannot_be_doubled(model):
    for engine in ("cpp", "torch"):
        with pytest.raises(kvs.UsageError, match=r"row 1 of the batch goes on from 31 tokens, which another row goes on with already.*expected"):
            doubled(model, "h2o@tokens=12", engine)


@pytest.mark.parametrize("spec, engine", cases(FROM_KEYS + EVICTING))
def test_two_sequences_in_turn(model, spec, engine):
    with kvs.policy(model, spec, engine=engine):
        of_a, of_b = DynamicCache(config=model.config), DynamicCache(config=model.config)
        feed(model, of_a, A)
        feed(model, of_b, B)
        for at in range(3):
            found = feed(model, of_a, *steps(1, begin=at))
            feed(model, of_b, *steps(1, begin=at + 5))
    close(found, alone(model, spec, engine, A, *steps(3)))


def cut_back(model, spec, engine):
    with kvs.policy(model, spec, engine=engine):
        cache = DynamicCache(config=model.config)
        feed(model, cache, A[:, :16], A[:, 16:], *steps(6))
        cache.crop(-6)
        return feed(model, cache, *steps(4, begin=8))


@pytest.mark.parametrize("spec, engine", cases(FROM_KEYS + EVICTING[:3]))
def test_a_cache_that_is_cut_back(model, spec, engine):
    close(cut_back(model, spec, engine), alone(model, spec, engine, A[:, :16], A[:, 16:], *steps(4, begin=8)))


#: (what is evicted by, tokens of decoding that stay, whether what the method kept there is known): a prompt and a question in two
#: calls each, eight steps.
CUTS = [("snapkv:window=4@tokens=12", 0, True), ("snapkv:window=4@tokens=12", 3, True), ("snapkv:window=4@tokens=12", -10, True),
        ("keydiff@tokens=12", -10, True), ("tova@tokens=12", -14, True), ("keydiff@tokens=12", 3, False), ("h2o@tokens=12", 0, False),
        ("expected-attention:n-future=16@tokens=12", 0, False)]


@pytest.mark.parametrize("spec, end, is_known", CUTS)
def test_a_history_goes_on_where_a_call_of_the_prompt_ended(model, spec, end, is_known):
    """A prompt of two calls is compressed once and asked several times."""
    calls = [A[:, :10], A[:, 10:16], A[:, 16:20], A[:, 20:]]
    n_calls = {0: 4, 3: 4, -10: 3, -14: 2}[end]
    after = [*steps(max(end, 0)), B[:, :4], *steps(3, begin=9)]
    with kvs.policy(model, spec):
        cache = DynamicCache(config=model.config)
        feed(model, cache, *calls, *steps(8))
        for _ in range(2):
            cache.crop(30 + end - cache.get_seq_length())
            if not is_known:
                with pytest.raises(kvs.UsageError, match=f"goes on from {30 + end} tokens, to which it was cut back, where the method's state"):
                    feed(model, cache, B[:, :4])
                return
            found = feed(model, cache, *after[max(end, 0) :])
    close(found, alone(model, spec, "cpp", *calls[:n_calls], *after))


def test_several_tokens_onto_a_decoded_cache_are_verification(model):
    phases = []

    @kvs.selector(name="own-phases", budgets=["tokens"], phases=["prefill", "decode", "verify"])
    def own_phases(phase, layer):
        if layer == 0:
            phases.append(phase)

    with kvs.policy(model, own_phases, budget=8) as policy:
        feed(model, DynamicCache(config=model.config), A[:, :10], A[:, 10:], *steps(2), MORE[:, 5:9])
    assert phases == ["prefill", "prefill", "decode", "decode", "verify"]
    assert list(policy.kept_by_phase) == ["prefill", "decode", "verify"]


def test_assisted_decoding_is_greedy_where_nothing_is_chosen_by_the_call(model):
    """recent and full: what a row sees does not depend on the rows beside it, but for the call's own tokens."""
    prompt = A[:, :8].repeat(1, 3)
    options = dict(max_new_tokens=12, do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(prompt))
    with kvs.policy(model, "recent@tokens=4096"):
        greedy = model.generate(prompt, **options)
        assert torch.equal(greedy, model.generate(prompt, assistant_model=small_llama().double(), **options))
        assert torch.equal(greedy, model.generate(prompt, prompt_lookup_num_tokens=3, **options))
    with kvs.policy(model, "keydiff@tokens=12"), pytest.raises(kvs.UsageError, match="expected the whole sequence inside"):
        model.generate(prompt, prompt_lookup_num_tokens=3, **options)


@pytest.mark.parametrize("spec", ["quoka@tokens=6", "recent@tokens=6", "keydiff@tokens=12", "tova@tokens=12"])
def test_beams_are_the_same_in_torch(model, spec):
    texts = []
    for engine in ("cpp", "torch"):
        with kvs.policy(model, spec, engine=engine):
            texts.append(model.generate(A, max_new_tokens=8, num_beams=4, do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(A)))
    assert torch.equal(*texts)


def test_equal_texts_by_different_calls_are_not_taken_for_each_other(model):
    """In the first layer their keys are the same: the cache tells them apart, and where that is not known they are refused."""
    spec = "keydiff@tokens=12"
    with kvs.policy(model, spec) as policy:
        whole, parts = DynamicCache(config=model.config), DynamicCache(config=model.config)
        feed(model, whole, A)
        feed(model, parts, A[:, :16], A[:, 16:])
        close(feed(model, parts, *steps(2)), alone(small_llama().double(), spec, "cpp", A[:, :16], A[:, 16:], *steps(2)))
        close(feed(model, whole, *steps(2)), alone(small_llama().double(), spec, "cpp", A, *steps(2)))
        assert policy.kept < 1.0
    model.set_attn_implementation(kvs.policy.attn_implementation(spec))
    try:
        whole, parts = DynamicCache(config=model.config), DynamicCache(config=model.config)
        feed(model, whole, A)
        feed(model, parts, A[:, :16], A[:, 16:])
        with pytest.raises(kvs.UsageError, match="came about in several ways.*expected fewer sequences in a block"):
            feed(model, parts, *steps(1))
    finally:
        model.set_attn_implementation("sdpa")


def test_a_warm_up_in_other_chunks_is_no_reason_to_refuse(model):
    options = dict(max_new_tokens=4, do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(A))
    with kvs.policy(model, "snapkv:window=4@tokens=12"):
        expected = model.generate(A, **options)
    with kvs.policy(model, "snapkv:window=4@tokens=12"):
        model.generate(A, prefill_chunk_size=16, **options)
        assert torch.equal(model.generate(A, **options), expected)


def test_sequences_that_were_forgotten_are_not_guessed_at(model, monkeypatch):
    """Whether several tokens go on a prompt or on decoded tokens is then unknown; one token is decoded in any case."""
    monkeypatch.setattr(sequences, "_KEPT", 3)
    spec = FROM_KEYS[0]
    with kvs.policy(model, spec):
        first = DynamicCache(config=model.config)
        feed(model, first, A, *steps(1))
        for at in range(5):
            feed(model, DynamicCache(config=model.config), B[:, at : at + 9])
        close(feed(model, first, *steps(1, begin=1)), alone(small_llama().double(), spec, "cpp", A, *steps(2)))
        for at in range(5):
            feed(model, DynamicCache(config=model.config), B[:, at : at + 9])
        with pytest.raises(kvs.UsageError, match="so long ago that they were forgotten.*expected fewer"):
            feed(model, first, MORE[:, 5:9])


def test_marks_tell_keys_apart():
    keys = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        k = keys.to(dtype)
        marks = sequences.marks_of(k)
        assert marks.shape == (6,) and len(set(marks.tolist())) == 6
        assert torch.equal(marks, sequences.marks_of(k.transpose(0, 1).contiguous().transpose(0, 1)))
        other = k.clone()
        other[1, 3, 7] += 0.5
        assert (marks != sequences.marks_of(other)).tolist() == [False, False, False, True, False, False]
        assert (marks != sequences.marks_of(k.flip(0))).all() and (marks != sequences.marks_of(k.flip(2))).all()


# ---- at random ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def specs():
    return sorted(cache_fuzzer.SPECS.values()) + cache_fuzzer.STACKS


def test_every_method_is_fuzzed_or_refused(model):
    ran = []
    for name in sorted(METHODS - set(cache_fuzzer.SPECS) - {"full"}):
        try:
            cache_fuzzer.try_method(name, model)
            ran.append(name)
        except kvs.UsageError as error:
            assert re.search("a draft model|learns from a text|pseudo-keys", str(error)), error
    assert not ran, "policies run these: name them in cache_fuzzer.SPECS"


@pytest.mark.parametrize("first, n", [(0, 100), pytest.param(100, 1000, marks=pytest.mark.slow)])
def test_random_operations(model, specs, first, n):
    counts = cache_fuzzer.run_many(range(first, first + n), specs, model)
    assert counts["sequences"] == n and counts["compared"] > n and counts["sparse"] > n / 2 and counts["refused"] < n / 4


@pytest.mark.skipif(not IS_FIVE, reason="caches of transformers 5")
def test_the_fuzzer_finds_rows_that_are_known_by_their_number_alone(model, monkeypatch):
    def by_number(self, marks, n_past, keeps_states, can_copy, cache):
        rows = []
        for at, (row, past) in enumerate(zip(marks, n_past)):
            known = self._known[at] if at < len(self._known) else None
            whole = known is not None and known.state is not None and len(known.marks) == past
            rows.append(None if row is None else sequences.Sequence(
                row, (known.calls if whole else ()) + (sequences.Call(len(row)),), known.state if whole else None, past))
        self._known = [row for row in rows if row is not None]
        return rows

    monkeypatch.setattr(sequences.Sequences, "go_on", by_number)
    with pytest.raises(AssertionError, match="is off by|has shape|has seen"):
        cache_fuzzer.run_many(range(100), [cache_fuzzer.SPECS["quest"]], model)
