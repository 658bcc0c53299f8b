"""Makes companions.json: what transformers' ids are where files beside tokenizer.json name tokens.

pip install transformers==5.24.0 tokenizers; python make_companions.py
Cases: who names a token (each file and key, flags that disagree, named but unknown) times texts.
"""

import json
import pathlib
import tempfile

import transformers
from transformers import AutoTokenizer

TEXTS = ["<x> hello <x>", "  <s>  hello", "a<x>b <y> c", "he</s>llo<z>"]


def token(content, **flags):
    base = dict(content=content, lstrip=False, rstrip=False, single_word=False, normalized=False, special=True)
    return base | flags


def byte_level_tokenizer():
    kept = [chr(c) for c in [*range(33, 127), *range(161, 173), *range(174, 256)]]
    letters = kept + [chr(256 + i) for i in range(68)]
    vocab = {"<s>": 0, "</s>": 1} | {c: i + 2 for i, c in enumerate(letters)}
    vocab |= {"he": len(vocab), "ll": len(vocab) + 1}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "unk_token": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
             "merges": [["h", "e"], ["l", "l"]]}
    added = [dict(id=0, **token("<s>")), dict(id=1, **token("</s>"))]
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
            "post_processor": None, "decoder": level, "model": model}, len(vocab)


TOKENIZER, NEW = byte_level_tokenizer()
CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"


def decoder(*tokens, first=NEW):
    return {CONFIG: {"added_tokens_decoder": {str(first + i): t for i, t in enumerate(tokens)}}}


CASES = {
    "none": {},
    "decoder_special": decoder(token("<x>")),
    "decoder_plain": decoder(token("<x>", special=False, normalized=True)),
    "decoder_strips": decoder(token("<x>", lstrip=True, rstrip=True)),
    "decoder_overrides": decoder(token("<s>", lstrip=True, rstrip=True), first=0),
    "decoder_other_id": decoder(token("<x>"), first=NEW + 40),
    "decoder_order": {CONFIG: {"added_tokens_decoder": {str(NEW + 1): token("<x>"), str(NEW): token("<y>")}}},
    "decoder_in_vocabulary": decoder(token("he"), first=NEW - 2),
    "decoder_hides_map": {**decoder(token("<x>")), MAP: {"pad_token": "<y>"}, ADDED: {"<z>": NEW + 1}},
    "added": {ADDED: {"<x>": NEW}},
    "added_order": {ADDED: {"<x>": NEW + 1, "<y>": NEW}},
    "added_special": {ADDED: {"<x>": NEW}, CONFIG: {"pad_token": "<x>"}},
    "additional": {CONFIG: {"additional_special_tokens": ["<x>", "<y>"]}},
    "additional_dict": {MAP: {"additional_special_tokens": [token("<x>", lstrip=True)]}},
    "extra_list": {CONFIG: {"extra_special_tokens": ["<x>"]}},
    "extra_dict": {CONFIG: {"extra_special_tokens": {"image_token": "<x>"}}},
    "extra_and_additional": {CONFIG: {"extra_special_tokens": ["<x>"], "additional_special_tokens": ["<y>"]}},
    "map_additional": {MAP: {"additional_special_tokens": ["<x>"]}},
    "map_pad": {MAP: {"pad_token": token("<x>", rstrip=True)}},
    "map_over_config": {CONFIG: {"pad_token": "<y>"}, MAP: {"pad_token": "<x>"}},
    "named_pad": {CONFIG: {"pad_token": "<x>"}},
    "named_all": {CONFIG: {"mask_token": "<x>", "cls_token": "<y>", "unk_token": "<z>"}},
    "named_own": {CONFIG: {"image_token": "<x>", "pad_token": "<y>"}},
    "named_object": {CONFIG: {"pad_token": {"__type": "AddedToken", **token("<x>", lstrip=True)}}},
    "extra_merged": {CONFIG: {"extra_special_tokens": ["<y>"]}, MAP: {"extra_special_tokens": ["<x>", "<y>"]}},
    "additional_kept": {CONFIG: {"additional_special_tokens": ["<x>"]}, MAP: {"additional_special_tokens": ["<y>"]}},
    "own_object": {CONFIG: {"image_token": {"__type": "AddedToken", **token("<x>", lstrip=True)}}},
    "own_object_untyped": {CONFIG: {"image_token": token("<x>")}},
    "map_own_object": {MAP: {"image_token": token("<x>", rstrip=True)}},
    "map_own_order": {CONFIG: {"image_token": "<x>"}, MAP: {"video_token": "<y>"}},
    "map_own_same": {CONFIG: {"image_token": "<x>"}, MAP: {"image_token": "<y>"}},
    "model_specific": {CONFIG: {"model_specific_special_tokens": {"image_token": "<x>"}}},
    "model_specific_lost": {CONFIG: {"model_specific_special_tokens": {"image_token": "<x>"}, "video_token": "<y>"}},
    "map_extra_dict": {CONFIG: {"extra_special_tokens": ["<y>"]}, MAP: {"extra_special_tokens": {"image_token": "<x>"}}},
    "bos_unknown": {CONFIG: {"bos_token": "<x>"}},
}


def main():
    transformers.logging.set_verbosity_error()
    cases = []
    for name, files in CASES.items():
        files = {k: dict(v) for k, v in files.items()}
        files.setdefault(CONFIG, {})
        files[CONFIG] = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                         "eos_token": "</s>"} | files[CONFIG]
        with tempfile.TemporaryDirectory() as folder:
            for file, content in {"tokenizer.json": TOKENIZER, **files}.items():
                (pathlib.Path(folder) / file).write_text(json.dumps(content))
            try:
                made = AutoTokenizer.from_pretrained(folder)
                ids = [made(text).input_ids for text in TEXTS]
            except Exception as error:  # a case that the reference refuses is told, not kept
                print(name, "refused:", error)
                continue
        cases.append({"name": name, "files": files, "ids": ids})
    out = pathlib.Path(__file__).with_name("companions.json")
    head = {"made_by": f"make_companions.py, transformers {transformers.__version__}", "texts": TEXTS,
            "tokenizer": TOKENIZER}
    lines = ",\n".join(json.dumps(case) for case in cases)
    out.write_text(json.dumps(head, ensure_ascii=True)[:-1] + ',\n"cases": [\n' + lines + "\n]}\n")
    print(len(cases), "cases")


main()
