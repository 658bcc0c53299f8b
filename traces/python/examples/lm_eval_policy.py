"""lm-evaluation-harness over a model with a method of kvscope inside its attention.

    pip install 'kvscope[transformers]' 'lm-eval[hf]'
    python traces/python/examples/lm_eval_policy.py [--model FOLDER] [--chunk 64] [--limit 20] full recent@tokens=48 quest:page-size=8@tokens=48

The task is LAMBADA's question (which word comes last?) on passages of a text, so that nothing is downloaded; other tasks of the
harness go into tasks=[...] by name. The harness scores a passage in one forward pass, in which nearly every method sees no past
to choose from: ChunkedLM feeds the passage in chunks through a cache, as an engine does, so that every chunk's queries attend
to what the method keeps of the chunks before. Batch size 1: the harness pads behind the text, which kvs.policy refuses.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import tempfile
from pathlib import Path

import torch
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import kvscope as kvs

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


class ChunkedLM(HFLM):
    """Scores texts chunk by chunk through a cache."""

    chunk = 64

    def _model_call(self, inps: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        cache = DynamicCache(config=self.model.config)
        with torch.no_grad():
            parts = [self.model(part, past_key_values=cache, use_cache=True).logits for part in inps.split(self.chunk, dim=1)]
        return torch.cat(parts, dim=1)


def write_passages(text: str, n_words: int, n: int, path: Path) -> None:
    """Passages of n_words words that end where a word of letters alone does: {"text": ..., "last": " word"} a line."""
    words = text.split()
    lines = []
    for begin in range(0, len(words) - n_words, n_words // 2):
        passage = words[begin : begin + n_words]
        if re.fullmatch("[A-Za-z]{3,}", passage[-1]) and len(lines) < n:
            lines.append(json.dumps({"text": " ".join(passage[:-1]), "last": " " + passage[-1]}))
    path.write_text("\n".join(lines))


def evaluate(folder: str, methods: list[str], chunk: int = 64, limit: int = 20, n_words: int = 180) -> dict[str, dict[str, float]]:
    """Per method: acc, perplexity (of the last word) and kept (share of the visible keys attended to)."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    lm = ChunkedLM(pretrained=model, tokenizer=AutoTokenizer.from_pretrained(folder), batch_size=1, max_length=2048)
    lm.chunk = chunk
    results = {}
    with tempfile.TemporaryDirectory() as place:
        passages = Path(place) / "passages.jsonl"
        write_passages((SAMPLES / "texts" / "kidnapped.txt").read_text(), n_words, limit, passages)
        task = {"task": "last_word", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(passages)}, "cache_dir": place},
                "test_split": "test", "output_type": "loglikelihood", "doc_to_text": "{{text}}", "doc_to_target": "{{last}}", "target_delimiter": "",
                "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True},
                                {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False}]}
        for method in methods:
            with contextlib.nullcontext() if method == "plain" else kvs.policy(model, method) as policy:
                found = simple_evaluate(model=lm, tasks=[task], bootstrap_iters=0, verbosity="ERROR")["results"]["last_word"]
            results[method] = {"acc": found["acc,none"], "perplexity": found["perplexity,none"], "kept": policy.kept if policy else 1.0}
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=["plain", "full", "oracle-topk@tokens=48", "quest:page-size=8,dense-layers=0@tokens=48", "recent@tokens=48"])
    parser.add_argument("--model", default=str(SAMPLES / "verifier"))
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--limit", type=int, default=20)
    arguments = parser.parse_args()
    for name, row in evaluate(arguments.model, arguments.methods, arguments.chunk, arguments.limit).items():
        print(f"{name:45} acc {row['acc']:.3f}  perplexity {row['perplexity']:9.3f}  keys attended to {row['kept']:.3f}")
