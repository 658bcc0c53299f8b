#include "gui/model/session/session_file.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::gui {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLargestSession = std::size_t{16} << 20;

}  // namespace

bool is_session_file(const fs::path& file) {
  std::error_code error;
  if (file.extension() != ".json" || !fs::is_regular_file(file, error) ||
      fs::file_size(file, error) > kLargestSession || error) {
    return false;
  }
  try {
    const auto json = parse_ordered_json(read_regular_file(file, kLargestSession), file.string());
    const auto says = [&](const char* key, const char* word) {
      return json.is_object() && json.contains(key) && json[key].is_string() && json[key] == word;
    };
    return says("kind", "kvscope-session") || says("format", "kvscope-view");
  } catch (const Error&) {
    return false;  // what is wrong with it, the reader of results says
  }
}

}  // namespace kvscope::gui
