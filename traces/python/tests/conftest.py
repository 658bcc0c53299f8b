"""What the tests share: small models, the golden references, the kvscope program."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = Path(os.environ.get("KVSCOPE_GOLDEN", ROOT / "tests" / "golden"))
SAMPLES = ROOT / "traces" / "samples"

torch.set_num_threads(1)  # tiny models: more threads only wait for each other


def golden_folders() -> list[str]:
    return sorted(path.parent.name for path in GOLDEN.glob("*/golden.h5") if (path.parent / "config.json").is_file())


#: Transformers of the fifth generation: configurations call RoPE's settings rope_parameters, and much else.
IS_FIVE = int(transformers.__version__.split(".")[0]) >= 5


def load(folder: Path | str, **options: object) -> torch.nn.Module:
    """The checkpoint in eval mode. Transformers 4 gets what a config.json of version 5 calls otherwise in its own words."""
    settings = json.loads((Path(folder) / "config.json").read_text())
    if not IS_FIVE:
        config = AutoConfig.from_pretrained(folder)
        rope = settings.get("rope_parameters")
        if rope:
            config.rope_local_base_freq = rope.get("sliding_attention", {}).get("rope_theta")
            rope = dict(rope.get("full_attention", rope))
            config.rope_theta = rope.pop("rope_theta")
            config.partial_rotary_factor = rope.pop("partial_rotary_factor", 1.0)
            config.rope_scaling = rope if rope.get("rope_type", "default") != "default" else None
        if "num_local_experts" in settings:
            config.num_experts = settings["num_local_experts"]
        options["config"] = config
    return AutoModelForCausalLM.from_pretrained(folder, **options).eval()


def small_llama(**changes: object) -> torch.nn.Module:
    """Two layers, four query heads, two KV heads, random weights."""
    torch.manual_seed(1)
    shape = dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, vocab_size=64, max_position_embeddings=512, initializer_range=0.3,
    )
    return LlamaForCausalLM(LlamaConfig(**(shape | changes))).eval()


def token_ids(n: int, vocab: int = 64) -> torch.Tensor:
    return torch.randint(0, vocab, (1, n), generator=torch.Generator().manual_seed(7))


def array(file: h5py.File, path: str) -> np.ndarray:
    return file[path][...].astype("f4")


def probabilities(trace: h5py.File, layer: int, window: int = 0) -> np.ndarray:
    """softmax(q k^T) of all rows [query heads, T, T], three loops long; needs a trace of all rows and heads."""
    q, k = (array(trace, f"/layers/{layer}/{name}").astype("f8") for name in ("q", "k"))
    group = q.shape[0] // k.shape[0]
    out = np.zeros((q.shape[0], q.shape[1], q.shape[1]))
    for head in range(q.shape[0]):
        for row in range(q.shape[1]):
            first = max(0, row + 1 - window) if window else 0
            score = trace.attrs["score_scale"] * k[head // group, first : row + 1] @ q[head, row]
            weight = np.exp(score - score.max())
            out[head, row, first : row + 1] = weight / weight.sum()
    return out


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="session")
def program() -> Path:
    """The kvscope program; tests that need it are skipped where there is none, unless KVSCOPE_PROGRAM names it."""
    named = os.environ.get("KVSCOPE_PROGRAM")
    candidates = [Path(named)] if named else sorted(ROOT.glob("build/*/bin/kvscope"))
    found = [path for path in candidates if path.is_file()]
    if not found:
        assert not named, f"KVSCOPE_PROGRAM={named} does not exist"
        pytest.skip("no kvscope program: build it or set KVSCOPE_PROGRAM")
    return found[0]


@pytest.fixture(scope="session")
def kvscope(program: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*args: object, ok: bool = True) -> subprocess.CompletedProcess[str]:
        result = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=240)
        assert not ok or result.returncode == 0, f"kvscope {args}: {result.stdout}\n{result.stderr}"
        return result

    return run


@pytest.fixture
def write_ids(tmp_path: Path) -> Callable[[torch.Tensor], Path]:
    def write(ids: torch.Tensor) -> Path:
        path = tmp_path / "ids.json"
        path.write_text(json.dumps(ids.flatten().tolist()))
        return path

    return write
