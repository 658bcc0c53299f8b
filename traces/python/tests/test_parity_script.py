"""tests/bench/parity_with_transformers.py: checkpoints here agree, another model's weights do not, and what is missing is said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import GOLDEN, IS_FIVE, ROOT, SAMPLES

PROGRAM = os.environ.get("KVSCOPE_PROGRAM")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PROGRAM, reason="no kvscope program"),
              pytest.mark.skipif(not IS_FIVE, reason="config.json files of the fifth generation")]


def compare(model: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tests" / "bench" / "parity_with_transformers.py", "--kvscope", PROGRAM, "--json",
         "--max-tokens", "96", "--model", str(model), *words],
        capture_output=True, text=True)


@pytest.mark.parametrize("model", [GOLDEN / "gemma2", GOLDEN / "gpt_oss", SAMPLES / "draft"], ids=lambda path: path.name)
def test_checkpoints_agree(model: Path) -> None:
    done = compare(model)
    assert done.returncode == 0, done.stderr or done.stdout
    report = json.loads(done.stdout)
    assert report["agree"] and report["tokens"] == 96 and report["logits"]["same_top"] == 1.0
    assert report["same_ids"] is (True if (model / "tokenizer.json").exists() else None)
    assert {"q", "k", "v", "lse"} < set(report["layers"][0])


def test_a_tolerance_that_rounding_exceeds() -> None:
    done = compare(GOLDEN / "qwen3", "--tolerance", "1e-12")
    assert done.returncode == 1 and not json.loads(done.stdout)["agree"]


def test_a_folder_without_weights(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "qwen3" / "config.json", tmp_path)
    done = compare(tmp_path)
    assert done.returncode == 2 and "kvscope record ended with code" in done.stderr
