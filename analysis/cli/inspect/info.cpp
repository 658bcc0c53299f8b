// kvscope info: what a trace, a result, a model or a store holds.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "analysis/base/describe_trace.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/inspect/info_describe.hpp"
#include "analysis/cli/inspect/info_many.hpp"
#include "analysis/cli/models/describe_model.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/runs/leases.hpp"
#include "analysis/runs/store.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

/// How far the work in a store is. Rate and time left are null if nobody is at it.
Json describe_store(const fs::path& folder) {
  const Store store(folder);
  std::map<std::string, std::size_t> done;  // by what keys of a plan begin with
  Json failed = Json::array();
  for (const auto& [key, answer] : store.answers()) {
    if (answer.failure.empty())
      ++done[std::string(question_of(key))];
    else
      failed.push_back({{"id", key}, {"failure", answer.failure}});
  }
  std::size_t n_missing = 0;
  Json plans = Json::array();
  for (const auto& [hash, plan] : store.plans()) {
    std::size_t n_failed = 0;
    for (const Json& item : failed)
      n_failed += question_of(item.at("id").get<std::string>()) == hash;
    const std::size_t missing = plan.n_items - std::min(plan.n_items, done[hash] + n_failed);
    n_missing += missing;
    plans.push_back({{"command", plan.command},
                     {"work", hash},
                     {"items", plan.n_items},
                     {"done", done[hash]},
                     {"missing", missing},
                     {"failed", n_failed}});
  }
  const std::size_t n_at_work = Leases(store.leases(), store.worker()).at_work().size();
  const double rate = n_at_work > 0 ? store.answers_per_hour() : 0.0;
  return {{"what", "store"},
          {"folder", folder.string()},
          {"answers", store.n_known()},
          {"at_work", n_at_work},
          {"plans", plans},
          {"items_per_hour", rate > 0.0 ? Json(rate) : Json(nullptr)},
          {"seconds_left",
           rate > 0.0 ? Json(3600.0 * static_cast<double>(n_missing) / rate) : Json(nullptr)},
          {"failed_items", failed}};
}

std::string store_text(const Json& json) {
  const auto count = [](const Json& of, const char* name) {
    return of.at(name).get<std::size_t>();
  };
  std::string text =
      fmt::format("{}: {} answers, {} failed, {} at work\n", json.at("folder").get<std::string>(),
                  count(json, "answers"), json.at("failed_items").size(), count(json, "at_work"));
  for (const Json& plan : json.at("plans"))
    text += fmt::format("{}: {} of {} items done, {} missing, {} failed\n",
                        plan.at("command").get<std::string>(), count(plan, "done"),
                        count(plan, "items"), count(plan, "missing"), count(plan, "failed"));
  if (!json.at("items_per_hour").is_null())
    text += fmt::format("{} items an hour, about {} left\n",
                        number_text(json.at("items_per_hour").get<double>(), 3),
                        seconds_text(json.at("seconds_left").get<double>()));
  for (const Json& item : json.at("failed_items"))
    text += fmt::format("failed: {}: {}\n", item.at("id").get<std::string>(),
                        one_line(item.at("failure").get<std::string>()));
  return text;
}

class InfoCommand final : public Command {
 public:
  CommandCard card() const override {
    return {"info",
            "what a trace, a result, a model, a store or a folder of recordings holds",
            "",
            {{"kvscope info trace.h5",
              "shapes, captures and provenance of a trace (also of a .part file)"},
             {"kvscope info verifier --json",
              "config and parameter count of a checkpoint, here an embedded one"},
             {"kvscope info SmolLM2-135M-Instruct.Q4_1.gguf",
              "metadata, types of weights and shapes of a GGUF file"},
             {"kvscope info recordings", "a folder of traces: a line for each, and sums"},
             {"kvscope info sweep.csv.store",
              "of a store: what is done, missing and failed, and the time left"}}};
  }
  void declare(OptionSet& options) override {
    options
        .positional("WHAT",
                    "a trace, a result file, a folder of traces, a store, or a model (as "
                    "--model takes it)",
                    what_,
                    /*required=*/true)
        .kind = ValueKind::file;
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string&) override {
    const Json json = describe(what_);
    if (json_) {
      print_json(json);
    } else if (json.value("what", std::string()) == "recordings") {
      print(folder_text(json));
    } else if (json.value("what", std::string()) == "store") {
      print(store_text(json));
    } else {
      std::string out;
      for (const auto& [name, value] : described_lines(json))
        out += fmt::format("{:<22} {}\n", name, value);
      print(out);
    }
    return kOk;
  }

 private:
  std::string what_;
  bool json_ = false;
};

}  // namespace

Json describe(const std::string& what) {
  if (!fs::exists(what) && names_model(what)) return describe_model(model_dir(what));
  if (is_store(what)) return describe_store(what);
  if (fs::is_directory(what) && !fs::exists(fs::path(what) / "config.json") &&
      !gguf_file_of(what)) {
    const std::vector<fs::path> files = recordings_in(what);
    if (!files.empty()) return describe_folder(what, files);
    throw FormatError("{}: a folder without recordings, a model or a store", what);
  }
  if (fs::is_directory(what) || gguf_file_of(what)) return describe_model(what);
  return describe_file(what);
}

KVSCOPE_COMMAND(120, InfoCommand)

}  // namespace kvscope::cli
