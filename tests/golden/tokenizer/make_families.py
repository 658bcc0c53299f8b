"""Writes sentencepiece.json, a small BPE tokenizer of characters with byte fallback trained on the public-domain sample
text, and families.json: what the tokenizers library (0.23) makes of awkward texts with tokenizers built as those of the
published model families. The trainer breaks ties differently from run to run: the two files belong together."""

import copy
import json
import random
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.trainers import BpeTrainer

HERE = Path(__file__).resolve().parent
BOOK = (HERE.parents[2] / "traces/samples/texts/kidnapped.txt").read_text(encoding="utf-8")

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + REST
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + REST
)

FIXED_TEXTS = [
    "", " ", "Hello world", " Hello", "Hello ", "  two  spaces  ", "a\nb\n\nc", "tabs\tand\rreturns",
    "naïve café, Ελληνικά, русский, 中文字, 日本語, 한국어", "👩‍👩‍👧 😀", "123456789 3.14159", "<s>inside</s> <s> ▁ mark", "<s>",
    "<unk>x", "def f(x):\n    return x**2  # comment\n", "▁▁▁", "\u0000\u0001\x7f", BOOK[2000:2600],
    "<|im_start|>user\nHi<|im_end|>\n", "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<|start|>user<|message|>Hi there<|return|>", "<tool_call>{}</think>",
]
FRAGMENTS = [
    "a", "the ", "Ship", " ", "  ", "\n", "\t", "▁", "é", "e\u0301", "中", "日本", "😀", "1", "23", "4567", "'s", "'LL", "!", "--",
    "\r\n", "\u00a0", "ß", "İ", "<s>", "</s>", "<0x0A>", "/", "Ω", "\u200d", "I'm", "x_y",
]


def added(first_id, contents, normalized=False, special=True):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": special}
    return [{"id": first_id + i, "content": content, **flags} for i, content in enumerate(contents)]


