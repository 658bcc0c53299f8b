#!/usr/bin/env python3
"""Writes nfc_tables.cpp from the Unicode data of this Python: nfc_tables.py > nfc_tables.cpp"""
import sys
import unicodedata

HANGUL = range(0xAC00, 0xD7A4)  # done by arithmetic


def main():
    points = [c for c in range(sys.maxunicode + 1) if c not in HANGUL]
    rows = []
    for c in points:
        decomposition = unicodedata.decomposition(chr(c))
        if not decomposition or decomposition.startswith("<"):
            continue
        parts = [int(p, 16) for p in decomposition.split()]
        composes = len(parts) == 2 and unicodedata.normalize("NFC", chr(c)) == chr(c)
        rows.append(f"{{0x{c:x},0x{parts[0]:x},0x{parts[1] if len(parts) == 2 else 0:x},{int(composes)}}},")
    ranges = []
    for c in points:
        ccc = unicodedata.combining(chr(c))
        if ccc == 0:
            continue
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == ccc:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, ccc])
    print(f"// Made by nfc_tables.py from Unicode {unicodedata.unidata_version}; not to be edited.")
    print('#include "core/model/nfc_tables.hpp"\n\nnamespace kvscope {\n\n// clang-format off')
    print(f"const std::array<Decomposition, {len(rows)}> kDecompositions = {{{{")
    for i in range(0, len(rows), 4):
        print("".join(rows[i:i + 4]))
    print(f"}}}};\n\nconst std::array<CombiningRange, {len(ranges)}> kCombiningRanges = {{{{")
    for i in range(0, len(ranges), 5):
        print("".join(f"{{0x{a:x},0x{b:x},{k}}}," for a, b, k in ranges[i:i + 5]))
    print("}};\n// clang-format on\n\n}  // namespace kvscope")
    print(f"{len(rows)} decompositions, {len(ranges)} ranges", file=sys.stderr)


main()
