"""What cannot be recorded says why; what was whole survives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import h5py
import pytest
import torch
from conftest import IS_FIVE, ROOT, left_over, small_llama, token_ids
from transformers import (
    BertConfig,
    BertModel,
    DynamicCache,
    GPT2Config,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForCausalLM,
)

import kvscope as kvs
from kvscope_recorder import CaptureSet, ConfigError, DataError, RecordError, UnsupportedModelError, record


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layers": [5]}, r"layer 5 cannot be recorded: the model has 0 to 1"),
        ({"layers": []}, "the list is empty"),
        ({"capture": "atn"}, r"expected attn-topk=N or one of .* found 'atn'"),
        ({"capture": "attn-topk=0"}, "N of 1 or more"),
        ({"capture": "no-qkv,no-lse"}, "nothing to capture"),
        ({"rows": (4, 2)}, "0 <= begin < end"),
        ({"rows": 3}, r"expected \(begin, end\)"),
        ({"dtype": "f64"}, "expected auto, f32, f16, bf16"),
        ({"page_size": 0}, "page_size"),
        ({"seed": -1}, "seed: expected a whole number of 0"),
        ({"tokenizer": object()}, "expected a fast tokenizer"),
    ],
)
def test_options_that_make_no_sense(tmp_path, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        record(small_llama(), tmp_path / "trace.h5", **options)
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("fields", [{"page_size": 16.0}, {"logits": 1}, {"page_size": 2**64}, {"lse": None}])
def test_a_header_of_wrong_types_is_refused(tmp_path, fields):
    model = small_llama()
    with pytest.raises(ConfigError, match="capture: a trace cannot hold"):
        with record(model, tmp_path / "trace.h5", capture=CaptureSet(**fields)):
            model(token_ids(4))
    assert left_over(tmp_path) == []


def test_heads_are_checked_at_the_first_pass(tmp_path):
    model = small_llama()
    with pytest.raises(ConfigError, match="query head 9 cannot be recorded: the model has 0 to 3"):
        with record(model, tmp_path / "trace.h5", heads=[9]):
            model(token_ids(4))
    assert left_over(tmp_path) == []


def test_places_that_cannot_be_written(tmp_path):
    model = small_llama()
    (tmp_path / "there.h5").write_text("x")
    for name, sentence in (("there.h5", "exists"), ("no/trace.h5", "no folder"), (".", "is a folder"), ("a.part", "end in .part")):
        with pytest.raises(ConfigError, match=sentence):
            record(model, tmp_path / name)
    assert (tmp_path / "there.h5").read_text() == "x"
    with pytest.raises(ConfigError, match="there.h5"):  # no trace
        record(model, tmp_path / "there.h5", overwrite=True)


def test_names_that_are_not_utf8(tmp_path, kvscope):
    model, path = small_llama(), os.fsdecode(os.fsencode(tmp_path) + b"/\xff.h5")
    with record(model, path, text_source=path, seed=2**64 - 1):
        model(token_ids(4))
    kvscope("verify", path)
    with kvs.open(path) as trace:
        assert trace.path == path and kvs.analyze.heads(trace, threads=1).kind == "heads"
        kvs.sweep(trace, "full", out=path[:-3] + ".csv")
    assert set(kvs.open(path[:-3] + ".csv").rows.selector) == {"full"}


def steps(model, n, cache=None):
    cache = cache if cache is not None else DynamicCache(config=model.config)
    for _ in range(n):
        model(token_ids(1), past_key_values=cache)
    return cache


def test_what_appears_meanwhile_is_not_replaced(tmp_path):
    model, path = small_llama(), tmp_path / "trace.h5"
    with pytest.raises(RecordError, match="File exists.*kvscope recover"):
        with record(model, path):
            cache = steps(model, 3)
            while not path.with_name("trace.h5.part").exists():
                time.sleep(0.01)
            path.write_text("x")
            steps(model, 40, cache)
    assert path.read_text() == "x"


def test_a_recorder_is_used_once(tmp_path):
    model = small_llama()
    recorder = record(model, tmp_path / "trace.h5")
    with recorder:
        model(token_ids(4))
    with pytest.raises(RecordError, match="records once"):
        with recorder:
            model(token_ids(4))


def test_processes_that_are_forked_meanwhile(tmp_path, kvscope):
    """A child has the open files too: their locks must not outlive the recorder's own hold on them."""
    model, children, is_over = small_llama(), [], threading.Event()
    paths = [tmp_path / "a.h5", tmp_path / "b.h5", tmp_path / "c.h5"]

    def fork():
        while not is_over.wait(0.005):
            children.append(os.fork())
            if children[-1] == 0:
                time.sleep(60)
                os._exit(0)

    thread = threading.Thread(target=fork)
    thread.start()
    try:
        for path in paths:
            with record(model, path):
                steps(model, 4)
    finally:
        is_over.set()
        thread.join()
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    for path in paths:
        kvscope("verify", path)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda model: model(torch.zeros((2, 4), dtype=torch.long)), "batch size 1"),
        (lambda model: model(inputs_embeds=torch.zeros(1, 4, 32)), "no input_ids"),
        (lambda model: (model(token_ids(8)), model(token_ids(4) * 0)), "second sequence"),
        (lambda model: model.model(token_ids(4)), "outside of a forward pass"),
        (lambda model: model.generate(token_ids(4), num_beams=2, max_new_tokens=2), "no beam search"),
        (lambda model: None, "the model was not called"),
    ],
)
def test_runs_that_a_trace_cannot_hold(tmp_path, call, sentence):
    model = small_llama()
    with pytest.raises(RecordError, match=sentence):
        with record(model, tmp_path / "trace.h5"):
            call(model)
    assert "trace.h5" not in left_over(tmp_path)
    model(token_ids(4))  # nothing of the recorder is left in the model