def leading(token, token_id):
    """A post-processor that puts one token in front."""
    one = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    two = one + [{"SpecialToken": {"id": token, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    special = {token: {"id": token, "ids": [token_id], "tokens": [token]}}
    return {"type": "TemplateProcessing", "single": one, "pair": two, "special_tokens": special}


def metaspace(**fields):
    return {"type": "Metaspace", "replacement": "▁", **fields}


def byte_level(**fields):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False, **fields}


def split(regex):
    one = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [one, byte_level()]}


def make_sentencepiece():
    """Built as the tokenizer.json of Llama 2: special tokens, 256 bytes, merged tokens, characters, runs of spaces."""
    trained = Tokenizer(BPE(unk_token="<unk>"))
    trained.pre_tokenizer = Metaspace(replacement="▁", prepend_scheme="always")
    trainer = BpeTrainer(vocab_size=700, special_tokens=["<unk>"], limit_alphabet=70, show_progress=False)
    trained.train_from_iterator(BOOK.split("\n"), trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = [token for token in sorted(model["vocab"], key=model["vocab"].get) if token != "<unk>"]
    runs = ["▁" * n for n in (2, 4, 8)]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    names += [t for t in tokens if len(t) > 1] + [t for t in tokens if len(t) == 1] + runs
    merges = [" ".join(pair) for pair in model["merges"]]
    merges += [f"{run[:len(run) // 2]} {run[:len(run) // 2]}" for run in runs]
    space = {"pattern": {"String": " "}, "content": "▁"}
    mark = {"pattern": {"String": "▁"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added(0, ["<unk>", "<s>", "</s>"]),
        "normalizer": {"type": "Sequence",
                       "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", **space}]},
        "pre_tokenizer": None,
        "post_processor": leading("<s>", 1),
        "decoder": {"type": "Sequence",
                    "decoders": [{"type": "Replace", **mark}, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {name: i for i, name in enumerate(names)}, "merges": merges},
    }


def families(base_added):
    """(name, base file, parts that differ, whether texts are compared)"""
    sp, bl = "sentencepiece.json", "tokenizer.json"
    words = metaspace(prepend_scheme="always", split=True)
    bare = metaspace(prepend_scheme="never", split=True)
    pieces = [{"type": "Digits", "individual_digits": True},
              {"type": "Split", "pattern": {"String": "▁"}, "behavior": "MergedWithNext", "invert": False}]
    llama3_tokens = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    qwen_tokens = added(4096, ["<|im_start|>", "<|im_end|>"]) + added(4098, ["<tool_call>", "</think>"], special=False)
    llama3_post = [byte_level(add_prefix_space=True, trim_offsets=False, use_regex=True), leading("<|begin_of_text|>", 0)]
    o200k_tokens = ["<|start|>", "<|message|>", "<|channel|>", "<|return|>"]
    yield "llama2", sp, {}, True
    # tokenizers 0.23 spells such tokens with their word mark when it decodes: only ids are compared
    normalized = {"added_tokens": added(0, ["<unk>", "<s>", "</s>"], normalized=True)}
    yield "llama2 with normalized special tokens", sp, normalized, False
    first = {"normalizer": None, "pre_tokenizer": metaspace(prepend_scheme="first", split=False)}
    yield "llama2, newer files: Metaspace at the beginning", sp, first, True
    yield "Metaspace before every stretch, split into words", sp, {
        "normalizer": None, "pre_tokenizer": words, "decoder": words}, True
    yield "Metaspace without a prefix", sp, {"normalizer": None, "pre_tokenizer": bare, "decoder": bare}, True
    yield "not all bytes have tokens, unknowns fused", sp, {"drop_bytes_above": "<0xC0>"}, True
    yield "no fallback, unknowns one by one", sp, {"model": {"byte_fallback": False, "fuse_unk": False}}, True
    yield "characters in pieces of digits and words", sp, {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pieces}}, True
    yield "llama3", bl, {
        "pre_tokenizer": split(LLAMA3), "model": {"ignore_merges": True},
        "added_tokens": base_added + added(4096, llama3_tokens),
        "post_processor": {"type": "Sequence", "processors": llama3_post}}, True
    yield "qwen", bl, {
        "normalizer": {"type": "NFC"}, "pre_tokenizer": split(QWEN), "added_tokens": base_added + qwen_tokens,
        "post_processor": byte_level(trim_offsets=False)}, True
    yield "o200k (gpt-oss)", bl, {
        "pre_tokenizer": split(O200K), "model": {"ignore_merges": True},
        "added_tokens": base_added + added(4096, o200k_tokens)}, True


def changed(tokenizer, change):
    tokenizer = copy.deepcopy(tokenizer)
    for field, value in change.items():
        if field == "model":
            tokenizer["model"].update(value)
        elif field == "drop_bytes_above":
            vocab = tokenizer["model"]["vocab"]
            kept = [token for token in vocab if not (token.startswith("<0x") and token > value)]
            tokenizer["model"]["vocab"] = {token: i for i, token in enumerate(kept)}
        else:
            tokenizer[field] = value
    return tokenizer


def reference(tokenizer, text, with_texts):
    """[text, ids, decoded, decoded without special tokens]; no texts where they are not whole characters."""
    ids = tokenizer.encode(text, add_special_tokens=True).ids
    texts = [tokenizer.decode(ids, skip_special_tokens=skip) for skip in (False, True)]
    return [text, ids] + (texts if with_texts and not any("\ufffd" in t for t in texts) else [])


def write(name, value):
    (HERE / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def main():
    bases = {"sentencepiece.json": make_sentencepiece(),
             "tokenizer.json": json.loads((HERE / "tokenizer.json").read_text(encoding="utf-8"))}
    write("sentencepiece.json", bases["sentencepiece.json"])
    rng = random.Random(5)
    entries = []
    for name, base, change, with_texts in families(bases["tokenizer.json"]["added_tokens"]):
        tokenizer = Tokenizer.from_str(json.dumps(changed(bases[base], change)))
        awkward = ["".join(rng.choice(FRAGMENTS) for _ in range(rng.randint(1, 14))) for _ in range(40)]
        cases = [reference(tokenizer, text, with_texts) for text in FIXED_TEXTS + awkward]
        entries.append({"name": name, "base": base, "change": change, "cases": cases})
    write("families.json", entries)


if __name__ == "__main__":
    main()
