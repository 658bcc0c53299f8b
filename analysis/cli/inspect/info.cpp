// kvscope info: what a trace, a result, a model, a store or a folder of recordings holds.
#include "analysis/cli/inspect/info_describe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "analysis/base/describe_trace.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/models/describe_model.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/runs/leases.hpp"
#include "analysis/runs/store.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/trace/result.hpp"
#include "traces/look_at_files.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

/// Nothing if the file is not a result either.
std::optional<Json> describe_result(const fs::path& file) {
  try {
    const ResultFile result = ResultFile::open(file);
    const ResultInfo& info = result.info();
    Json json = {{"what", "result"},
                 {"file", file.string()},
                 {"file_bytes", fs::file_size(file)},
                 {"kind", info.kind}};
    json["inputs"] = inputs_of(info);
    json["traces"] = info.trace_files;
    json["trace_uuids"] = info.trace_uuids;
    json["trace_hashes"] = info.trace_hashes;
    if (const NumberFormats formats = NumberFormats::of(info.config); !formats.are_f32())
      json["formats"] = formats.sentence();
    json["config"] = info.config;
    json["config_hash"] = info.config_hash;
    json["created"] = info.created;
    json["writer"] = info.writer;
    json["command_line"] = info.command_line;
    json["arrays"] = Json::array();
    for (const auto& array : result.arrays()) {
      json["arrays"].push_back({{"name", array.name},
                                {"shape", to_string(array.shape)},
                                {"axes", array.axes},
                                {"units", array.units},
                                {"long_name", array.long_name}});
    }
    json["plots"] = Json::array();
    for (const auto& plot : result.plots()) json["plots"].push_back(plot.name);
    json["summary"] = result.summary();
    return json;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Throws IoError, or FormatError with what is wrong with the file as a trace.
Json describe_file(const fs::path& file) {
  try {
    const TraceFile trace = TraceFile::open(file, {.allow_partial = true});
    return describe_trace(
        {trace.info(), trace.planned(), file.string(), trace.file_bytes(), trace.warnings()});
  } catch (const FormatError&) {
    const auto result = describe_result(file);
    if (result) return *result;
    throw;  // what is wrong with it as a trace says more
  }
}

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
  Looker::say(json_text(describe_file(file)));
}

/// Traces and results of a folder (not of those below), by name.
std::vector<fs::path> recordings_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& file = entry.path();
    if (file.extension() == ".h5") files.push_back(file);
  }
  std::ranges::sort(files);
  return files;
}

/// What describe_file says of each; "damaged" with the problem of one that does not open.
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
  Json rows = folder.at("files");
  std::string damaged;
  for (Json& file : rows) {
    file["file"] = fs::path(file.at("file").get<std::string>()).filename().string();
    if (file.at("what") == "damaged")
      damaged += fmt::format("damaged: {}\n", file.at("problem").get<std::string>());
    if (file.at("what") == "result") file["what"] = file.at("kind");
    if (!file.contains("layers")) continue;  // no trace
    file["model"] = file.at("model").at("name");
    file["n_layers"] = file.at("layers").size();
  }
  return filled_table(rows, {{"file", "{file}"},
                             {"what", "{what}"},
                             {"model", "{model}"},
                             {"layers", "{n_layers}"},
                             {"tokens", "{n_tokens}"},
                             {"type", "{dtype}"},
                             {"status", "{status}"},
                             {"bytes", "{file_bytes:B}"}}) +
         filled_in("{n_files} files, {n_tokens} tokens, {file_bytes:B}", folder) +
         (damaged.empty() ? "" : filled_in(", {n_damaged} damaged", folder)) + "\n" + damaged;
}

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

std::string store_text(Json json) {
  json["n_failed"] = json.at("failed_items").size();
  std::string text =
      filled_in("{folder}: {answers} answers, {n_failed} failed, {at_work} at work\n", json);
  for (const Json& plan : json.at("plans"))
    text += filled_in(
        "{command}: {done} of {items} items done, {missing} missing, {failed} failed\n", plan);
  if (!json.at("items_per_hour").is_null())
    text += filled_in("{items_per_hour:3} items an hour, about {seconds_left:s} left\n", json);
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
