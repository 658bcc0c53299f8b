// The command lines of the runs of kvscope papers: what stands for their names in braces, and the
// draft that is made where none is given.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "analysis/cli/models/model_source.hpp"
#include "analysis/cli/runs/papers_runner.hpp"
#include "analysis/fit/draft_fit.hpp"
#include "analysis/papers/expand.hpp"
#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "core/base/shell_word.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

/// Names of models as they are, a path by its full name: the report's commands run anywhere.
std::string model_word(const std::string& word) {
  const bool is_path = word != "verifier" && word != "draft" && fs::exists(word);
  return is_path ? fs::absolute(word).lexically_normal().string() : word;
}

/// "4096,8192" of "4096,8192,16384" for a model of 8192 positions; the shortest in any case, whose
/// command says what is wrong.
std::string lengths_within(std::string_view lengths, const std::string& model) {
  const Index most = load_config(model_dir(model)).max_positions;
  std::string within;
  for (const std::string& length : split_words(lengths, ',')) {
    if (within.empty() || number_from<Index>(length).value_or(0) <= most)
      within += (within.empty() ? "" : ",") + length;
  }
  return within;
}

}  // namespace

std::string PapersRunner::picked(std::string_view name) {
  const std::vector<std::string> parts = split_words(name, ':');
  const bool is_wording = parts.front() == "--chat";
  if (parts.size() != (is_wording ? 3 : 4))
    throw ConfigError("\"{}\": expected pick:RUN:BY:COLUMN or --chat:RUN:BY", name);
  const papers::RunResult found = result(parts[1]);
  if (found.view == nullptr && found.not_run) throw IoError(found.missing);
  if (found.view == nullptr) throw ConfigError(found.missing);
  const Table table = rows_of(*found.view);
  const auto by = table.numbers(parts[2]);
  std::size_t best = 0;
  for (std::size_t row = 1; row < table.n_rows(); ++row) {
    if (std::isnan(by[best]) || by[row] > by[best]) best = row;
  }
  if (!is_wording) return table.at(parts[3]).cell(best);
  const TableColumn* const wording = table.find("wording");  // none where there is no template
  return wording != nullptr && wording->cell(best) == "chat" ? "--chat" : "";
}

const papers::Run* PapersRunner::run_behind(std::string_view name) const {
  if (!folder_.draft && (name == "--draft" || name == "draft-model")) name = papers::kOwnDraft;
  if (papers::is_choice(name)) return papers::run_named(split_words(name, ':').at(1));
  return papers::run_named(name);
}

std::string PapersRunner::draft_word(bool in_folder) const {
  if (folder_.draft) return model_word(*folder_.draft);
  const fs::path folder = fs::path("runs") / papers::kOwnDraft;
  return (in_folder ? folder : folder_.out / folder).string();
}

Index PapersRunner::own_layers() const {
  if (folder_.draft) return 0;
  const Index n_layers = load_config(model_dir(folder_.model)).n_layers;
  if (n_layers < 2) {
    throw ConfigError(
        "{} has one layer, so no shorter model can be made of it: --draft names another",
        folder_.model);
  }
  return std::min(DraftFitOptions{}.n_layers, n_layers - 1);
}

std::string PapersRunner::draft_text() const {
  if (folder_.draft) return *folder_.draft;
  const auto fitted = keys_.find(papers::kOwnDraft);
  if (fitted == keys_.end() || !store_.knows(fitted->second)) return "";
  return fmt::format("early exit: the first {} layers of the model itself and a fitted head",
                     own_layers());
}

bool PapersRunner::uses_own_draft(const std::string& name) const {
  return std::ranges::any_of(needs_of(find(name)), [&](const papers::Run* need) {
    return need->name == papers::kOwnDraft || uses_own_draft(need->name);
  });
}

std::string PapersRunner::substitute(std::string_view name, const std::string& out,
                                     bool in_folder) {
  if (name == "out") return out;
  if (name == "model") return model_word(folder_.model);
  if (name == "--model") {
    std::string words = "--model\n" + model_word(folder_.model);
    const EngineOptions& engine = folder_.engine;
    if (engine.is_on_gpu()) words += "\n--device\n" + engine.device;
    if (!engine.matmul.empty()) words += "\n--matmul\n" + engine.matmul;
    return words;
  }
  if (name == "--draft") return "--draft\n" + draft_word(in_folder);
  if (name == "draft-model") return draft_word(in_folder);
  if (name == "own-layers") return fmt::format("{}", own_layers());
  if (name == "live-dense-layers") return fmt::format("{}", std::max(Index{2}, own_layers()));
  if (name == "--layer-map-unlike-draft")
    return folder_.draft ? "" : fmt::format("--dense-layers\n{}", own_layers());
  if (name == "--unlike-draft") {
    const Index n_layers = load_config(model_dir(folder_.model)).n_layers;
    return folder_.draft ? "" : fmt::format("--layers\n{}-{}", own_layers(), n_layers - 1);
  }
  if (name == "sparse-layers")  // behind the two that the papers leave dense
    return fmt::format("2-{}", load_config(model_dir(folder_.model)).n_layers - 1);
  if (papers::is_choice(name)) return picked(name);
  if (name.starts_with("lengths:")) return lengths_within(name.substr(8), folder_.model);
  const papers::Run& run = find(std::string(name));
  return in_folder ? file_of(run.name) : path_of(run).string();
}

std::vector<std::string> PapersRunner::words_of(const std::string& command, const std::string& out,
                                                bool in_folder) {
  return papers::expand(command,
                        [&](std::string_view name) { return substitute(name, out, in_folder); });
}

std::string PapersRunner::typed(const std::string& name) {
  const papers::Run& run = find(name);
  const std::string line =
      command_line_of(words_of(command_of(run), file_of(name), /*in_folder=*/true));
  return run.ending == ".json" ? line + " > " + file_of(name) : line;
}

}  // namespace kvscope::cli
