"""How much recording slows a prefill down: interleaved runs with and without the recorder, ratios of neighbours.

    python tests/bench/recorder_overhead.py [--model DIR] [--tokens 4096] [--pairs 7] [--threads 2] [--decode N] [--device cuda]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from kvscope_recorder import record

SAMPLES = Path(__file__).resolve().parents[2] / "traces" / "samples"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(SAMPLES / "verifier"), help="checkpoint folder [the embedded verifier]")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of the prompt [4096]")
    parser.add_argument("--decode", type=int, default=0, help="measure generate() with this many new tokens instead")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs [7]")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of PyTorch")
    parser.add_argument("--dtype", default="auto", help="of the model [that of the checkpoint]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", default=None, help="where the traces go [a temporary folder]")
    return parser.parse_args()


@torch.no_grad()
def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=args.dtype).eval().to(args.device)
    generator = torch.Generator().manual_seed(0)
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.randint(0, vocabulary, (1, args.tokens), generator=generator).to(args.device)
    folder = tempfile.TemporaryDirectory(dir=args.folder)
    path = Path(folder.name) / "trace.h5"

    def run(recorder) -> float:
        start = time.perf_counter()
        with recorder:
            if args.decode:
                model.generate(ids, max_new_tokens=args.decode, min_new_tokens=args.decode, do_sample=False, use_cache=True)
            else:
                model(ids, use_cache=True, logits_to_keep=1)
            if args.device != "cpu":
                torch.cuda.synchronize()
        return time.perf_counter() - start

    run(record(model, path, overwrite=True))  # warm up both
    run(nullcontext())
    ratios, plain_times = [], []
    for pair in range(args.pairs):
        order = [False, True] if pair % 2 == 0 else [True, False]
        seconds = {}
        for recorded in order:
            recorder = record(model, path, overwrite=True, max_new_tokens=args.decode or None) if recorded else nullcontext()
            seconds[recorded] = run(recorder)
        ratios.append(seconds[True] / seconds[False])
        plain_times.append(seconds[False])
        print(f"without {seconds[False]:.3f} s   with {seconds[True]:.3f} s   ratio {ratios[-1]:.3f}", flush=True)
    size = path.stat().st_size / 2**20
    print(f"median ratio {statistics.median(ratios):.3f} (smallest {min(ratios):.3f}, largest {max(ratios):.3f}), "
          f"plain run {statistics.median(plain_times):.3f} s, trace {size:.1f} MiB, {args.tokens} tokens, "
          f"{model.dtype}, {args.threads} threads")


if __name__ == "__main__":
    main()
