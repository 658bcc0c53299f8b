"""Prefill speed of Hugging Face transformers (PyTorch CPU, float32, sdpa): the peer of `kvscope bench prefill`.

usage: hf_prefill.py MODEL_DIR [--tokens N] [--chunk N] [--threads N] [--repeat N]
Prints one JSON object. Needs torch and transformers. The logits are computed for the last token only, as kvscope does.
"""

import argparse
import json
import statistics
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--chunk", type=int, default=0, help="0: the whole prompt in one call")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()

    import torch
    import transformers

    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    ids = torch.arange(args.tokens)[None] * 7919 % model.config.vocab_size
    chunk = args.chunk or args.tokens
    seconds = []
    with torch.inference_mode():
        for _ in range(args.repeat + 1):
            cache = transformers.DynamicCache()
            start = time.perf_counter()
            for begin in range(0, args.tokens, chunk):
                model(ids[:, begin:begin + chunk], past_key_values=cache, use_cache=True, logits_to_keep=1)
            seconds.append(time.perf_counter() - start)
    best = min(seconds[1:])
    print(json.dumps({
        "peer": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, sdpa",
        "tokens": args.tokens, "chunk": chunk, "threads": args.threads,
        "seconds": {"best": best, "median": statistics.median(seconds[1:])},
        "tokens_per_second": args.tokens / best,
    }))


if __name__ == "__main__":
    main()
