"""The package kvscope: data, commands, figures; its numbers are the command line's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402

PROGRAM = os.environ.get("KVSCOPE_PROGRAM")
needs_program = pytest.mark.skipif(not PROGRAM, reason="KVSCOPE_PROGRAM names no kvscope program")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kvscope")


@pytest.fixture(scope="session")
def trace(folder: Path) -> str:
    """The embedded draft on 256 tokens, 8 of them decoded."""
    path = str(folder / "draft.h5")
    kvs.run("record", path, model="draft", max_tokens=248, decode=8, chunk=64, progress=False)
    return path


def terminal(*words: object) -> str:
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=True).stdout


def test_import_brings_no_torch():
    code = "import sys, kvscope; kvscope.sweep; kvscope.selector; assert 'torch' not in sys.modules and 'h5py' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# Data


def test_lazy_arrays_read_like_arrays(trace):
    layer = kvs.open(trace)[1]
    whole = np.asarray(layer.k)
    assert whole.shape == layer.k.shape == (2, 256, 32) and whole.dtype == np.float32
    np.testing.assert_array_equal(layer.k[1], whole[1])
    np.testing.assert_array_equal(layer.k[1, 10:20], whole[1, 10:20])
    np.testing.assert_array_equal(layer.k[:, -1], whole[:, -1])
    np.testing.assert_array_equal(layer.k[0, 3:200:7, 5], whole[0, 3:200:7, 5])
    np.testing.assert_array_equal(layer.k[[1, 0], 4], whole[[1, 0], 4])
    np.testing.assert_array_equal(np.from_dlpack(layer.v), layer.v[:])
    assert "lse of layer 1" in repr(layer.lse)
    with pytest.raises(IndexError, match="expected one of 256"):
        layer.k[0, 256]
    with pytest.raises(kvs.UsageError, match="layer 9 is not recorded"):
        kvs.open(trace)[9]


def test_attention_rows_are_softmax(trace):
    opened = kvs.open(trace)
    layer, head, pos = opened[2], 4, 200
    scores = layer.q[head, pos].astype("f8") @ layer.k[head // opened.group, : pos + 1].astype("f8").T * opened.score_scale
    expected = np.exp(scores - scores.max())
    expected /= expected.sum()
    row = layer.attention(head, pos)
    assert row.shape == (256,) and not row[pos + 1 :].any()
    np.testing.assert_allclose(row[: pos + 1], expected, rtol=1e-9, atol=1e-15)
    assert layer.attention(head, [3, 200]).shape == (2, 256)
    np.testing.assert_allclose(np.log(np.exp(scores).sum()), layer.lse[head, pos], rtol=1e-5)


def test_logits_give_the_texts_perplexity(trace, folder):
    path = str(folder / "logits.h5")
    kvs.run("record", path, model="draft", max_tokens=96, rows="16:64", capture="logits", progress=False)
    opened = kvs.open(path)
    logits = opened.logits()
    assert logits.shape[0] == 48 and logits.dtype == np.float32
    np.testing.assert_array_equal(opened.logits(20, 22), logits[4:6])
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(48), opened.tokens[17:65]]
    assert losses.mean() < np.log(logits.shape[1]) / 2  # the model has learned something
    with pytest.raises(kvs.UsageError, match="not in the recorded range 16 to 64"):
        opened.logits(10, 20)
    with pytest.raises(kvs.UsageError, match="logits"):
        kvs.open(trace).logits()


def test_missing_and_wrong_files(tmp_path):
    with pytest.raises(kvs.InputError, match="No such file"):
        kvs.open(tmp_path / "none.h5")
    (tmp_path / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))
    with pytest.raises(kvs.InputError):
        kvs.open(tmp_path / "bad.h5")


# The same numbers as the command line


def same(table, rows) -> None:
    assert list(table.columns) == list(rows[0])
    found = json.loads(json.dumps(table.astype(object).where(table.notna(), None).to_dict("records")))
    assert found == json.loads(json.dumps(rows))


@needs_program
def test_sweep_is_the_command_lines(trace):
    table = kvs.sweep(trace, ["quest:dense-layers=0", "oracle-topk"], budgets=[16, "ratio=0.2"], phase="decode", steps=3)
    report = json.loads(terminal("sweep", trace, "--selector", "quest:dense-layers=0,oracle-topk", "--budget",
                                 "tokens=16,ratio=0.2", "--phase", "decode", "--steps", 3, "--json"))
    same(table, report["rows"])
    assert table.attrs["command_line"] == report["command_line"]
    assert table.attrs["columns"]["mass_mean"]


@needs_program
@pytest.mark.parametrize("kind, options", [("quoka", {"budget": 32, "chunk": 64}), ("quest", {"budget": 32}), ("theorem_b1", {})])
def test_analyses_are_the_command_lines(trace, kind, options):
    found = getattr(kvs.analyze, kind)(trace, **options)
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    report = json.loads(terminal("analyze", kind.replace("_", "-"), trace, *words, "--json"))
    assert found.report == report
    assert len(found.layers) == 4 and kind.replace("_", "-") in repr(found)


def test_analysis_keeps_arrays_with_units(trace, folder):
    pytest.importorskip("xarray")
    out = str(folder / "quest.h5")
    found = kvs.analyze.quest(trace, budget=32, out=out, overwrite=True)
    result = kvs.open(out)
    assert result.kind == "quest" and "quest" in repr(result) and "<table>" in result._repr_html_()
    dataset = found.arrays
    assert set(dataset) and all("long_name" in dataset[name].attrs for name in dataset)
    with pytest.raises(kvs.UsageError, match="without out=FILE"):
        kvs.analyze.quest(trace, budget=32).arrays


def test_errors_are_the_command_lines(trace):
    with pytest.raises(kvs.UsageError, match="unknown selector qest: did you mean quest"):
        kvs.sweep(trace, "qest", budgets=[8])
    with pytest.raises(kvs.UsageError, match="unknown option nonsense"):
        kvs.sweep(trace, "quest", budgets=[8], nonsense=1)
    with pytest.raises(kvs.InputError, match="No such file"):
        kvs.sweep("/nowhere.h5", "quest", budgets=[8])
    with pytest.raises(AttributeError, match="kvs.analyze has no nothing: expected one of .*quoka"):
        kvs.analyze.nothing(trace)


def test_what_is_left_out_is_a_warning(trace):
    with pytest.warns(UserWarning, match="left out"):
        table = kvs.sweep(trace, ["streamingllm", "oracle-topp"], budgets=[16])
    assert set(table["selector"]) == {"streamingllm"} and table.attrs["skipped"]
    with pytest.warns(UserWarning, match="every key is kept"):
        kvs.sweep(trace, "quoka", budgets=[100_000])


# Figures, progress, Ctrl-C


def test_figure_shows_and_saves(trace, folder):
    table = kvs.sweep(trace, ["streamingllm", "recent"], budgets=[16, 32])
    figure = kvs.figure("budget", table, metric="mass")
    assert figure._repr_svg_().lstrip().startswith("<?xml") or "<svg" in figure.svg
    for ending in ("svg", "pdf"):
        assert figure.save(folder / f"mass.{ending}").stat().st_size > 500
    assert (folder / "mass.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(kvs.UsageError):
        kvs.figure("no-such-figure", table)


def test_progress_is_told(trace):
    seen = []
    kvs.sweep(trace, "recent", budgets=[16], progress=lambda *told: seen.append(told))
    stage, done, total, unit = seen[-1]
    assert done <= total and isinstance(stage, str) and isinstance(unit, str)


def test_interrupt_leaves_no_half_file(folder):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
    out = folder / "interrupted.h5"
    before = set(folder.iterdir())
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        kvs.simulate.perplexity(model="verifier", selectors="recent", budgets=[64], max_tokens=20000, prefill=0.1,
                                out=str(out), progress=False)
    assert time.monotonic() - start < 300
    assert not out.exists()
    assert {path.suffix for path in set(folder.iterdir()) - before} <= {".store"}  # finished work, for --resume
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    kvs.run("version", progress=False)  # and the next command runs


def test_one_command_at_a_time(trace):
    seen = []

    def again(*_: object) -> None:
        try:
            kvs.run("version")
        except kvs.UsageError as error:
            seen.append(str(error))

    kvs.sweep(trace, "recent", budgets=[16, 32, 64], progress=again)
    assert all("inside another one's selector or progress function" in sentence for sentence in seen)


def test_commands_of_other_threads_wait(trace):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda n: kvs.sweep(trace, "recent", budgets=n, progress=False), [16, 32, 48, 64]))
    assert [sorted(set(table["budget"])) for table in tables] == [[16.0], [32.0], [48.0], [64.0]]


def test_equal_rows_have_equal_intervals(trace):
    """The bootstrap draws a trace's calls, the same for every method."""
    @kvs.selector(name="own-interval", budgets=["tokens"])
    def own_interval(n_kv, pos_begin):
        return np.tile(np.arange(pos_begin, dtype=float), (n_kv, 1))

    table = kvs.sweep(trace, ["recent", own_interval], budgets=[64], chunk=32, progress=False)
    rows = [table[table["selector"] == name].reset_index(drop=True) for name in ("recent", "own-interval")]
    for column in ("mass_mean", "mass_low", "mass_high", "recall10_low", "output_error_rel_high"):
        assert rows[0][column].equals(rows[1][column]) and rows[0][column].notna().all()


