"""A method inside a transformers model: full is the plain model, lists are those of replay, caches and batches agree."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402

from conftest import IS_FIVE, small_llama, token_ids  # noqa: E402
from kvscope import policy_method  # noqa: E402
from kvscope.policy_method import Method  # noqa: E402

pytest.importorskip("transformers.masking_utils", reason="this transformers has no mask interface")


@pytest.fixture(scope="module")
def model():
    return small_llama()


def logits(model, ids, **options):
    with torch.no_grad():
        return model(ids, **options).logits


def generated(model, ids, **options):
    return model.generate(ids, max_new_tokens=12, do_sample=False, output_logits=True, return_dict_in_generate=True, **options)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_full_is_the_plain_model_bit_for_bit(model, cache):
    ids = token_ids(40)
    options = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
    plain = generated(model, ids, **options)
    with kvs.policy(model, "full"):
        found = generated(model, ids, **options)
    assert torch.equal(plain.sequences, found.sequences)
    assert all(torch.equal(a, b) for a, b in zip(plain.logits, found.logits))
    assert model.config._attn_implementation == "sdpa"


def test_a_budget_of_everything_is_full_to_rounding(model):
    ids = token_ids(40)
    plain = generated(model, ids)
    with kvs.policy(model, "oracle-topk@tokens=4096") as policy:
        found = generated(model, ids)
    assert torch.equal(plain.sequences, found.sequences) and policy.kept == 1.0
    assert max((a - b).abs().max() for a, b in zip(plain.logits, found.logits)) < 1e-5  # masked sdpa sums in another order


def test_a_budget_is_kept(model):
    with kvs.policy(model, "recent@tokens=8") as policy:
        generated(model, token_ids(60))
    assert 0.1 < policy.kept < 0.95  # the prompt, one call, is whole
    assert repr(policy).startswith("<Policy recent: keeps prefill 100.0%, decode ")
    # The last tokens are as many in every layer.
    assert policy.kept_by_layer == {layer: policy.kept_by_phase for layer in range(model.config.num_hidden_layers)}


def attention(q, k, v, keys, scale):
    scores = (q @ k[keys].T) * scale
    weights = torch.softmax(scores, -1)
    return weights @ v[keys]


def test_decode_attends_to_the_lists_of_the_method(model):
    """Against loops over the lists of a run of its own, on the q, k and v that the model's layer sees."""
    ids, seen = token_ids(30), []
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    with kvs.policy(model, "keydiff@tokens=24+quest:page-size=4,dense-layers=0@tokens=8") as policy:
        name = model.config._attn_implementation
        function = ALL_ATTENTION_FUNCTIONS[name]

        def listening(module, query, key, value, *args, **kwargs):
            out = function(module, query, key, value, *args, **kwargs)
            seen.append((module.layer_idx, query[0].clone(), key[0].clone(), value[0].clone(), out[0][0].clone()))
            return out

        ALL_ATTENTION_FUNCTIONS.register(name, listening)
        generated(model, ids)
    runs = {}
    for layer, q, k, v, out in seen:
        n_q, n_tok, d = q.shape
        scale = d**-0.5
        run = runs.setdefault(layer, kvs._load.native.Run(policy.spec, layer + 1, n_q, k.shape[0], d, 1000, scale, [policy.budget], f32=True))
        begin = run.n_keys
        run.begin_call("decode" if begin and n_tok == 1 else "prefill", n_tok)
        (selection,) = run.layer_call(layer, *(x.float().contiguous().numpy() for x in (q, k, v)))
        for head in range(n_q):
            for row in (0, n_tok - 1):
                keys = kvs._load.native.attended(selection, n_q // k.shape[0], head, begin, row)
                expected = attention(q[head, row], k[head // 2], v[head // 2], torch.from_numpy(keys).long(), scale)
                torch.testing.assert_close(out[row, head], expected, rtol=1e-4, atol=1e-5)


def test_chunked_prefill_is_one_sequence(model):
    """A cache filled in chunks gives what the same calls give under the method's own protocol."""
    ids = token_ids(48)
    from transformers import DynamicCache

    def chunked(spec):
        cache = DynamicCache(config=model.config)
        with kvs.policy(model, spec):
            return torch.cat([logits(model, ids[:, at : at + 16], past_key_values=cache, use_cache=True) for at in range(0, 48, 16)], 1)

    torch.testing.assert_close(chunked("oracle-topk@tokens=4096"), logits(model, ids), rtol=1e-4, atol=1e-4)
    assert (chunked("recent@tokens=4") - logits(model, ids)).abs().max() > 1e-3


def test_static_and_dynamic_caches_agree(model):
    ids = token_ids(40)
    with kvs.policy(model, "quest:page-size=4,dense-layers=0@tokens=8"):
        dynamic = generated(model, ids)
        static = generated(model, ids, cache_implementation="static", disable_compile=True)
    assert torch.equal(dynamic.sequences, static.sequences)


PADDED = ["recent@tokens=8", "quest:page-size=4,dense-layers=0@tokens=8", "quoka@tokens=6", "keydiff@tokens=12", "snapkv:window=4@tokens=12",
          "h2o@tokens=12", "keydiff@tokens=24+quest:page-size=4,dense-layers=0@tokens=8"]


def padded(rows):
    n = max(map(len, rows))
    ids, mask = torch.zeros(2, len(rows), n, dtype=torch.long)
    for at, row in enumerate(rows):
        ids[at, n - len(row) :], mask[at, n - len(row) :] = row, 1
    return ids, mask


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("engine", ["cpp", "torch"])
@pytest.mark.parametrize("spec", PADDED)
def test_a_padded_batch_is_its_rows(model, spec, engine, cache):
    """Each row of a batch that is padded on the left has keys, evictions and lists of its own."""
    if engine == "torch" and not Method(spec).can_ask_torch:
        pytest.skip("the method looks at the keys itself")
    rows = [token_ids(30)[0], token_ids(40)[0, :21].flip(0), token_ids(40)[0, 5:14]]
    ids, mask = padded(rows)
    options = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
    with kvs.policy(model, spec, engine=engine):
        batch = generated(model, ids, attention_mask=mask, pad_token_id=0, min_new_tokens=12, **options)
        for at, row in enumerate(rows):
            alone = generated(model, row[None], attention_mask=torch.ones_like(row)[None], pad_token_id=0, min_new_tokens=12, **options)
            assert batch.sequences[at, 30:].tolist() == alone.sequences[0, len(row) :].tolist()
            assert max((a[at] - b[0]).abs().max() for a, b in zip(batch.logits, alone.logits)) < 1e-4


@pytest.mark.parametrize("engine", ["cpp", "torch"])
def test_a_chunk_of_nothing_but_padding(model, engine):
    """The prompt of 40 in chunks of 16: the short row's are 16 of padding, 3 of padding and 13, 8."""
    rows = [token_ids(40)[0], token_ids(40)[0, :21].flip(0)]
    ids, mask = padded(rows)
    from transformers import DynamicCache

    def last_logits(tokens, visible, chunks):
        cache, end, out = DynamicCache(config=model.config), 0, []
        for n in chunks:
            end += n
            positions = (visible[:, :end].cumsum(-1) - 1).clamp(min=0)[:, end - n :]
            out = logits(model, tokens[:, end - n : end], attention_mask=visible[:, :end], position_ids=positions, past_key_values=cache, use_cache=True)
        return out[:, -1]

    with kvs.policy(model, "keydiff@tokens=12", engine=engine):
        batch = last_logits(ids, mask, [16, 16, 8])
        for at, chunks in enumerate(([16, 16, 8], [13, 8])):
            alone = last_logits(rows[at][None], torch.ones_like(rows[at])[None], chunks)
            torch.testing.assert_close(batch[at], alone[0], rtol=1e-4, atol=1e-4)
        if IS_FIVE:  # generate() of 4.57 counts the positions of padded rows otherwise when it prefills in chunks, the plain model's too
            whole = generated(model, ids, attention_mask=mask, pad_token_id=0, prefill_chunk_size=16)
            torch.testing.assert_close(whole.logits[0], batch, rtol=1e-4, atol=1e-4)


def test_padding_behind_is_refused(model):
    ids, mask = padded([token_ids(20)[0], token_ids(20)[0, :12]])
    with kvs.policy(model, "recent@tokens=4"), pytest.raises(kvs.UsageError, match="batch row 1 is not causal with padding in front.*padded on the left"):
        logits(model, ids, attention_mask=mask.flip(1))


def test_a_cache_from_before_is_caught_up_with(model):
    ids = token_ids(40)
    whole = logits(model, ids[:, :32], use_cache=True)
    out = model(ids[:, :32], use_cache=True)
    with kvs.policy(model, "oracle-topk@tokens=4096"):
        found = logits(model, ids[:, 32:33], past_key_values=out.past_key_values, use_cache=True)
    torch.testing.assert_close(found[:, 0], logits(model, ids[:, :33])[:, -1], rtol=1e-4, atol=1e-4)
    assert whole.shape[1] == 32
    out = model(ids[:, :32], use_cache=True)
    with kvs.policy(model, "h2o@tokens=16"), pytest.raises(kvs.UsageError, match="expected the whole sequence inside"):
        logits(model, ids[:, 32:33], past_key_values=out.past_key_values, use_cache=True)


def test_sliding_layers_are_left_alone():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(2)
    config = Qwen2Config(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         vocab_size=64, max_position_embeddings=256, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    mixed = Qwen2ForCausalLM(config).eval()
    assert list(config.layer_types) == ["full_attention", "sliding_attention"]
    asked = []

    @kvs.selector(name="own-asked", budgets=["tokens"])
    def own_asked(layer):
        asked.append(layer)

    with kvs.policy(mixed, "own-asked@tokens=8"):
        found = logits(mixed, token_ids(30))
    assert set(asked) == {0}
    assert torch.equal(found, logits(mixed, token_ids(30)))


@pytest.mark.parametrize("spec", ["streamingllm@tokens=12", "keydiff@tokens=16", "tova@tokens=16", "h2o@tokens=16", "recent@tokens=8",
                                  "quoka@tokens=9", "snapkv:window=8@tokens=16", "adakv:window=8@tokens=16", "knorm@tokens=16",
                                  "sparq:mean-value=false@tokens=9"])
def test_torch_generates_the_same(model, spec):
    ids = token_ids(40)
    with kvs.policy(model, spec, engine="cpp") as cpp:
        expected = generated(model, ids)
    with kvs.policy(model, spec, engine="torch") as in_torch:
        found = generated(model, ids)
    assert torch.equal(expected.sequences, found.sequences) and cpp.kept == in_torch.kept < 1.0
    assert all(torch.equal(a, b) for a, b in zip(expected.logits, found.logits))


@pytest.mark.parametrize("spec", ["quest:page-size=4,dense-layers=0@tokens=12", "lagkv:n-sink=2,lag=4@tokens=16", "quoka@tokens=9"])
def test_keys_that_the_engine_cannot_read_in_place(model, spec, monkeypatch):
    """As tensors on a GPU: copied once, or answered in torch."""
    ids = token_ids(40)
    with kvs.policy(model, spec) as policy:
        expected = generated(model, ids)
    monkeypatch.setattr(policy_method, "_is_elsewhere", lambda x: True)
    with kvs.policy(model, spec) as elsewhere:
        found = generated(model, ids)
    assert torch.equal(expected.sequences, found.sequences) and policy.kept == elsewhere.kept < 1.0


def test_attn_implementation_by_name(model):
    name = kvs.policy.attn_implementation("recent@tokens=8")
    assert name == "kvscope:recent@tokens=8"
    with kvs.policy(model, "recent@tokens=8"):
        expected = generated(model, token_ids(40)).sequences
    model.set_attn_implementation(name)
    try:
        assert torch.equal(expected, generated(model, token_ids(40)).sequences)
    finally:
        model.set_attn_implementation("sdpa")


def test_what_does_not_fit_is_one_sentence(model):
    for spec, sentence in (("quest", "the method takes a budget"), ("specattn@p=0.9", "needs a draft model"),
                           ("quest@mass", "budget|Budget|expected"), ("nothing@tokens=4", "unknown selector nothing")):
        with pytest.raises(kvs.UsageError, match=sentence):
            with kvs.policy(model, spec):
                logits(model, token_ids(20))
    mask = torch.zeros(1, 1, 20, 20, dtype=torch.bool)
    mask[..., :5] = True
    with kvs.policy(model, "recent@tokens=4"), pytest.raises(kvs.UsageError, match="is not causal with padding in front"):
        logits(model, token_ids(20), attention_mask=mask)
    assert model.config._attn_implementation == "sdpa"


# ---- phases and budgets ------------------------------------------------------------------------------


def test_a_budget_as_a_keyword(model):
    @kvs.selector(name="own-keyword", budgets=["tokens"])
    def own_keyword(n_kv, pos_begin):
        return np.tile(np.arange(pos_begin, dtype=float), (n_kv, 1))

    ids = token_ids(40)
    with kvs.policy(model, "recent@tokens=8") as policy:
        expected, kept = generated(model, ids), policy.kept
    for spec, budget in (("recent", 8), ("recent", "tokens=8"), (own_keyword, 8)):
        with kvs.policy(model, spec, budget=budget) as policy:
            assert torch.equal(expected.sequences, generated(model, ids).sequences) and policy.kept == kept
    with kvs.policy(model, "full", budget=8) as policy:
        assert policy.kept == 1.0
    for spec, budget, sentence in (("recent@tokens=8", 8, "a budget stands behind the @ and in budget=8: expected one"),
                                   ("longformer", 8, "the method takes no budget"), ("recent", None, "or budget=1024: the method takes")):
        with pytest.raises(kvs.UsageError, match=sentence), kvs.policy(model, spec, budget=budget):
            pass
    assert kvs.policy.attn_implementation("recent", budget=8, phases="decode") == "kvscope:recent@tokens=8:decode+verify"


@pytest.mark.parametrize("engine", ["cpp", "torch"])
@pytest.mark.parametrize("spec", ["streamingllm@tokens=8", "quoka@tokens=6", "sparq:mean-value=false@tokens=8"])
def test_phases_keep_the_others_dense(model, spec, engine):
    from transformers import DynamicCache

    ids = token_ids(48)

    def run(phases):
        cache = DynamicCache(config=model.config)
        with kvs.policy(model, spec, phases=phases, engine=engine) as policy:
            prompt = torch.cat([logits(model, ids[:, at : at + 16], past_key_values=cache, use_cache=True) for at in (0, 16)], 1)
            rest = torch.cat([logits(model, ids[:, at : at + 1], past_key_values=cache, use_cache=True) for at in range(32, 40)], 1)
        return prompt, rest, policy.kept_by_phase

    plain = logits(model, ids[:, :40])
    prompt, rest, kept = run("decode")
    torch.testing.assert_close(prompt, plain[:, :32], rtol=0, atol=1e-5)
    assert (rest - plain[:, 32:]).abs().max() > 1e-3 and kept["prefill"] == 1.0 and kept["decode"] < 0.9
    prompt, rest, kept = run(["prefill"])
    assert (prompt - plain[:, :32]).abs().max() > 1e-3 and kept["prefill"] < 1.0 and kept["decode"] == 1.0
    assert run(("prefill", "decode"))[2] == run(None)[2] and min(run(None)[2].values()) < 1.0


@pytest.mark.parametrize("engine", ["cpp", "torch"])
def test_what_was_evicted_does_not_come_back_for_a_phase(model, engine):
    from transformers import DynamicCache

    ids = token_ids(48)
    with kvs.policy(model, "keydiff@tokens=12", phases="decode", engine=engine) as policy:
        generated(model, ids)  # a prompt in one call is dense: it evicts after its attention
        assert policy.kept_by_phase["prefill"] == 1.0 and policy.kept_by_phase["decode"] < 0.5
        cache = DynamicCache(config=model.config)
        logits(model, ids[:, :16], past_key_values=cache, use_cache=True)
        with pytest.raises(kvs.UsageError, match="prefill is not among its phases .decode, verify.*a prompt in one call before decoding"):
            logits(model, ids[:, 16:32], past_key_values=cache, use_cache=True)
    for phases in ("verify", "dense", []):
        with pytest.raises(kvs.UsageError, match="phases: expected prefill, decode or both, found"):
            with kvs.policy(model, "recent@tokens=4", phases=phases):
                pass


#: Methods that a policy refuses, by words of the sentence: what they read is not inside a transformers model, or torch's
#: attention cannot take what they answer.
REFUSED = {"doublep": "pseudo-keys", "retroinfer": "pseudo-keys", "sparq": "pseudo-keys", "specattn": "draft model"} | dict.fromkeys(
    ("doublesparsity", "duoattention", "indexer", "kascade", "qfilters"), "learns from a text first: expected the file that kvscope fit made")
#: The model's own products differ in their last bits between the two, and where scores nearly tie so does a key: a perplexity
#: of 2e-4; norms of a token's repeats tie often.
TIED = {"knorm": 1e-2}


@pytest.fixture(scope="module")
def draft():
    from conftest import SAMPLES, load

    return load(SAMPLES / "draft", dtype=torch.float32)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """448 tokens of the embedded book: [1, n] and a file of them."""
    from conftest import SAMPLES

    path = tmp_path_factory.mktemp("book") / "tokens.txt"
    text = next((SAMPLES / "texts").glob("*.txt"))
    ids = np.array(kvs.run("tokenize", text=text, model="draft", max_tokens=448, json=True).json["ids"][:448])
    np.savetxt(path, ids, fmt="%d")
    return torch.from_numpy(ids)[None], path


#: Methods that learn from a text, with the option that names what they learned.
FITTED = [("doublesparsity", "channels"), ("kascade:n-anchors=3", "map"), ("loki:basis=calibrated", "directions"), ("qfilters", "filters")]


@pytest.fixture(scope="module")
def fitted(draft, book, tmp_path_factory):
    """A function: the method with its file of kvscope fit."""
    folder = tmp_path_factory.mktemp("fitted")
    with kvs.record(draft, folder / "trace.h5"), torch.no_grad():
        draft(book[0])

    def of(name, option):
        out = folder / f"{option}.json"
        if not out.exists():
            kvs.run("fit", name, folder / "trace.h5", out=out, progress=False)
        return f"{name}{',' if ':' in name else ':'}{option}={out}"

    return of


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("name", [spec["name"] for spec in kvs.run("selectors", json=True).json["selectors"]] + ["sparq:mean-value=false"] + FITTED)
def test_every_method_is_that_of_the_closed_loop(draft, book, fitted, name, phase):
    """Perplexity inside transformers and by simulate perplexity, on the same model and tokens: steps after a prompt, and chunks."""
    name = name if isinstance(name, str) else fitted(*name)
    from conftest import SAMPLES
    from transformers import DynamicCache

    (ids, path), n_prompt, chunk = book, 416, 128
    about = next(spec for spec in kvs.run("selectors", json=True).json["selectors"] if spec["name"] == name.split(":")[0])
    if phase not in about["phases"]:
        return
    budget = None if not about["budgets"] else 64 if "tokens" in about["budgets"] else "p=0.8"
    cache = DynamicCache(config=draft.config)

    def in_transformers():
        with kvs.policy(draft, name, budget=budget, phases=None if about["permanent"] else phase), torch.no_grad():
            def call(begin, end):
                return draft(ids[:, begin:end], past_key_values=cache, use_cache=True).logits[0]
            begins = range(0, n_prompt if phase == "decode" else 447, chunk)
            read = [call(at, min(at + chunk, n_prompt if phase == "decode" else 447)) for at in begins]
            return [call(at, at + 1) for at in range(n_prompt, 447)] if phase == "decode" else read

    if name in REFUSED and (name, phase) != ("sparq", "prefill"):  # which asks for no mean value
        with pytest.raises(kvs.UsageError, match=REFUSED[name]):
            in_transformers()
        return
    out = torch.cat(in_transformers())
    found = float(torch.nn.functional.cross_entropy(out.double(), ids[0, -len(out):]).exp())
    row = kvs.simulate.perplexity(model=str(SAMPLES / "draft"), selectors=[name], budgets=budget, tokens=str(path), max_tokens=448, offset=0,
                                  windows=1, threads=1, progress=False, no_special_tokens=True, mode=phase, chunk=chunk,
                                  prefill=n_prompt / 448 if phase == "decode" else 0).iloc[0]
    assert abs(found / row["perplexity"] - 1) < TIED.get(name, 1e-3)


@pytest.mark.parametrize("engine", ["cpp", "torch"])
def test_generate_in_chunks(model, engine):
    """transformers hands queries over with tokens before heads in memory."""
    ids, texts = token_ids(40), []
    for spec in ("quoka@tokens=9", "keydiff@tokens=12", "sparq:mean-value=false@tokens=8"):
        with kvs.policy(model, spec, engine=engine):
            found = generated(model, ids, prefill_chunk_size=16)
        with kvs.policy(model, spec, engine="cpp"):
            texts.append(torch.equal(found.sequences, generated(model, ids, prefill_chunk_size=16).sequences))
    assert all(texts)


def test_compiled_models_choose_as_others_do(model):
    """Compiled before, inside and after the block: the policy's calls stay outside of the graphs."""
    ids, spec = token_ids(40), "streamingllm@tokens=8"
    with torch.no_grad():
        plain = model(ids).logits
        compiled = torch.compile(model, backend="eager")
        torch.testing.assert_close(compiled(ids).logits, plain, rtol=0, atol=1e-5)
        with kvs.policy(model, spec) as policy:
            expected = model(ids).logits
        with kvs.policy(model, spec) as again:
            found = compiled(ids).logits
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        assert (expected - plain).abs().max() > 1e-3 and policy.kept == again.kept < 1.0
        torch.testing.assert_close(compiled(ids).logits, plain, rtol=0, atol=1e-5)
