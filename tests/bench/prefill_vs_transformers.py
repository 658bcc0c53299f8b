"""Prefill speed: kvscope beside Hugging Face transformers (PyTorch CPU, float32, sdpa), taking turns in one run.

usage: prefill_vs_transformers.py [--kvscope PROGRAM] [--model DIR] [--tokens N] [--chunk N] [--threads N] [--rounds N]

Prints one JSON object. Needs torch and transformers (pip install torch transformers); both sides run the same tokens count
with the same number of threads, keep a KV cache and compute the logits of the last token only. transformers runs the
prompt in one call, which is its fastest way here; --peer-chunk makes it use chunks too.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kvscope", default=str(ROOT / "build/release/bin/kvscope"))
    parser.add_argument("--model", default=str(ROOT / "traces/samples/verifier"))
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--chunk", type=int, default=512, help="kvscope's tokens per call")
    parser.add_argument("--peer-chunk", type=int, default=0, help="0: the whole prompt in one call")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    import torch
    import transformers

    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    ids = torch.arange(args.tokens)[None] * 7919 % model.config.vocab_size
    peer_chunk = args.peer_chunk or args.tokens

    def run_peer():
        cache = transformers.DynamicCache()
        start = time.perf_counter()
        with torch.inference_mode():
            for begin in range(0, args.tokens, peer_chunk):
                model(ids[:, begin:begin + peer_chunk], past_key_values=cache, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - start

    def run_kvscope():
        out = subprocess.run(
            [args.kvscope, "bench", "live", "--model", args.model, "--lengths", str(args.tokens),
             "--chunk", str(args.chunk), "--threads", str(args.threads), "--repeat", "2", "--json"],
            check=True, capture_output=True, text=True).stdout
        return json.loads(out)["rows"][0]["seconds_low"]

    run_peer()
    ours, peer = [], []
    for _ in range(args.rounds):
        ours.append(run_kvscope())
        peer.append(min(run_peer(), run_peer()))
    print(json.dumps({
        "peer": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, sdpa",
        "tokens": args.tokens, "chunk": args.chunk, "peer_chunk": peer_chunk, "threads": args.threads,
        "kvscope_seconds": ours, "peer_seconds": peer,
        "speedup": statistics.median(p / o for o, p in zip(ours, peer)),
    }, indent=1))


if __name__ == "__main__":
    main()
