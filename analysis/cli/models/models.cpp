// kvscope models: which models this machine has, and which of them run here.
#include <filesystem>
#include <system_error>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/models/describe_model.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/model_stores.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

constexpr int kMostDepth = 4;
constexpr std::size_t kMostModels = 10'000;

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config.json", ignored);
}

/// Checkpoint folders and GGUF files in `folder`, some folders deep; of split files the first part.
void look_into(const fs::path& folder, int depth, std::vector<StoredModel>& models) {
  if (models.size() >= kMostModels) return;
  if (is_checkpoint(folder)) models.push_back({folder.string(), folder});
  for (const fs::path& entry : sorted_entries(folder)) {
    std::error_code ignored;
    const std::string name = entry.stem().string();
    const bool is_later_part =
        name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
    if (fs::is_directory(entry, ignored) && !fs::is_symlink(entry, ignored)) {
      if (depth > 1) look_into(entry, depth - 1, models);
    } else if (entry.extension() == ".gguf" && !is_later_part) {
      models.push_back({entry.string(), entry});
    }
  }
}

class ModelsCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "models",
        "models on this machine: the hub's cache, Ollama's store, folders",
        "",
        {{"kvscope models", "what --model can name, with size and context, and what runs here"},
         {"kvscope models ~/models --json", "also the checkpoints and GGUF files of a folder"}}};
  }
  void declare(OptionSet& options) override {
    options
        .positional("FOLDER", "folders to look into, four folders deep", folders_,
                    /*required=*/false)
        .kind = ValueKind::folder;
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string&) override {
    const std::vector<StoredModel> models = find();
    Json list = Json::array();
    for (const StoredModel& model : models) {
      const ModelSummary summary = model.path.empty()
                                       ? ModelSummary{.why_not = "its manifest cannot be read"}
                                       : summarize_model(model.path);
      list.push_back({{"model", model.word},
                      {"path", model.path.string()},
                      {"family", summary.family},
                      {"weights", summary.weights},
                      {"n_parameters", summary.n_parameters},
                      {"stored_bytes", summary.stored_bytes},
                      {"max_positions", summary.max_positions},
                      {"runs_here", summary.why_not.empty()},
                      {"why_not", summary.why_not}});
    }
    if (json_) {
      print_json(list);
    } else if (!list.empty()) {
      print(text_of(list));
    }
    if (models.empty()) {
      note(
          "no models in {} and {} (verifier and draft are built in); name a folder, or fetch one: "
          "hf download ORG/NAME",
          hub_cache().string(), ollama_store().string());
    }
    return kOk;
  }

 private:
  std::vector<StoredModel> find() const {
    std::vector<StoredModel> models = hub_models();
    for (StoredModel& model : ollama_models()) models.push_back(std::move(model));
    for (const fs::path& folder : folders_) {
      if (!fs::is_directory(folder))
        throw IoError("no folder {} to look for models in", folder.string());
      look_into(folder, kMostDepth, models);
    }
    return models;
  }

  static std::string text_of(Json list) {
    for (Json& model : list) {
      for (const char* number : {"n_parameters", "stored_bytes", "max_positions"})
        if (model.at(number) == 0) model[number] = nullptr;  // unknown
      const auto why_not = model.at("why_not").get<std::string>();
      model["runs_here"] = why_not.empty() ? "yes" : "no: " + why_not;
    }
    return filled_table(list, {{"model", "{model}"},
                               {"family", "{family}"},
                               {"weights", "{weights}"},
                               {"parameters", "{n_parameters:M}"},
                               {"stored", "{stored_bytes:B}"},
                               {"context", "{max_positions}"},
                               {"runs here", "{runs_here}"}});
  }

  std::vector<fs::path> folders_;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(130, ModelsCommand)

}  // namespace kvscope::cli
