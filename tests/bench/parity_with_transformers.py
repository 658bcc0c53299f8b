"""Numbers of a checkpoint, kvscope beside Hugging Face transformers: token ids, q, k, v and lse of every layer, logits.

usage: parity_with_transformers.py --model MODEL [--text FILE] [--max-tokens N] [--kvscope PROGRAM] [--tolerance X] [--json]

Both recorders write a trace of the same tokens, in float32 with all layers, and the traces are compared. Exit code 0: every
difference is within the tolerance; 1: one is not; 2: they cannot be compared. MODEL is a checkpoint folder or a GGUF file, which
transformers dequantises (package gguf). A model without a tokenizer gets made-up ids.

A difference of an array is its largest absolute difference over the array's root mean square: activations of real models reach
hundreds, those of small ones 0.1. Logits also: how often the most likely token is the same, and the mean divergence (nats).
Needs torch, transformers and the recorder (pip install .[transformers], or PYTHONPATH=traces/python), h5py, numpy.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARRAYS = ("q", "k", "v", "lse")


class Incomparable(Exception):
    pass


def run_kvscope(args, words):
    done = subprocess.run([args.kvscope, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Incomparable(f"kvscope {words[0]} ended with code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def as_transformers_names_it(model):
    """What from_pretrained takes."""
    path = pathlib.Path(model)
    return (str(path.parent), {"gguf_file": path.name}) if path.is_file() else (model, {})


def prompt_words(args, folder, n_vocab):
    """The options of kvscope record that say what the prompt is, and the text if there is one."""
    path = pathlib.Path(args.model)
    if not path.is_file() and not (path / "tokenizer.json").exists():
        ids = [(7919 * i + 11) % n_vocab for i in range(args.max_tokens)]
        path = folder / "ids.json"
        path.write_text(json.dumps(ids))
        return ["--tokens", str(path)], None
    text_file = pathlib.Path(args.text or ROOT / "README.md")
    return ["--text", str(text_file)], text_file.read_text(encoding="utf-8")


def record_with_transformers(args, path, ids):
    import torch
    import transformers

    import kvscope_recorder

    name, more = as_transformers_names_it(args.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **more).eval()
    with torch.inference_mode(), kvscope_recorder.record(model, path, capture="logits"):
        model(torch.tensor([ids]), use_cache=True)


def same_ids(args, text, ids):
    """True if transformers' tokenizer gives these ids for the beginning of the text; None without a tokenizer."""
    if text is None:
        return None
    import transformers

    name, more = as_transformers_names_it(args.model)
    theirs = transformers.AutoTokenizer.from_pretrained(name, **more)(text)["input_ids"]
    return theirs[:len(ids)] == ids


def relative_difference(ours, theirs):
    import numpy as np

    if ours.shape != theirs.shape:
        raise Incomparable(f"{ours.name} has shape {ours.shape} here and {theirs.shape} with transformers")
    a, b = ours[...].astype(np.float64), theirs[...].astype(np.float64)
    seen = np.isfinite(a) & np.isfinite(b)
    if (np.isfinite(a) != np.isfinite(b)).any():
        return float("inf")
    size = float(np.sqrt(np.mean(b[seen] ** 2))) if seen.any() else 0.0
    return float(np.abs(a - b)[seen].max(initial=0.0)) / (size or 1.0)


def compare_logits(ours, theirs):
    import numpy as np

    a, b = ours[...].astype(np.float64), theirs[...].astype(np.float64)
    log_p = b - np.logaddexp.reduce(b, axis=-1, keepdims=True)
    log_q = a - np.logaddexp.reduce(a, axis=-1, keepdims=True)
    return {"same_top": float(np.mean(a.argmax(-1) == b.argmax(-1))),
            "divergence": float(np.mean(np.sum(np.exp(log_p) * (log_p - log_q), axis=-1)))}


def compare(args):
    import h5py

    n_vocab = 0
    if not pathlib.Path(args.model).is_file():
        config = json.loads((pathlib.Path(args.model) / "config.json").read_text())
        n_vocab = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
        if not n_vocab:
            raise Incomparable(f"{args.model}/config.json has no vocab_size")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        words, text = prompt_words(args, folder, n_vocab)
        ours, theirs = folder / "kvscope.h5", folder / "transformers.h5"
        run_kvscope(args, ["record", str(ours), "--model", args.model, "--max-tokens", str(args.max_tokens), "--capture", "logits",
                           *words])
        with h5py.File(ours) as a:
            ids = [int(i) for i in a["/tokens"]]
        record_with_transformers(args, str(theirs), ids)
        with h5py.File(ours) as a, h5py.File(theirs) as b:
            if set(a["/layers"]) != set(b["/layers"]):
                raise Incomparable(f"layers {sorted(a['/layers'])} here, {sorted(b['/layers'])} with transformers")
            rows = [{"layer": int(layer),
                     **{name: relative_difference(a[f"/layers/{layer}/{name}"], b[f"/layers/{layer}/{name}"]) for name in ARRAYS}}
                    for layer in sorted(a["/layers"], key=int)]
            logits = {"relative": relative_difference(a["/logits"], b["/logits"]), **compare_logits(a["/logits"], b["/logits"])}
    worst = max([row[name] for row in rows for name in ARRAYS] + [logits["relative"]])
    ids_agree = same_ids(args, text, ids)
    return {"model": args.model, "tokens": len(ids), "same_ids": ids_agree, "layers": rows, "logits": logits, "worst": worst,
            "tolerance": args.tolerance, "agree": worst <= args.tolerance and ids_agree is not False}


def describe(report):
    lines = [f"{report['model']}: {report['tokens']} tokens, ids " +
             {True: "as transformers'", False: "NOT as transformers'", None: "made up (no tokenizer)"}[report["same_ids"]],
             "largest difference over the array's root mean square:", "layer" + "".join(f"{name:>10}" for name in ARRAYS)]
    lines += [f"{row['layer']:5d}" + "".join(f"{row[name]:10.1e}" for name in ARRAYS) for row in report["layers"]]
    logits = report["logits"]
    lines.append(f"logits {logits['relative']:.1e}, same most likely token {100 * logits['same_top']:.1f} %, divergence "
                 f"{logits['divergence']:.1e} nats")
    lines.append(f"{'agree' if report['agree'] else 'DO NOT AGREE'}: worst {report['worst']:.1e}, tolerance {report['tolerance']:.1e}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="checkpoint folder or GGUF file")
    parser.add_argument("--text", help="UTF-8 text (default: the project's README.md)")
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--kvscope", default=str(ROOT / "build/release/bin/kvscope"))
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        report = compare(args)
    except (Incomparable, ImportError, OSError) as error:
        print(f"parity_with_transformers.py: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report) if args.json else describe(report))
    return 0 if report["agree"] else 1


if __name__ == "__main__":
    sys.exit(main())
