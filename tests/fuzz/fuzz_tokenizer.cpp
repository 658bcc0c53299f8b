// tokenizer.json text, a zero byte, then text to encode: ids that decode, or an Error, in bounded
// time.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view json = input.substr(0, input.find('\0'));
  const std::string_view text = json.size() < input.size() ? input.substr(json.size() + 1)
                                                           : "It's 12 <x>\n\n  \xc3\xa9t\xc3\xa9";
  try {
    const auto tokenizer = kvscope::Tokenizer::parse(json, "fuzz");
    const std::vector<kvscope::TokenId> ids = tokenizer.encode(text, /*add_special=*/true);
    tokenizer.decode(ids);
    for (kvscope::TokenId id : ids) {
      if (id < 0 || id >= tokenizer.n_ids()) std::abort();
    }
  } catch (const kvscope::Error&) {  // the expected outcome
  }
  return 0;
}
