// Canonical decompositions and combining classes of Unicode, as nfc_tables.py wrote them.
#pragma once

#include <array>
#include <cstdint>

namespace kvscope {

/// `composed` = `first` + `second`; second is 0 if one character takes the place of another.
struct Decomposition {
  char32_t composed;
  char32_t first;
  char32_t second;
  bool composes;  // false if composition is excluded: it is only ever taken apart
};

/// Characters of one canonical combining class; all others have class 0.
struct CombiningRange {
  char32_t first;
  char32_t last;
  std::uint8_t combining_class;
};

// Both are in ascending order. Hangul syllables are left out: they follow a rule.
extern const std::array<Decomposition, 2061> kDecompositions;
extern const std::array<CombiningRange, 382> kCombiningRanges;

}  // namespace kvscope
