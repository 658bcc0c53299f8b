"""The plug-in for vLLM where vLLM is, in one command; some minutes, most of them vLLM's start:

    python traces/python/tests/vllm_check.py [--model FOLDER] [--max-tokens 300]

A model (the embedded draft, or a checkpoint that fits the GPU) answers two prompts in vLLM with the plug-in on, and then the same
tokens pass through transformers under kvscope's recorder. Compared are tokens, units, keys, values and log-sum-exps, as far as
16 bits and another order of sums allow; `kvscope verify` reads both traces. Where there is no GPU or no vLLM it says so and checks
nothing (exit 2). Exit 1: something differs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

DRAFT = Path(__file__).resolve().parents[3] / "traces" / "samples" / "draft"
#: Largest differences: of keys and values relative to their largest, of log-sum-exps in nat, at the median and at the 99th percentile.
CLOSE = {"k": (0.01, 0.05), "v": (0.01, 0.05), "lse": (0.02, 0.2)}


def missing() -> str:
    """Why nothing can be checked here, or nothing."""
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed (pip install vllm, on a machine with a GPU)"
    if not torch.cuda.is_available():
        return "no CUDA device, and vLLM needs one"
    names = [point.name for point in metadata.entry_points(group="vllm.general_plugins")]
    return "" if "kvscope" in names else f"vLLM does not see kvscope's plug-in among {names}: install the package here (pip install kvscope)"


def prompts_of(model: str, n_tokens: int) -> list[list[int]]:
    """Two texts of other lengths, as ids."""
    from transformers import AutoTokenizer

    text = (DRAFT.parent / "texts" / "kidnapped.txt").read_text(encoding="utf-8")
    ids = AutoTokenizer.from_pretrained(model)(text[: 12 * n_tokens])["input_ids"]
    return [ids[:n_tokens], ids[n_tokens // 2 : n_tokens]]


def in_vllm(model: str, prompts: list[list[int]], folder: Path) -> list[Path]:
    """The traces that the plug-in writes."""
    os.environ |= {"KVSCOPE_VLLM_TRACE": str(folder / "vllm-{request}.h5"), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    from vllm import LLM, SamplingParams

    from kvscope_recorder.vllm_plugin import finish

    engine = LLM(model, max_num_seqs=1, enable_prefix_caching=False, enforce_eager=True, dtype="bfloat16", gpu_memory_utilization=0.6)
    engine.generate([{"prompt_token_ids": ids} for ids in prompts], SamplingParams(max_tokens=8, temperature=0.0))
    infos = finish()
    assert len(infos) >= len(prompts), f"{len(infos)} traces of {len(prompts)} requests"
    return sorted(folder.glob("vllm-*.h5"), key=lambda path: path.stat().st_mtime)[-len(prompts) :]  # a warm-up may be one, too


def in_transformers(model: Any, trace: Path, out: Path) -> None:
    """The trace's tokens in the trace's units."""
    import h5py
    from transformers import DynamicCache

    from kvscope_recorder import record

    with h5py.File(trace) as file:
        ids, units = torch.from_numpy(file["/tokens"][...].astype("i8"))[None].to(model.device), file["/units"][...]
    cache = DynamicCache(config=model.config)
    with record(model, out, overwrite=True), torch.no_grad():
        for begin, end, _ in units:
            model(ids[:, begin:end], past_key_values=cache, use_cache=True)


def compare(trace: Path, reference: Path, close: dict[str, tuple[float, float]]) -> str:
    """What was compared. Raises AssertionError where they differ by more than `close`."""
    import h5py
    import kvscope as kvs

    worst = dict.fromkeys(close, 0.0)
    with h5py.File(trace) as a, h5py.File(reference) as b:
        for name in ("/tokens", "/units", "/recorded/layers"):
            assert np.array_equal(a[name], b[name]), f"{name} differs"
        for layer in a["/recorded/layers"][...]:
            for name, (typical, rare) in close.items():
                found, expected = (np.asarray(file[f"/layers/{layer}/{name}"], dtype="f4") for file in (a, b))
                off = np.abs(found - expected) / (1.0 if name == "lse" else np.abs(expected).max())
                worst[name] = max(worst[name], float(off.max()))
                middle, high = np.quantile(off, (0.5, 0.99))
                assert middle <= typical and high <= rare, f"layer {layer}, {name}: off by {middle:.3g} at the median, {high:.3g} at 99 %"
        n_tokens = len(a["/tokens"])
    for path in (trace, reference):
        kvs.run("verify", str(path), progress=False)
    return f"{n_tokens} tokens, largest differences " + ", ".join(f"{name} {off:.2g}" for name, off in worst.items())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(DRAFT))
    parser.add_argument("--max-tokens", type=int, default=300)
    options = parser.parse_args(arguments)
    why = missing()
    if why:
        print(f"{why}: nothing was checked")
        return 2
    from transformers import AutoModelForCausalLM

    print(f"vLLM {metadata.version('vllm')} on {torch.cuda.get_device_name()}, {options.model}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        traces = in_vllm(options.model, prompts_of(options.model, options.max_tokens), Path(folder))
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16).eval().cuda()
        failed = 0
        for trace in traces:
            in_transformers(model, trace, Path(folder) / "reference.h5")
            try:
                print(f"ok       {trace.name}: {compare(trace, Path(folder) / 'reference.h5', CLOSE)}")
            except AssertionError as error:
                failed += 1
                print(f"FAILED   {trace.name}: {error}")
    print("vLLM's traces are those of transformers" if not failed else f"{failed} of {len(traces)} traces differ")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
