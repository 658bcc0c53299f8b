// Unicode normalization forms C and KC: characters and their combining marks in one canonical
// spelling; KC also writes ligatures, wide and raised letters and the like as plain ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvscope {

/// The NFC form of well-formed UTF-8 (Unicode Standard Annex 15); empty if nothing in `text` can
/// change (no character from U+0300 on), which spares most texts the copy. O(n log n) for any text.
std::optional<std::string> nfc(std::string_view text);

/// The NFKC form; empty if nothing in `text` can change (no character from U+0080 on).
std::optional<std::string> nfkc(std::string_view text);

}  // namespace kvscope
