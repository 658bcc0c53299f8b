"""Compares the ids of long texts with those of the library sentencepiece (0.2.3), for the models of this folder or others.

    python tests/golden/tokenizer/compare_long_texts.py [--model FILE.model ...] [TEXT.txt ...]

Beside the texts (the first 100,000 characters of each; by default the sample text and this program's sources and manual)
made-up words of twelve scripts are read. Not one id may differ.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import sentencepiece

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
N = 100_000
SCRIPTS = {
    "latin": [(0x61, 0x7A)], "cyrillic": [(0x410, 0x44F)], "greek": [(0x391, 0x3C9)], "hebrew": [(0x5D0, 0x5EA)],
    "arabic": [(0x621, 0x652)], "devanagari": [(0x904, 0x94D)], "thai": [(0xE01, 0xE4E)], "hangul": [(0xAC00, 0xD7A3)],
    "han": [(0x4E00, 0x9FA5)], "kana": [(0xFF01, 0xFF5E), (0x3041, 0x3096)],
    "mixed": [(0x61, 0x7A), (0xC0, 0x17F), (0x410, 0x44F), (0x4E00, 0x4FFF), (0x1F600, 0x1F64F)],
    "traps": [(0x20, 0x7E), (0x300, 0x30F), (0x200B, 0x200D), (0x3000, 0x3000), (0xFB00, 0xFB04), (9, 10)],
}


def made_up(name: str) -> str:
    draw = random.Random(name)
    signs = [chr(c) for first, last in SCRIPTS[name] for c in range(first, last + 1) if unicodedata.category(chr(c)) != "Cn"]
    words = []
    while sum(map(len, words)) < N:
        words += ["".join(draw.choices(signs, k=draw.randint(1, 9))) + draw.choice([" "] * 4 + [", ", ". ", "\n", "  "])
                  for _ in range(2000)]
    return "".join(words)[:N]


def texts_of(files: list[Path]) -> dict[str, str]:
    texts = {file.name: file.read_text(encoding="utf-8")[:N] for file in files}
    sources = "".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "core/model").glob("*.cpp")))
    return {**texts, "sources": sources[:N], **{name: made_up(name) for name in SCRIPTS}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", type=Path,
                        default=[ROOT / "traces/samples/texts/kidnapped.txt", ROOT / "analysis/cli/COMMANDS.md"])
    parser.add_argument("--model", nargs="+", type=Path, default=sorted(HERE.glob("pieces_*.model")))
    parser.add_argument("--kvscope", default=ROOT / "build/release/bin/kvscope")
    given = parser.parse_args()
    n_bad = 0
    for model in given.model:
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(model))
        for name, text in texts_of(given.texts).items():
            for special in ("<unk>", "<s>", "</s>"):  # which kvscope reads as tokens, as transformers does
                text = text.replace(special, "")
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                made = subprocess.run([given.kvscope, "tokenize", "--model", model, "--text", file.name, "--no-special-tokens",
                                       "--json"], capture_output=True, text=True, check=True)
            ours, right = json.loads(made.stdout)["ids"], theirs.encode(text)
            if ours != right:
                n_bad += 1
                at = next((i for i, (a, b) in enumerate(zip(ours, right)) if a != b), min(len(ours), len(right)))
                print(f"{model.name} {name}: id {at} of {len(right)} differs: {ours[at - 1:at + 4]}, expected {right[at - 1:at + 4]}")
        print(f"{model.name}: {len(texts_of(given.texts))} texts read")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