def test_models_that_a_trace_cannot_hold(tmp_path):
    t5 = T5ForConditionalGeneration(T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=32))
    with pytest.raises(UnsupportedModelError, match="encoder-decoder"):
        record(t5, tmp_path / "trace.h5")
    with pytest.raises(UnsupportedModelError, match="expected a transformers model"):
        record(torch.nn.Linear(2, 2), tmp_path / "trace.h5")

    class Own(torch.nn.Module):
        config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32)

    with pytest.raises(UnsupportedModelError, match="does not go through transformers' attention interface"):
        with record(Own(), tmp_path / "trace.h5"):
            pass
    bert = BertModel(BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=32))
    # BERT's attention goes through the interface in transformers 5 only.
    with pytest.raises(UnsupportedModelError, match="is not causal attention" if IS_FIVE else "does not go through"):
        with record(bert, tmp_path / "trace.h5"):
            bert(token_ids(5, 32))
    assert left_over(tmp_path) == []


def test_the_decoder_of_an_encoder_decoder_alone(tmp_path):
    sizes = dict(vocab_size=32, d_model=16, decoder_ffn_dim=16, encoder_ffn_dim=16, encoder_layers=3, decoder_layers=2,
                 encoder_attention_heads=4, decoder_attention_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                 decoder_start_token_id=1)
    model = WhisperForCausalLM(WhisperConfig(max_target_positions=32, **sizes)).eval()
    with record(model, tmp_path / "trace.h5"):
        model(token_ids(5, 32))
    with h5py.File(tmp_path / "trace.h5") as file:
        assert list(file["recorded/layers"][()]) == [0, 1]  # the decoder's, not as many as the encoder has
        assert file.attrs["n_q"] == 2
    with pytest.raises(UnsupportedModelError, match="layer 0 attends twice .*cross attention"):
        with record(model, tmp_path / "cross.h5"):
            model(token_ids(5, 32), encoder_outputs=(torch.randn(1, 7, 16),))


def test_one_recorder_at_a_time_and_two_models_side_by_side(tmp_path):
    first, second = small_llama(), small_llama(num_hidden_layers=1)
    with record(first, tmp_path / "1.h5"):
        with pytest.raises(UnsupportedModelError, match="one recorder at a time"):
            with record(first, tmp_path / "x.h5"):
                pass
        with record(second, tmp_path / "2.h5"):
            second(token_ids(5))
            first(token_ids(6))
    with h5py.File(tmp_path / "1.h5") as one, h5py.File(tmp_path / "2.h5") as two:
        assert (one.attrs["n_tokens"], two.attrs["n_tokens"]) == (6, 5)
        assert (len(one["/layers"]), len(two["/layers"])) == (2, 1)


@torch.no_grad()
def test_nan_names_its_element_and_keeps_what_was_whole(tmp_path, kvscope):
    model = small_llama()
    with pytest.raises(DataError, match=r"/layers/1/v: head slot 1, position 6, element 3 is NaN.*'kvscope recover"):
        with record(model, tmp_path / "trace.h5"):
            out = model(token_ids(6))
            model.model.layers[1].self_attn.v_proj.register_forward_hook(
                lambda module, args, y: y.index_fill(2, torch.tensor([11]), float("nan")))
            model(torch.tensor([[1]]), past_key_values=out.past_key_values)
    assert left_over(tmp_path) == ["trace.h5.part"]
    kvscope("recover", tmp_path / "trace.h5.part")
    with pytest.raises(DataError, match="does not fit f16 .65504 at most.: record in bf16 or f32"):
        model = small_llama()
        model.model.layers[0].self_attn.v_proj.weight.mul_(1e6)
        with record(model, tmp_path / "f16.h5", dtype="f16"):
            model(token_ids(6))


@torch.no_grad()
def test_an_exception_in_the_block_leaves_an_interrupted_trace(tmp_path, kvscope):
    model = small_llama()
    with pytest.raises(KeyboardInterrupt):
        with record(model, tmp_path / "trace.h5", max_new_tokens=50):
            model.generate(token_ids(9), max_new_tokens=3, min_new_tokens=3, do_sample=False)
            raise KeyboardInterrupt
    kvscope("verify", tmp_path / "trace.h5")
    with h5py.File(tmp_path / "trace.h5") as trace:
        assert trace.attrs["status"] == b"interrupted" and trace.attrs["n_tokens"] == 11


def test_a_killed_recording_can_be_recovered(tmp_path, kvscope):
    script = textwrap.dedent("""
        import os, signal, sys, torch
        from conftest import small_llama, token_ids
        from kvscope_recorder import record
        model = small_llama()
        with record(model, sys.argv[1]) as recorder, torch.no_grad():
            model.generate(token_ids(12), max_new_tokens=6, min_new_tokens=6, do_sample=False)
            recorder._worker.submit(lambda: os.kill(os.getpid(), signal.SIGKILL))
            recorder._worker.close()
    """)
    part, out = tmp_path / "trace.h5.part", tmp_path / "trace.h5"
    paths = [str(ROOT / "traces" / "python" / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    run = subprocess.run([sys.executable, "-c", script, out], env=environment, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    with pytest.raises(ConfigError, match="left over from a recording that did not end"):
        model = small_llama()
        with record(model, out):
            model(token_ids(4))
    kvscope("recover", part)
    recovered = next(path for path in tmp_path.iterdir() if path != part)
    kvscope("verify", recovered)
    with h5py.File(recovered) as trace:
        assert trace.attrs["status"] == b"recovered" and trace.attrs["n_tokens"] == 17
