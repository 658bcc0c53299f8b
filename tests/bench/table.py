"""The table of the engine's figures: each beside its peer in one run, with its target and whether it is met.

usage: table.py [--threads 1,2] [--parts LIST] [--kvscope PROGRAM] [--bench PROGRAM] [--trace TRACE] [--rounds N] [--markdown]

Prints one JSON object (with --markdown: the table as it stands in the README). Parts:
  dense      dense attention of a chunk of 128 over 32k keys beside PyTorch's sdpa, f32 and bf16       (needs torch)
  choice     QuoKA 1024 and Quest 2048, choice and attention, over own dense attention of the same dtype
  methods    every other method's choice over own dense attention at 32k keys
  first      time to the first token of the verifier with QuoKA 1024 over dense, 32k tokens
  nucleus    the nucleus of 8192 weights against std::sort
  prefill    prefill of the verifier beside transformers in f32                                        (needs transformers)
  checkpoint prefill of a random bf16 checkpoint in the shape of Llama-3.2-1B beside transformers      (needs transformers)
  sweep      kvscope sweep beside NumPy on --trace (kvscope record t.h5 --max-tokens 4096)             (needs numpy, h5py)
A part whose library is missing is named under "left_out". Ratios above 1: kvscope, or the sparse way, is faster. A loaded
machine disturbs them: look at "load".
"""

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

PARTS = ["dense", "choice", "methods", "first", "nucleus", "prefill", "checkpoint", "sweep"]
NEEDS = {"dense": ["torch"], "prefill": ["torch", "transformers"], "checkpoint": ["torch", "transformers"], "sweep": ["numpy", "h5py"]}
ORACLES = ("oracle", "full")


def machine():
    info = {"system": platform.platform(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()}
    for library in ("torch", "transformers", "numpy"):
        if library in sys.modules:
            info[library] = sys.modules[library].__version__
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return info
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    info["processor"] = fields.get("model name", "")
    info["vector"] = sorted(set(fields.get("flags", "").split()) & {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile"})
    return info


def compare(torch, run_ours, run_peer, rounds):
    """Takes turns; the least seconds of all rounds on both sides."""
    mine, peer = [], []
    with torch.inference_mode():
        run_peer()
        for _ in range(rounds):
            mine.append(run_ours()["seconds"])
            for _ in range(3):
                start = time.perf_counter()
                run_peer()
                peer.append(time.perf_counter() - start)
    return {"seconds": min(mine), "peer_seconds": min(peer), "ratio": min(peer) / min(mine)}


def run_json(command):
    out = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"table.py: {' '.join(str(x) for x in command)}\n{out.stderr}")
    return json.loads(out.stdout)


def figure(name, threads, value, target, **more):
    """A row; `target` is the smallest good value, or the largest where it is negative."""
    met = None if target is None else (value >= target if target > 0 else value <= -target)
    limit = None if target is None else f">= {target}" if target > 0 else f"<= {-target}"
    return {"figure": name, "threads": threads, "value": round(value, 3), "target": limit, "met": met, **more}


def select(args, threads, selectors, budget, tokens, phase, kv_dtype="f32", repeat=7):
    return run_json([args.kvscope, "bench", "select", "--selector", selectors, "--budget", budget, "--lengths", tokens,
                     "--phase", phase, "--threads", threads, "--repeat", repeat, "--kv-dtype", kv_dtype, "--json"])["rows"]


def dense(args, threads):
    import torch

    torch.set_num_threads(threads)
    q, k, v = torch.randn(1, 24, 128, 128), torch.randn(1, 8, 32768, 128), torch.randn(1, 8, 32768, 128)
    k, v = (x.repeat_interleave(3, 1) for x in (k, v))
    mask = torch.ones(128, 32768, dtype=torch.bool).tril(32768 - 128)
    rows = []
    for name, dtype, target in (("f32", torch.float32, 1.3), ("bf16", torch.bfloat16, 1.0)):
        a, b, c = (x.to(dtype) for x in (q, k, v))
        one = compare(torch, lambda: run_json([args.bench, "attention", "--threads", threads, "--kv", name]),
                      lambda: torch.nn.functional.scaled_dot_product_attention(a, b, c, attn_mask=mask), args.rounds)
        rows.append(figure(f"dense attention of a chunk at 32k beside PyTorch, {name}", threads, one["ratio"], target,
                           seconds=one["seconds"], peer_seconds=one["peer_seconds"]))
    return rows


def choice(args, threads):
    rows = []
    for kv in ("f32", "bf16"):
        for case in select(args, threads, "quoka", "tokens=1024", "8192,32768", "prefill", kv):
            target = 3.5 if case["tokens"] == 8192 else 10
            rows.append(figure(f"QuoKA 1024 over own dense, chunk of 128, {case['tokens'] // 1024}k, {kv}", threads, case["speedup"],
                               target, choice_over_dense=round(case["select_over_dense"], 4)))
    for case in select(args, threads, "quest,quest:owner=group_sum", "tokens=2048", "32768", "decode"):
        per = "KV head (limit 8)" if "group_sum" in case["selector"] else "query head (limit 4 without overlap)"
        rows.append(figure(f"Quest 2048 decode over own dense, 32k, f32, a list per {per}", threads, case["speedup"], 6,
                           choice_over_dense=round(case["select_over_dense"], 4)))
    return rows


def methods(args, threads):
    listed = run_json([args.kvscope, "selectors", "--json"])
    names = [one["name"] for one in listed["selectors"]] if isinstance(listed, dict) else [one["name"] for one in listed]
    names = [name for name in names if not name.startswith(ORACLES)]
    rows = []
    for case in select(args, threads, ",".join(names), "tokens=1024,p=0.95", "32768", "both", repeat=3):
        rows.append(figure(f"choice over dense, {case['phase']}, 32k: {case['selector']}", threads, case["select_over_dense"], -0.5))
    return rows


def first(args, threads):
    report = run_json([args.kvscope, "bench", "live", "--selector", "quoka", "--budget", "tokens=1024", "--lengths", "32768",
                       "--repeat", 1, "--threads", threads, "--json"])
    sparse = [row for row in report["rows"] if row["selector"] != "full"][0]
    return [figure("time to the first token, QuoKA 1024, 32k", threads, sparse["ttft_ratio"], 5)]


def nucleus(args, threads):
    report = run_json([args.bench, "nucleus"])
    return [figure("nucleus of 8192 weights against std::sort", 1, report["ratio"], 10)]


def prefill(args, threads):
    report = run_json([sys.executable, HERE / "prefill_vs_transformers.py", "--kvscope", args.kvscope, "--threads", threads,
                       "--rounds", args.rounds])
    return [figure("prefill of the verifier, 4096 tokens, beside transformers, f32", threads, report["speedup"], 1.6)]


def checkpoint(args, threads):
    import torch
    import transformers

    torch.set_num_threads(threads)
    config = transformers.LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        head_dim=64, vocab_size=128256, max_position_embeddings=8192, tie_word_embeddings=True, rms_norm_eps=1e-5)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    ids = torch.arange(1024)[None] * 7919 % config.vocab_size
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)

        def ours():
            report = run_json([args.kvscope, "bench", "live", "--model", folder, "--lengths", 1024, "--chunk", 512, "--threads", threads,
                               "--repeat", 1, "--matmul", "bf16", "--kv-dtype", "bf16", "--json"])
            return {"seconds": report["rows"][0]["seconds_low"]}

        one = compare(torch, ours, lambda: model(ids, use_cache=True, logits_to_keep=1), args.rounds)
    return [figure("prefill of a Llama-3.2-1B shape, 1024 tokens, bf16, beside PyTorch bf16", threads, one["ratio"], 0.8,
                   seconds=one["seconds"], peer_seconds=one["peer_seconds"])]


