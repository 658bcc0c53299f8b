#!/usr/bin/env python3
"""What the papers' texts say, as hashes: PAPER.words holds one number for every four words that follow each other.

    python3 make.py PAPER TEXT      # writes PAPER.words
    python3 make.py check PAPER TEXT

The texts themselves are their authors' and do not lie here. A test looks up every quotation of analysis/papers four words
at a time (tests/analysis/papers/words_test.cpp); a number without its text tells nobody what was written.
"""

import re
import sys
from pathlib import Path


def words_of(text: str) -> list[str]:
    """Runs of ASCII letters and digits, in small letters, without the tags of HTML."""
    return re.findall(r"[a-z0-9]+", re.sub(r"</?[a-z]+>", " ", text.lower()))


def number_of(four: list[str]) -> str:
    """The upper 40 bits of FNV-1a of the words with blanks between them."""
    number = 0xCBF29CE484222325
    for byte in " ".join(four).encode():
        number = ((number ^ byte) * 0x100000001B3) % 2**64
    return f"{number >> 24:010x}"


def numbers_of(text: str) -> str:
    words = words_of(text)
    return "".join(f"{number}\n" for number in sorted({number_of(words[i:i + 4]) for i in range(len(words) - 3)}))


if __name__ == "__main__":
    paper, source = sys.argv[-2:]
    file = Path(__file__).with_name(f"{paper}.words")
    numbers = numbers_of(Path(source).read_text())
    if sys.argv[1] == "check":
        sys.exit(0 if file.read_text() == numbers else f"{file.name} is of another text than {source}")
    file.write_text(numbers)
