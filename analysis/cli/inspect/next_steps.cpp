#include "analysis/cli/inspect/next_steps.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "analysis/cli/inspect/info_describe.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/shell_word.hpp"

namespace kvscope::cli {

namespace {

struct Answer {
  std::string what;                // "a recording of ..."
  std::vector<std::string> lines;  // {} is the file
};

Answer about_result(const Json& json) {
  const std::string kind = json.at("kind").get<std::string>();
  Answer answer{fmt::format("a result: {}", kind), {"kvscope table {}", "kvscope-explorer {}"}};
  for (const FigureKind& figure : figure_kinds()) {
    const bool takes = !figure.kinds.empty() && accepts_kind(figure.kinds.front(), kind);
    if (!takes || answer.lines.size() > 2) continue;
    answer.lines.insert(answer.lines.begin(), "kvscope figure " + figure.name + " {}");
  }
  return answer;
}

/// By what `kvscope info` finds.
Answer about(const Json& json) {
  const std::string what = json.at("what").get<std::string>();
  if (what == "trace")
    return {fmt::format("a recording of {} ({}): {} tokens, {} layers",
                        json.at("model").at("name").get<std::string>(),
                        json.at("status").get<std::string>(), json.at("n_tokens").dump(),
                        json.at("layers").size()),
            {"kvscope sweep {} --selector quoka,quest --budget 256", "kvscope analyze coverage {}",
             "kvscope-explorer {}"}};
  if (what == "result") return about_result(json);
  if (what == "store") return {"a store of answers", {"kvscope info {}"}};
  if (what == "recordings")
    return {fmt::format("a folder of {} recordings", json.at("n_files").dump()),
            {"kvscope info {}", "kvscope sweep {}/*.h5 --selector quoka,quest --budget 256",
             "kvscope-explorer {}/*.h5"}};
  return {fmt::format("a model ({})", what),
          {"kvscope record trace.h5 --model {}",
           "kvscope simulate perplexity --model {} --selector quoka,quest --budget 256",
           "kvscope info {}"}};
}

/// Files that are no HDF5 and no model, by their names' endings and their first bytes.
Answer about_other(const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  if (ending == ".toml")
    return {"a study file",
            {"kvscope study plan {}", "kvscope study run {}", "kvscope study report {}"}};
  if (ending == ".csv")
    return {"a table", {"kvscope table {}", "kvscope figure budget {}", "kvscope-explorer {}"}};
  std::ifstream in(file, std::ios::binary);
  std::string first(4096, '\0');
  in.read(first.data(), static_cast<std::streamsize>(first.size()));
  first.resize(static_cast<std::size_t>(in.gcount()));
  if (first.empty() || first.find('\0') != std::string::npos) return {};
  if (first.find("\"manifest\"") != std::string::npos || file.string().ends_with(".manifest.json"))
    return {"the manifest of a figure", {"kvscope reproduce {}"}};
  return {"a text",
          {"kvscope record trace.h5 --text {}", "kvscope tokenize --text {}",
           "kvscope simulate perplexity --text {} --selector quoka,quest --budget 256"}};
}

}  // namespace

std::string file_and_next_steps(const std::string& file) {
  Answer answer;
  try {
    answer = about(describe(file));
  } catch (const Error&) {
    answer = about_other(file);
    if (answer.what.empty()) throw;
  }
  const std::string name = shell_word(file);
  std::string out = fmt::format("{} is {}. What takes it:\n", name, answer.what);
  for (const std::string& line : answer.lines)
    out += fmt::format("  {}\n", fmt::format(fmt::runtime(line), name));
  return out;
}

}  // namespace kvscope::cli
