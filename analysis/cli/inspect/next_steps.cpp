#include "analysis/cli/inspect/next_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "analysis/cli/inspect/info_describe.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/study/study_file.hpp"
#include "core/base/error.hpp"
#include "core/base/file_kind.hpp"
#include "core/base/json.hpp"
#include "core/base/shell_word.hpp"
#include "core/base/utf8.hpp"
#include "core/base/whole_file.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/figure_manifest.hpp"
#include "notebooks_export/open_result.hpp"

namespace kvscope::cli {

namespace {

struct Answer {
  std::string what;                // "a recording of ..."
  std::vector<std::string> lines;  // {} is the file
};

Answer about_trace(const Json& json) {
  const std::string status = json.at("status").get<std::string>();
  const std::string what = fmt::format("a recording of {} ({}): {} tokens, {} layers",
                                       json.at("model").at("name").get<std::string>(), status,
                                       json.at("n_tokens").dump(), json.at("layers").size());
  if (status == "recording") return {what + "; it did not end", {"kvscope recover {}"}};
  return {what,
          {"kvscope sweep {} --selector quoka,quest --budget 256", "kvscope analyze coverage {}",
           "kvscope-explorer {}"}};
}

/// Whether its table has a number of each method.
bool has_rows_of(const ResultView& result, const char* value) {
  try {
    const Table table = rows_of(result);
    return table.has_text("selector") && table.has(value);
  } catch (const Error&) {
    return false;  // it has no table
  }
}

/// The first figure that is drawn of such a result alone, its table, and the window.
Answer about_result(const ResultView& result) {
  const std::string& kind = result.info().kind;
  Answer answer{kind == "table" ? "a table" : "a result: " + kind, {}};
  for (const FigureKind& figure : figure_kinds()) {
    const bool takes =
        !figure.kinds.empty() && accepts_kind(figure.kinds.front(), kind) &&
        std::ranges::all_of(figure.kinds.begin() + 1, figure.kinds.end(),
                            [](const std::string& one) { return one.ends_with('?'); });
    if (!takes || !answer.lines.empty()) continue;
    try {
      make_figure(figure, {.results = {&result}, .options = {}});
      answer.lines.push_back("kvscope figure " + figure.name + " {}");
    } catch (const Error&) {
      continue;  // it lacks columns, or needs a choice
    }
  }
  for (const char* value : {"mass_mean", "accuracy", "perplexity", "acceptance_length", "score"}) {
    if (!has_rows_of(result, value)) continue;
    answer.lines.push_back(fmt::format("kvscope table {{}} --rows selector --value {}", value));
    break;
  }
  answer.lines.emplace_back("kvscope-explorer {}");
  return answer;
}

/// By what `kvscope info` finds.
Answer about(const Json& json, const std::string& file) {
  const std::string what = json.at("what").get<std::string>();
  if (what == "trace") return about_trace(json);
  if (what == "result") return about_result(*open_result(file));
  if (what == "store") return {"a store of answers", {"kvscope info {}"}};
  if (what == "recordings")
    return {fmt::format("a folder of {} recordings and results", json.at("n_files").dump()),
            {"kvscope info {}"}};
  return {fmt::format("a model ({})", what),
          {"kvscope record trace.h5 --model {}",
           "kvscope simulate perplexity --model {} --selector quoka,quest --budget 256",
           "kvscope info {}"}};
}

template <class Read>
bool can(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Files that are no HDF5 and no model: reports, tables, manifests, study files, texts. Without a
/// name where it is none of them.
Answer about_other(const std::filesystem::path& file) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  const FileKind kind = kind_of_file(file);
  switch (kind) {
    case FileKind::svg:
    case FileKind::html:
    case FileKind::pdf:
    case FileKind::png:
    case FileKind::notebook:
      return {std::string(words_of(kind)), {}};
    case FileKind::csv:
    case FileKind::json:
    case FileKind::own_json:
    case FileKind::markdown:
    case FileKind::tex:
    case FileKind::text:
      break;
    default:
      return {};
  }
  const std::string text = read_regular_file(file, kMostBytes);
  if (first_invalid_utf8(text)) return {};
  if (can([&] { manifest_from_text(text, file.string()); }))
    return {"the manifest of a figure", {"kvscope reproduce {}"}};
  if (file.extension() == ".toml") {
    read_study_file(file);
    return {
        "a study file",
        {"kvscope study plan {}", "kvscope study run {}", "kvscope study report {} --out report"}};
  }
  if (text.starts_with('['))
    return {"a list, as token ids are", {"kvscope record trace.h5 --tokens {}"}};
  if (kind == FileKind::csv || kind == FileKind::json || kind == FileKind::own_json)
    return about_result(*open_result(file));
  return {"a text",
          {"kvscope record trace.h5 --max-tokens 4096 --text {}", "kvscope tokenize --text {}"}};
}

}  // namespace

std::string file_and_next_steps(const std::string& file) {
  Answer answer;
  try {
    answer = about(describe(file), file);
  } catch (const FormatError&) {
    if (std::filesystem::is_directory(file)) throw;
    answer = about_other(file);
    if (answer.what.empty()) throw;
  }
  const std::string name = shell_word(file.starts_with('-') ? "./" + file : file);
  std::string out = fmt::format("{} is {}.{}\n", name, answer.what,
                                answer.lines.empty() ? " No command takes it." : " What takes it:");
  for (const std::string& line : answer.lines)
    out += fmt::format("  {}\n", fmt::format(fmt::runtime(line), name));
  return out;
}

}  // namespace kvscope::cli
