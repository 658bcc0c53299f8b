"""Checks on a GPU in one command, without pytest or network; a minute or two:

    python traces/python/tests/cuda_check.py [--device cuda]

1. What methods ask about queries and keys, answered in torch on tensors of the device, gives the lists of the C++ engine on
   recorded q and k of the embedded draft model, key by key.
2. The same on the device and on the CPU for random tensors of the shape of an 8B model (32 query heads, 8 KV heads, 128
   channels, bfloat16), chunks and decode steps over 4,096 keys (1,024 with --device cpu, which tries the script itself).
3. kvs.policy in a tiny transformers model: the device generates what the CPU does, `full` is the plain model, a budget is
   kept, in float64, float16 and bfloat16.
4. The recorder's test on a GPU (test_cuda.py), where pytest is installed.

Needs the installed package with its native module; where transformers is missing, 3 and 4 are left out with a word. Exit 1 if
anything differs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]
from list_cases import SPECS, masks  # noqa: E402

POLICIES = ["streamingllm@tokens=12", "keydiff@tokens=16", "tova@tokens=16", "recent@tokens=8", "quoka@tokens=9", "snapkv:window=8@tokens=16",
            "sparq:mean-value=false@tokens=9", "knorm@tokens=16", "quest:page-size=4,dense-layers=0@tokens=12", "lagkv:n-sink=2,lag=4@tokens=16"]


class Left(Exception):
    """A check that cannot run here; its words say why."""


def check_lists(device: str) -> str:
    import kvscope as kvs

    with tempfile.TemporaryDirectory() as folder:
        kvs.run("record", f"{folder}/draft.h5", model="draft", max_tokens=104, decode=8, progress=False)
        trace = kvs.open(f"{folder}/draft.h5")
        q, k, scale = trace[3].q[:], trace[3].k[:], trace.score_scale
    on = [torch.from_numpy(x).to(device) for x in (q, k)]
    n_rows, calls = 0, [40, 40, 24] + [1] * 8
    for spec in SPECS:
        for budget in ("tokens=24", "ratio=0.2"):
            found = masks(spec, budget, *on, scale, calls, in_torch=True)
            for call, (a, b) in enumerate(zip(masks(spec, budget, q, k, scale, calls), found, strict=True)):
                n_rows += a.shape[0] * a.shape[1]
                assert np.array_equal(a, b), f"{spec}@{budget}, call {call}: {int((a != b).any(-1).sum())} of {a.shape[0] * a.shape[1]} rows differ"
    return f"{len(SPECS)} methods with options, {n_rows} rows of lists, all equal"


def check_large(device: str) -> str:
    n_keys = 4096 if device.startswith("cuda") else 1024  # with two CPUs there is nothing to see
    random = torch.Generator().manual_seed(3)
    q, k = (torch.randn(n, n_keys, 128, generator=random).bfloat16() for n in (32, 8))
    k *= torch.linspace(0.2, 2, n_keys).bfloat16()[:, None]  # so that keys differ in length too
    different, n_lists = [], 0
    for spec in ["recent", "keydiff", "knorm", "tova", "quoka", "snapkv", "sparq:mean-value=false"]:
        past = 0 if spec in ("keydiff", "knorm", "tova", "snapkv") else n_keys - 259  # those without a history need no first call
        calls = [n_keys - 259, 256, 1, 1, 1][past > 0 :]
        on_both = [list(masks(spec, f"tokens={n_keys // 8}", q.to(at), k.to(at), 0.09, calls, in_torch=True, every=256, begin=past))
                   for at in ("cpu", device)]
        for a, b in zip(*on_both, strict=True):
            n_lists += a.shape[0] * a.shape[1]
            n = int((a != b).any(-1).sum())
            if n:
                different.append(f"{spec}: {n} of {a.shape[0] * a.shape[1]} lists, {int((a != b).sum())} keys")
    assert not different, "; ".join(different)
    return f"7 methods, {n_lists} lists of up to {n_keys} keys, all equal"


def tiny_model():
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise Left(f"transformers is not installed ({error})") from None
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
                                        num_key_value_heads=2, vocab_size=64, max_position_embeddings=512, initializer_range=0.3)).eval()


def check_policy(device: str) -> str:
    model = tiny_model()
    import kvscope as kvs

    prompts = torch.randint(1, 64, (2, 40), generator=torch.Generator().manual_seed(7))
    mask = torch.ones_like(prompts)
    prompts[1, :9], mask[1, :9] = 0, 0  # a batch of two, one padded on the left

    def run(spec: str | None, at: str, dtype: torch.dtype):
        model.to(at, dtype)
        options = dict(attention_mask=mask.to(at), max_new_tokens=12, min_new_tokens=12, do_sample=False, output_logits=True,
                       return_dict_in_generate=True, pad_token_id=0)
        if spec is None:
            return model.generate(prompts.to(at), **options), 1.0
        with kvs.policy(model, spec, engine="auto") as policy:
            return model.generate(prompts.to(at), **options), policy.kept

    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        plain, _ = run(None, device, dtype)
        full, _ = run("full", device, dtype)
        assert all(torch.equal(a, b) for a, b in zip(plain.logits, full.logits)), f"full in {dtype} is not the plain model"
        for spec in POLICIES:
            found, kept = run(spec, device, dtype)
            assert kept < 1.0 and all(one.isfinite().all() for one in found.logits), f"{spec} in {dtype}: keeps {kept}"
            if dtype == torch.float64:
                expected, kept_on_cpu = run(spec, "cpu", dtype)
                assert kept == kept_on_cpu, f"{spec}: the device keeps {kept}, the CPU {kept_on_cpu}"
                assert torch.equal(expected.sequences, found.sequences.cpu()), f"{spec}: the device generates another text than the CPU"
                worst = max(float((a - b.cpu()).abs().max()) for a, b in zip(expected.logits, found.logits))
                assert worst < 1e-4, f"{spec}: logits differ by {worst}"  # logits are f32 in transformers' output
    return f"{len(POLICIES)} methods in three number types over a padded batch"


CHECKS: list[tuple[str, Callable[[str], str]]] = [
    ("lists of torch's answers against the C++ engine's", check_lists), ("the device against the CPU, 8B shape", check_large),
    ("kvs.policy in a tiny model", check_policy)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args(arguments).device
    if device.startswith("cuda") and not torch.cuda.is_available():
        print("no CUDA device: nothing was checked")
        return 2
    name = torch.cuda.get_device_name() if device.startswith("cuda") else device
    print(f"torch {torch.__version__} on {name}, {len(SPECS)} methods with options")
    failed = 0
    for words, check in CHECKS:
        begin = time.perf_counter()
        try:
            verdict, facts = "ok", check(device)
        except Left as reason:
            verdict, facts = "left out", str(reason)
        except Exception as error:  # noqa: BLE001  one check's failure is no reason not to run the others
            verdict, facts = "FAILED", f"{type(error).__name__}: {error}"
            failed += 1
        print(f"{verdict:9}{words} ({time.perf_counter() - begin:.1f} s): {facts}", flush=True)
    print("everything that ran agrees" if not failed else f"{failed} of {len(CHECKS)} checks failed")
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
