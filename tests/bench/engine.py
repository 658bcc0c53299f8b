"""The engine's parts beside PyTorch on the CPU: the same shapes with the same number of threads, taking turns in one run.

usage: engine.py [--bench PROGRAM] [--threads 1,2,16] [--context 8192,32768] [--rounds N] [--parts attention,decode,matmul]
                 [--kvscope PROGRAM --tokens N --config FILE]

Prints one JSON object: the machine, and for every shape our seconds, PyTorch's, and the ratio of the minima of all rounds (above
1: kvscope is faster); cpu_ratio is the same of processor time, which a loaded machine disturbs less. Needs torch; with --kvscope
(the whole model, prefill of a random bf16 checkpoint in the shape of --config) also transformers.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPE = {"n-q": 24, "n-kv": 8, "d-head": 128}


def machine():
    info = {"system": platform.platform(), "cores": len(os.sched_getaffinity(0))}
    for library in ("torch", "transformers", "numpy"):
        if library in sys.modules:
            info[library] = sys.modules[library].__version__
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return info
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    flags = set(fields.get("flags", "").split())
    info["processor"] = fields.get("model name", "")
    info["vector"] = sorted(flags & {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile"})
    info["load"] = os.getloadavg()
    return info


def ours(bench, what, options, env=None):
    command = [bench, what]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **(env or {})}).stdout
    return json.loads(out)


def timed(body):
    wall, cpu = time.perf_counter(), time.process_time()
    body()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(torch, run_ours, run_peer, rounds):
    """Takes turns; minima of all rounds on both sides."""
    mine, peer = [], []
    with torch.inference_mode():
        run_peer()
        for _ in range(rounds):
            result = run_ours()
            mine.append((result["seconds"], result.get("cpu_seconds", float("nan"))))
            peer += [timed(run_peer) for _ in range(3)]
    wall, cpu = (min(x[i] for x in mine) for i in (0, 1))
    peer_wall, peer_cpu = (min(x[i] for x in peer) for i in (0, 1))
    return {"seconds": wall, "peer_seconds": peer_wall, "ratio": round(peer_wall / wall, 3),
            "cpu_ratio": round(peer_cpu / cpu, 3)}


def attention(torch, args, threads, context, chunk):
    n_q, n_kv, d = SHAPE["n-q"], SHAPE["n-kv"], SHAPE["d-head"]
    options = {**SHAPE, "threads": threads, "context": context, "chunk": chunk, "repeat": 3 if chunk > 1 else 20, "kv": args.kv}
    q, k, v = torch.randn(1, n_q, chunk, d), torch.randn(1, n_kv, context, d), torch.randn(1, n_kv, context, d)
    k, v = (x.repeat_interleave(n_q // n_kv, 1) for x in (k, v)) if chunk > 1 else (k, v)
    mask = torch.ones(chunk, context, dtype=torch.bool).tril(context - chunk) if chunk > 1 else None
    rows = []
    for dtype in args.dtypes:
        a, b, c = (x.to(getattr(torch, dtype)) for x in (q, k, v))
        peer = lambda: torch.nn.functional.scaled_dot_product_attention(a, b, c, attn_mask=mask, enable_gqa=chunk == 1)
        rows.append({"part": "attention of a chunk" if chunk > 1 else "decode attention", "ours": args.kv, "peer": dtype,
                     "threads": threads, "context": context, "chunk": chunk,
                     **compare(torch, lambda: ours(args.bench, "attention", options), peer, args.rounds)})
    return rows


def matmul(torch, args, threads):
    rows = []
    for n_tok, n_rows, k in ((512, 2048, 2048), (512, 8192, 2048), (1, 8192, 2048), (1, 2048, 8192)):
        w, x = torch.randn(n_rows, k), torch.randn(n_tok, k)
        for kind, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            options = {"rows": n_rows, "k": k, "tokens": n_tok, "threads": threads, "kind": kind, "repeat": 20}
            a, b = x.to(dtype), w.to(dtype)
            # Our weights are bf16 in memory in both kinds, as in a checkpoint; PyTorch's have the type it computes in.
            rows.append({"part": "product", "kind": kind, "our_weights": "bfloat16", "peer_weights": str(dtype)[6:], "tokens": n_tok, "rows": n_rows, "k": k, "threads": threads,
                         **compare(torch, lambda: ours(args.bench, "matmul", options),
                                   lambda: torch.nn.functional.linear(a, b), args.rounds)})
    return rows


def prefill(torch, args, threads):
    """A random bf16 checkpoint of the config's shape: kvscope in f32, with bf16 products, and all in bf16 as transformers."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(args.config)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
        model.save_pretrained(folder)
        ids = torch.arange(args.tokens)[None] * 7919 % config.vocab_size
        peer = lambda: model(ids, use_cache=True, logits_to_keep=1)

        def run(kind, kv):
            out = subprocess.run([args.kvscope, "bench", "live", "--model", folder, "--lengths", str(args.tokens), "--chunk", "1024",
                                  "--matmul", kind, "--kv-dtype", kv, "--threads", str(threads), "--repeat", "1", "--json"],
                                 check=True, capture_output=True, text=True).stdout
            return {"seconds": json.loads(out)["rows"][0]["seconds_low"]}

        for kind, kv in (("f32", "f32"), ("bf16", "f32"), ("bf16", "bf16")):
            rows.append({"part": "prefill", "products": kind, "kv": kv, "peer": "transformers, bfloat16", "tokens": args.tokens,
                         "threads": threads, **compare(torch, lambda: run(kind, kv), peer, args.rounds)})
    return rows


def numbers(text):
    return [int(x) for x in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=str(ROOT / "build/release/tests/bench_engine"))
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--context", type=numbers, default=[8192, 32768])
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="attention,decode,matmul")
    parser.add_argument("--dtypes", default="float32,bfloat16", type=lambda text: text.split(","), help="PyTorch's, of attention")
    parser.add_argument("--kv", default="f32", help="our keys and values: f32, bf16 (the machine's best kernel), bf16-amx, ...")
    parser.add_argument("--kvscope", help="the program: adds prefill of a whole model")
    parser.add_argument("--config", help="folder with a config.json, for --kvscope")
    parser.add_argument("--tokens", type=int, default=1024)
    args = parser.parse_args()

    import torch

    parts = args.parts.split(",")
    rows = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        for context in args.context:
            if "attention" in parts:
                rows += attention(torch, args, threads, context, args.chunk)
            if "decode" in parts:
                rows += attention(torch, args, threads, context, 1)
        if "matmul" in parts:
            rows += matmul(torch, args, threads)
        if args.kvscope:
            rows += prefill(torch, args, threads)
    print(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
