"""The example of lm-evaluation-harness runs: full is the plain model, a method attends to less."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'lm-eval[hf]')")
pytest.importorskip("kvscope._native", reason="the native module was not built")

EXAMPLE = Path(__file__).parents[1] / "examples" / "lm_eval_policy.py"


def test_the_example(monkeypatch):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    spec = importlib.util.spec_from_file_location("lm_eval_policy", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    rows = example.evaluate(str(example.SAMPLES / "draft"), ["plain", "full", "recent@tokens=24"], chunk=32, limit=3, n_words=60)
    assert rows["plain"] == rows["full"] and rows["plain"]["kept"] == 1.0
    assert 0.2 < rows["recent@tokens=24"]["kept"] < 0.9
    assert rows["recent@tokens=24"]["perplexity"] != rows["plain"]["perplexity"]
