"""What type checkers, editors and inspect.signature know of the package: right lines pass, wrong ones do not."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402
from kvscope import signatures  # noqa: E402

HEAD = """
import numpy as np
import pandas as pd
import xarray as xr
import kvscope as kvs

trace = kvs.Trace("trace.h5")
result = kvs.Result("result.h5")
table = kvs.sweep(trace, "quest")

@kvs.selector(name="mine", owner="kv_head", phases=["decode"])
def mine(q, k, budget, alpha=0.5):
    return kvs.top(k @ q, budget)
"""

RIGHT = """
a1: pd.DataFrame = kvs.sweep(trace, ["quest:page-size=32", mine, mine(alpha=1.0)], budgets=[64, "ratio=0.1"], layers="0-3")
a2: pd.DataFrame = kvs.sweep(["a.h5", trace], "quest", 64, "decode", steps=4, rows_per_chunk="all", threads=1, progress=False)
a3: str = kvs.analyze.quoka(trace, budget=64, queries="nearest", force_self=False, out="quoka.h5").kind
a4: pd.DataFrame = kvs.analyze.theorem_b1("trace.h5").layers
a5: kvs.Analysis = kvs.analyze.layer_map("verifier.h5", "draft.h5")
a6: xr.Dataset = kvs.analyze.quest(trace, out="quest.h5").arrays
a7: pd.DataFrame = kvs.simulate.perplexity(model="draft", selectors=["full", mine], budgets=64, mode="prefill", max_tokens=512)
a8: str = kvs.run("record", "trace.h5", model="draft", max_tokens=64, capture=["logits", "stats"]).text
a9: kvs.Outcome = kvs.run("analyze", "quoka", trace, json=True)
a10: kvs.Outcome = kvs.run("fit", "draft", model="draft", n_layers=2)
a11: kvs.Outcome = kvs.run(str(table.shape), "trace.h5", progress=lambda stage, done, total, unit: None)
a12: kvs.Figure = kvs.figure("budget", table, result, metric="mass", venue="acl")
a13: np.ndarray = trace[2].k[0, 10:20]
a14: xr.DataArray = trace[2].q.to_xarray()
a15: float = trace.score_scale * trace.n_tokens
a16: kvs.Trace | kvs.Result = kvs.open("trace.h5", allow_partial=True)
a17: pd.DataFrame = result.rows
a18: xr.DataArray = result["s_q"]
a19: kvs.OwnSelector = mine(alpha=0.25)
a20: dict[str, np.ndarray] = kvs.export(kvs.select(trace, mine, 64, layer=2, pos=100, phase="decode"), "flashmla")
a21: bytes = kvs.show(trace, 2, 100, picture=True).png
a22: float = kvs.policy(None, mine, budget=64, phases="decode").__enter__().kept_by_phase["decode"]
a23: str = kvs.policy.attn_implementation("recent@tokens=256", engine="torch")
a24: list[float] = [float(row.sum()) for layer in trace for row in layer.attention(0, [4, 5])]
"""

WRONG = """
kvs.sweep(trace, "quest", budgt=64)
kvs.sweep(trace, "quest", [64], "decoding")
kvs.sweep(trace)
kvs.sweep(trace, 64)
kvs.sweep(trace, "quest", chunk="many")
kvs.sweep(trace, "quest").groupbyy("selector")
kvs.analyze.nonsense(trace)
kvs.analyze.quoka(trace, buget=64)
kvs.analyze.quoka(trace, queries="nearestt")
kvs.analyze.quoka()
kvs.analyze.quoka(trace).layer
kvs.simulate.perplexity(modell="draft")
kvs.simulate.perplexity(mode="decoding")
kvs.run("record", "trace.h5", max_token=64)
kvs.run("analyze", "quoka", trace, theme="dark")
kvs.run("recrod", "trace.h5", model="draft")
kvs.figure("budget", table, venue="nature")
kvs.figure("budget", table).sav("mass.pdf")
kvs.selector(owner="kv_hed")
kvs.selector(phases=["decoding"])
kvs.export(kvs.select(trace, "quest", 64, layer=2, pos=100), "flashml")
kvs.select(trace, "quest", 64, layer=2)
trace.n_token
trace["k"]
trace[2].kk
kvs.show(trace).png
kvs.opn("trace.h5")
kvs.policy(None, "quest", bugdet=64)
kvs.policy(None, "quest", budget=64, phases="decoding")
"""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


def of_mypy(folder: Path) -> list[tuple[int, str]]:
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(folder), "lines.py"], cwd=folder, capture_output=True,
                          text=True)
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
    return [(int(line), text) for line, text in re.findall(r"^lines\.py:(\d+): error: (.*)$", done.stdout, re.M)]


def of_basedpyright(folder: Path) -> list[tuple[int, str]]:
    """Pyright's checker, in a package that needs no other registry; its own mode of strictness is pyright's here."""
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", "lines.py"], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
    return [(one["range"]["start"]["line"] + 1, one["message"]) for one in json.loads(done.stdout)["generalDiagnostics"]
            if one["severity"] == "error"]


@pytest.fixture(scope="module", params=[pytest.param(of_mypy, marks=pytest.mark.slow), of_basedpyright], ids=["mypy", "pyright"])
def errors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """What a type checker says of the right lines and then the wrong ones, by line."""
    name = request.param.__name__.removeprefix("of_")
    pytest.importorskip(name, reason=f"{name} is not installed")
    pytest.importorskip("xarray", reason="xarray is not installed")
    folder = tmp_path_factory.mktemp("types")
    (folder / "lines.py").write_text("\n".join(lines(HEAD) + lines(RIGHT) + lines(WRONG)) + "\n", encoding="utf-8")
    said: dict[int, str] = {}
    for line, text in request.param(folder):
        said.setdefault(line, text)
    return said


def test_right_lines_pass(errors):
    end = len(lines(HEAD)) + len(lines(RIGHT))
    assert {line: text for line, text in errors.items() if line <= end} == {}


@pytest.mark.parametrize("at", range(len(lines(WRONG))), ids=lines(WRONG))
def test_a_wrong_line_is_an_error(errors, at):
    if "groupbyy" in lines(WRONG)[at]:
        pytest.importorskip("pandas-stubs", reason="pandas-stubs is not installed")
    assert len(lines(HEAD)) + len(lines(RIGHT)) + 1 + at in errors


def test_the_stub_is_of_this_module():
    stub = Path(kvs.__file__).parent / "_commands.pyi"
    if not stub.is_file():
        pytest.skip("the module has sanitizers, and no stub")
    assert stub.read_text(encoding="utf-8") == signatures.stub(list(signatures.table().values()))


def test_signatures_are_the_programs():
    shown = inspect.signature(kvs.sweep)
    assert list(shown.parameters)[:5] == ["traces", "selectors", "budgets", "phase", "progress"]
    assert shown.parameters["chunk"].default == 128 and shown.return_annotation == "DataFrame"
    for group, functions in (("analyze", kvs.analyze), ("simulate", kvs.simulate)):
        for kind in dir(functions):
            about = signatures.table()[f"{group} {kind.replace('_', '-')}"]
            named = {spec["name"].replace("-", "_") for spec in about["options"]} - {"help", "json", "selector", "budget"}
            assert named <= set(inspect.signature(getattr(functions, kind)).parameters)
    assert "venue" in inspect.signature(kvs.figure).parameters


def test_truth_values_and_repeated_options_are_said_as_the_program_reads_them(tmp_path):
    trace = str(tmp_path / "draft.h5")
    kvs.run("record", trace, model="draft", max_tokens=64, progress=False)
    assert kvs.analyze.quoka(trace, budget=8).options["force_self"] is True
    assert kvs.analyze.quoka(trace, budget=8, force_self=False).options["force_self"] is False
    rows = tmp_path / "rows.csv"
    kvs.sweep(trace, ["recent", "streamingllm"], [8, 16]).to_csv(rows)
    text = kvs.run("table", str(rows), rows=["selector"], columns=["budget"], value=["mass_mean"],
                   name=["recent=Last, and no more", "streamingllm=First and last"], format="csv").text
    assert "Last, and no more" in text and "First and last" in text
    assert json.loads(kvs.run("version", json=True).text)
