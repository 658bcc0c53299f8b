"""On a GPU: asynchronous copies arrive whole, the kernels' own log-sum-exp is that of the stored q and k, and the checks of
cuda_check.py, which a GPU machine can run without pytest."""

from __future__ import annotations

import subprocess
import sys

import cuda_check
import h5py
import numpy as np
import pytest
import torch
from conftest import array, small_llama, token_ids
from transformers import DynamicCache

from kvscope_recorder import record

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@needs_gpu
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@torch.no_grad()
def test_cuda(tmp_path, dtype, implementation):
    model = small_llama(head_dim=16, num_hidden_layers=4).to("cuda", dtype)
    model.set_attn_implementation(implementation)
    cache = DynamicCache(config=model.config)
    path = tmp_path / "trace.h5"
    with record(model, path, capture="attn,attn-topk=4,stats", queue_bytes=1 << 20):
        out = model.generate(token_ids(300).cuda(), past_key_values=cache, max_new_tokens=20, min_new_tokens=20, do_sample=False)
    with h5py.File(path) as trace:
        np.testing.assert_array_equal(trace["/tokens"], out[0, :-1].cpu())
        for layer in range(4):
            np.testing.assert_array_equal(array(trace, f"/layers/{layer}/k"), cache.layers[layer].keys[0].float().cpu())
            np.testing.assert_array_equal(array(trace, f"/layers/{layer}/v"), cache.layers[layer].values[0].float().cpu())
            q, k = (array(trace, f"/layers/{layer}/{name}").astype("f8") for name in ("q", "k"))
            score = trace.attrs["score_scale"] * q @ np.repeat(k, 2, axis=0).transpose(0, 2, 1)
            score[:, ~np.tri(score.shape[1], dtype=bool)] = -np.inf
            lse = np.logaddexp.reduce(score, axis=-1)
            np.testing.assert_allclose(trace[f"/layers/{layer}/lse"], lse, atol=1e-3, rtol=1e-4)
            np.testing.assert_allclose(array(trace, f"/layers/{layer}/attn").sum(-1), 1, atol=1e-2)


@needs_gpu
@pytest.mark.parametrize("check", [cuda_check.check_lists, cuda_check.check_large, cuda_check.check_policy])
def test_of_the_script(check):
    check("cuda")


@pytest.mark.slow
def test_the_script_runs_on_the_cpu():
    result = subprocess.run([sys.executable, cuda_check.__file__, "--device", "cpu"], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("\nok ") == 3
