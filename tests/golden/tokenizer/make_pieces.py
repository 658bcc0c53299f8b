"""Writes small tokenizers in the formats of SentencePiece and of Mistral, trained on the public-domain sample text, and
pieces.json: what the libraries sentencepiece (0.2.3) and mistral-common (1.13) make of awkward texts with them.

    python tests/golden/tokenizer/make_pieces.py
"""

import base64
import json
import random
import tempfile
from pathlib import Path

import sentencepiece
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from make_families import BOOK, FIXED_TEXTS, FRAGMENTS

HERE = Path(__file__).resolve().parent
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# from, to, in code points: what a table may do to characters
RULES = {"\u00e9": "e", "\ufb01": "fi", "e\u0301": "e", "\t": " ", "\u3000": " ", "\u200b": "", "\u2126": "\u03a9", "ab": "ba"}
MODELS = {
    # as Llama 2 and Mistral have it
    "pieces_bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                       remove_extra_whitespaces=False, control_symbols=["[INST]", "[/INST]"]),
    # as Gemma has it
    "pieces_user_defined": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                                remove_extra_whitespaces=False, add_dummy_prefix=False,
                                user_defined_symbols=["▁▁", "▁▁▁▁", "<tool>", "\n\n", "ship"]),
    "pieces_unigram": dict(model_type="unigram", user_defined_symbols=["<tool>", "ship", "ab"]),
    "pieces_unigram_bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="identity",
                                 remove_extra_whitespaces=False),
}
TEXTS = [text for text in FIXED_TEXTS if "<s>" not in text and "<unk>" not in text] + [
    "The ship's <tool> ships, shipshape\n\n\nab aab  abab", "   ", "\t\ttab\u3000wide \u200bzero e\u0301\u00e9 ﬁn", "aaaaaaa",
    "      six", "x" * 70, BOOK[9000:9900],
]


def train(name, settings, rules):
    target = HERE / name
    if settings["model_type"] == "unigram" and not settings.get("byte_fallback"):
        settings = settings | {"normalization_rule_tsv": rules}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(BOOK[:200_000].split("\n")), model_prefix=str(target), vocab_size=700,
        character_coverage=0.9995, minloglevel=2, **settings)
    target.with_suffix(".vocab").unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(target.with_suffix(".model")))


def make_tekken():
    trained = Tokenizer(BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(TEKKEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator([BOOK[:200_000]], BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False))
    vocab = json.loads(trained.to_str())["model"]["vocab"]
    # the letters of the byte-level alphabet, as GPT-2 numbers them
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}
    tokens = [bytes(letters[c] for c in token) for token in sorted(vocab, key=vocab.get)]
    tokens = [bytes([byte]) for byte in range(256)] + [token for token in tokens if len(token) > 1]
    file = {
        "config": {"pattern": TEKKEN, "num_vocab_tokens": len(tokens), "default_vocab_size": len(tokens) + 30,
                   "default_num_special_tokens": 40, "version": "v3"},
        "vocab": [{"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
                  for i, token in enumerate(tokens)],
    }
    (HERE / "tekken").mkdir(exist_ok=True)
    (HERE / "tekken" / "tekken.json").write_text(json.dumps(file, separators=(",", ":")) + "\n")
    return Tekkenizer.from_file(HERE / "tekken" / "tekken.json")


def main():
    rng = random.Random(38)
    awkward = ["".join(rng.choice([f for f in FRAGMENTS if f not in ("<s>", "</s>")] + ["ship", "<tool>", "ab"])
                       for _ in range(rng.randint(1, 14))) for _ in range(60)]
    cases = {}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as rules:
        for before, after in RULES.items():
            print(*(" ".join(f"{ord(c):X}" for c in text) for text in (before, after)), sep="\t", file=rules)
        rules.flush()
        for name, settings in MODELS.items():
            model = train(name, settings, rules.name)
            cases[name] = [[text, model.encode(text), model.decode(model.encode(text))] for text in TEXTS + awkward]
    tekken = make_tekken()
    cases["tekken"] = [[text, tekken.encode(text, bos=False, eos=False), text] for text in TEXTS + awkward]
    text = json.dumps(cases, ensure_ascii=True, separators=(",", ":"))
    (HERE / "pieces.json").write_text(text.replace("],[", "],\n["), encoding="utf-8")


if __name__ == "__main__":
    main()