def test_values_are_those_of_numpy_and_pandas(trace):
    import pandas as pd

    expected = kvs.sweep(trace, "recent", budgets="tokens=16,ratio=0.25", layers="0,1", progress=False)
    for budgets in ([16, 0.25], (np.int64(16), np.float32(0.25)), pd.Series([16, 0.25]), np.array([16, 0.25]), iter([16, 0.25])):
        for name in ("budget", "budgets"):
            budgets = list(budgets)
            found = kvs.sweep(trace, "recent", layers=np.array([0, 1]), progress=False, **{name: budgets})
            assert found.equals(expected) and len(found)
    for budgets in (b"1", [None], [True]):
        with pytest.raises(kvs.UsageError, match="budget: expected a number of tokens"):
            kvs.sweep(trace, "recent", budgets=budgets)
    with pytest.raises(kvs.UsageError, match="unknown option budgt. Did you mean budget[?]$"):
        kvs.sweep(trace, "recent", budgt=[64])


def test_console_command(trace):
    done = subprocess.run([sys.executable, "-m", "kvscope", "info", trace, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["n_tokens"] == 256
    done = subprocess.run([sys.executable, "-m", "kvscope", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2 and "unknown command nothing" in done.stderr


def test_explorer_command_says_when_there_is_none():
    environment = {name: value for name, value in os.environ.items() if name != "KVSCOPE_EXPLORER"}
    code = "import sys; from kvscope.explorer import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "--help"], env=environment, capture_output=True, text=True)
    if (Path(kvs.__file__).parent / "bin" / "kvscope-explorer").is_file():
        assert done.returncode == 0 and "usage: kvscope-explorer" in done.stdout
    else:
        assert done.returncode == 3 and "built without the explorer" in done.stderr


def test_metadata_is_whole():
    about = metadata.metadata("kvscope")
    for field in ("Author", "License-Expression", "License-File", "Project-URL", "Classifier", "Keywords", "Requires-Python"):
        assert about[field], field
    assert about["Version"] == kvs.__version__ == kvs.run("version", progress=False).text.split()[1]
    assert any(str(file).endswith("licenses/LICENSE") for file in metadata.files("kvscope") or [])