def sweep(args, threads):
    if args.trace is None:
        return []
    report = run_json([sys.executable, HERE / "sweep_reference.py", args.trace, "--kvscope", args.kvscope, "--layer", 3,
                       "--threads", threads, "--rounds", args.rounds])
    return [figure("sweep beside NumPy, equal threads", threads, report["speedup"], {1: 5, 8: 12}.get(threads))]


def markdown(rows, threads):
    names = list(dict.fromkeys(row["figure"] for row in rows))
    lines = ["| figure | target | " + " | ".join(f"{n} thread{'s' if n > 1 else ''}" for n in threads) + " |",
             "|---|---|" + "---|" * len(threads)]
    for name in names:
        own = {row["threads"]: row for row in rows if row["figure"] == name}
        target = next((row["target"] for row in own.values() if row["target"]), "")
        cells = [f"{own[n]['value']:.3g}" + ("" if own[n]["met"] in (True, None) else " (missed)") if n in own else "" for n in threads]
        lines.append(f"| {name} | {target} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=lambda text: [int(x) for x in text.split(",")], default=[1, 2])
    parser.add_argument("--parts", default=",".join(PARTS), type=lambda text: text.split(","))
    parser.add_argument("--kvscope", default=str(ROOT / "build/release/bin/kvscope"))
    parser.add_argument("--bench", default=str(ROOT / "build/release/tests/bench_engine"))
    parser.add_argument("--trace", help="a trace of 4096 tokens with layer 3, for sweep")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        parser.error(f"--parts: {', '.join(unknown)}: expected some of {', '.join(PARTS)}")
    rows, left_out = [], []
    for part in args.parts:
        missing = [name for name in NEEDS.get(part, []) if importlib.util.find_spec(name) is None]
        if missing:
            left_out.append(f"{part}: needs {', '.join(missing)}")
            continue
        if part == "sweep" and args.trace is None:
            left_out.append("sweep: needs --trace")
            continue
        for threads in args.threads if part != "nucleus" else [1]:
            rows += globals()[part](args, threads)
            print(f"{part}, {threads} threads: done", file=sys.stderr)
    if args.markdown:
        print(markdown(rows, args.threads))
    else:
        print(json.dumps({"machine": machine(), "left_out": left_out, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
