// Any bytes as tokenizer.model, or, if they begin as JSON does, as tekken.json: ids that decode, or
// an Error.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = input.starts_with('{') ? kvscope::Tokenizer::parse_tekken(input, "fuzz")
                                                  : kvscope::Tokenizer::parse_pieces(input, "fuzz");
    for (const std::string_view text :
         {"It's 12 <s> ab\n\n  \xc3\xa9t\xc3\xa9 a\xcc\x81", "  ", ""}) {
      const std::vector<kvscope::TokenId> ids = tokenizer.encode(text, /*add_special=*/true);
      tokenizer.decode(ids);
      for (kvscope::TokenId id : ids) {
        if (id < 0 || id >= tokenizer.n_ids()) std::abort();
      }
    }
  } catch (const kvscope::Error&) {  // the expected outcome
  }
  return 0;
}
