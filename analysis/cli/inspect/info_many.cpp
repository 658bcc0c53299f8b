#include "analysis/cli/inspect/info_many.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "analysis/cli/frame/text_table.hpp"
#include "analysis/cli/inspect/info_describe.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "traces/look_at_files.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

Json describe_or_say_why(const fs::path& file) {
  try {
    return describe_file(file);
  } catch (const Error& error) {
    return {{"what", "damaged"}, {"file", file.string()}, {"problem", error.what()}};
  }
}

/// What the other process said; too much of it is cut off, and asked for here.
Json said_json(const std::string& text, const fs::path& file) {
  try {
    return parse_ordered_json(text, file.string());
  } catch (const FormatError&) {
    return describe_or_say_why(file);
  }
}

void say_description(const fs::path& file, unsigned /*options*/) {
  Looker::say(describe_file(file).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

std::vector<fs::path> recordings_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& file = entry.path();
    if (file.extension() == ".h5") files.push_back(file);
  }
  std::ranges::sort(files);
  return files;
}

Json describe_folder(const fs::path& folder, const std::vector<fs::path>& files) {
  constexpr unsigned kMostProcesses = 16;
  const auto n_processes = static_cast<int>(std::clamp<std::size_t>(
      files.size() / 32, 1, std::clamp(std::thread::hardware_concurrency(), 1U, kMostProcesses)));
  const auto said = look_at_files(files, say_description, n_processes);
  Json list = Json::array();
  std::int64_t n_tokens = 0;
  std::int64_t n_bytes = 0;
  std::size_t n_damaged = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    Json one = said[i] ? said_json(*said[i], files[i]) : describe_or_say_why(files[i]);
    n_tokens += one.value("n_tokens", std::int64_t{0});
    n_bytes += one.value("file_bytes", std::int64_t{0});
    n_damaged += one.at("what") == "damaged" ? 1 : 0;
    list.push_back(std::move(one));
  }
  return {{"what", "recordings"},    {"folder", folder.string()}, {"n_files", files.size()},
          {"n_tokens", n_tokens},    {"file_bytes", n_bytes},     {"n_damaged", n_damaged},
          {"files", std::move(list)}};
}

std::string folder_text(const Json& folder) {
  TextTable table({"file", "what", "model", "layers", "tokens", "type", "status", "bytes"});
  std::string damaged;
  for (const Json& file : folder.at("files")) {
    const std::string name = fs::path(file.at("file").get<std::string>()).filename().string();
    const auto what = file.at("what").get<std::string>();
    if (what == "damaged") {
      damaged += fmt::format("damaged: {}\n", file.at("problem").get<std::string>());
      table.add_row({name, what, "-", "-", "-", "-", "-", "-"});
    } else if (what == "result") {
      table.add_row({name, file.value("kind", std::string()), "-", "-", "-", "-", "-",
                     bytes_text(file.at("file_bytes").get<double>())});
    } else {
      table.add_row({name, what, file.at("model").at("name").get<std::string>(),
                     std::to_string(file.at("layers").size()), file.at("n_tokens").dump(),
                     file.at("dtype").get<std::string>(), file.at("status").get<std::string>(),
                     bytes_text(file.at("file_bytes").get<double>())});
    }
  }
  return table.text() +
         fmt::format("{} files, {} tokens, {}{}\n{}", folder.at("n_files").get<std::size_t>(),
                     folder.at("n_tokens").dump(),
                     bytes_text(folder.at("file_bytes").get<double>()),
                     folder.at("n_damaged") == 0
                         ? ""
                         : fmt::format(", {} damaged", folder.at("n_damaged").dump()),
                     damaged);
}

}  // namespace kvscope::cli
