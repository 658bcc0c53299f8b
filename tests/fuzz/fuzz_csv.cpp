// Any bytes as a CSV table, as token ids and as JSON rows: a table whose columns fit together,
// or an Error.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "analysis/base/read_table.hpp"
#include "core/base/csv_text.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/utf8.hpp"

namespace {

void check_table(const kvscope::Table& table) {
  for (const auto& column : table.columns()) {
    const std::size_t n = column.is_text ? column.words.codes.size() : column.numbers.size();
    if (n != table.n_rows() || table.find(column.name) == nullptr) std::abort();
    if (kvscope::first_invalid_utf8(column.name)) std::abort();
    if (!column.is_text) continue;
    for (const std::string& word : column.words.categories) {
      if (kvscope::first_invalid_utf8(word)) std::abort();
      if (kvscope::csv_text_of(kvscope::csv_field(word)) != word &&
          word.find_first_of(",\"\r\n") == std::string::npos) {
        std::abort();
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvscope;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check_table(table_from_csv(text, "fuzz"));
  } catch (const Error&) {
  }
  try {
    check_table(table_from_json(parse_json(text, "fuzz"), "fuzz"));
  } catch (const Error&) {
  }
  for (const std::string& out : {clean_text(text), xml_escape(text), markdown_escape(text),
                                 tex_escape(text), terminal_text(text)}) {
    if (first_invalid_utf8(out)) std::abort();
  }
  (void)short_message(text);
  return 0;
}
