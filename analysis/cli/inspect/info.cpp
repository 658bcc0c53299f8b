// kvscope info: what a trace, a result, a model, a store or a folder of recordings holds; and what
// `kvscope FILE` says of a file.
#include "analysis/cli/inspect/next_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "analysis/base/describe_trace.hpp"
#include "analysis/base/number_formats.hpp"
#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/models/describe_model.hpp"
#include "analysis/cli/models/model_advice.hpp"
#include "analysis/cli/models/model_source.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/options/instead.hpp"
#include "analysis/runs/leases.hpp"
#include "analysis/runs/store.hpp"
#include "analysis/study/study_file.hpp"
#include "core/base/error.hpp"
#include "core/base/file_kind.hpp"
#include "core/base/json.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/number_text.hpp"
#include "core/base/shell_word.hpp"
#include "core/base/utf8.hpp"
#include "core/base/whole_file.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/open_result.hpp"
#include "traces/look_at_files.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace fs = std::filesystem;

namespace {

Json describe_result(const fs::path& file) {
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
}

/// Throws IoError, or FormatError with what is wrong with the file as a result or a trace.
Json describe_file(const fs::path& file) {
  if (kind_of_file(file) == FileKind::result) return describe_result(file);
  const TraceFile trace = TraceFile::open(file, {.allow_partial = true});
  return describe_trace(
      {trace.info(), trace.planned(), file.string(), trace.file_bytes(), trace.warnings()});
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
  std::map<std::string, std::pair<std::size_t, std::size_t>, std::less<>> known;  // done, failed
  Json failed = Json::array();
  for (const auto& [key, answer] : store.answers()) {
    auto& [n_done, n_failed] = known[std::string(question_of(key))];
    ++(answer.failure.empty() ? n_done : n_failed);
    if (!answer.failure.empty()) failed.push_back({{"id", key}, {"failure", answer.failure}});
  }
  std::size_t n_missing = 0;
  Json plans = Json::array();
  for (const auto& [hash, plan] : store.plans()) {
    std::size_t n_done = 0;
    std::size_t n_failed = 0;
    for (const std::string& question : plan.questions) {
      n_done += known[question].first;
      n_failed += known[question].second;
    }
    const std::size_t missing = plan.n_items - std::min(plan.n_items, n_done + n_failed);
    n_missing += missing;
    plans.push_back({{"command", plan.command},
                     {"work", hash},
                     {"items", plan.n_items},
                     {"done", n_done},
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

/// {"what": "trace", "file", "file_bytes", "status", "model": {...}, ...} or {"what": "result",
/// ...}; also of models ("checkpoint", "GGUF file"), stores ("store") and folders ("recordings": a
/// file that does not open is {"what": "damaged", "file", "problem"}). Throws IoError, or
/// FormatError with what is wrong with the file as a trace.
Json describe(const std::string& what) {
  if (!fs::exists(what) && names_model(what)) return describe_model(model_dir(what));
  if (is_store(what)) return describe_store(what);
  if (fs::is_directory(what) && !fs::exists(fs::path(what) / "config.json") &&
      !gguf_file_of(what)) {
    const std::vector<fs::path> files = recordings_in(what);
    if (!files.empty()) return describe_folder(what, files);
    check_has_weights(what);  // those of an adapter, or of another format, have a sentence
    throw FormatError("{}: a folder without recordings, a model or a store", what);
  }
  if (fs::is_directory(what) || gguf_file_of(what)) return describe_model(what);
  return describe_file(what);
}

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
    answer.lines.push_back(fmt::format("kvscope table {{}} --rows selector{} --value {}",
                                       has_rows_of(result, "budget") ? " --columns budget" : "",
                                       value));
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

/// JSON of this program and others, by its fields; the rest is a table, or nobody's.
Answer about_json(const std::string& text, const fs::path& file) {
  if (file.extension() == ".jsonl")
    return {"examples, a JSON object in each line",
            {"kvscope simulate retrieval --examples {} --selector quoka --budget 256"}};
  const Json json = parse_ordered_json(text, file.string());
  if (json.is_array() ? !json.empty() && json[0].is_number() : json.contains("ids"))
    return {"a list of token ids", {"kvscope record trace.h5 --tokens {}"}};
  if (json.is_object() && json.contains("model_type"))
    return {"the configuration of a model",
            {"kvscope cost --shape {} --selector quest --budget 256 --hardware h100-sxm"}};
  try {
    const auto result = open_result(file);
    rows_of(*result);
    return about_result(*result);
  } catch (const Error&) {
    return {"a JSON file without rows; one of kvscope fit is an option of its method", {}};
  }
}

/// Files that are no recording, no result and no model; without words where it is a damaged one.
Answer about_other(const fs::path& file) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  const FileKind kind = kind_of_file(file);
  if (const auto instead = instead_of("kvset");
      file.filename().string().find(".kvset") != std::string::npos)
    return {fmt::format("of a set of recordings, which went: {}", instead), {}};
  const auto endings = {".h5", ".hdf5", ".part"};
  if (kind == FileKind::other && std::ranges::find(endings, file.extension()) != endings.end())
    return {};
  switch (kind) {
    case FileKind::none:
    case FileKind::trace:
    case FileKind::result:
    case FileKind::hdf5:
    case FileKind::gguf:
      return {};
    case FileKind::session:
      return {std::string(words_of(kind)),
              {"kvscope-explorer --session {}", "kvscope export --html {} --out page.html"}};
    case FileKind::manifest:
      return {std::string(words_of(kind)), {"kvscope reproduce {}"}};
    case FileKind::safetensors:
      return {"weights, of which --model takes the folder with its config.json", {}};
    case FileKind::journal:
      return {
          "a journal of kvscope, which its store's folder holds (that of an earlier version "
          "is not read any more)",
          {}};
    case FileKind::csv:
    case FileKind::json:
    case FileKind::own_json:
    case FileKind::markdown:
    case FileKind::tex:
    case FileKind::text:
      break;
    default:
      return {std::string(words_of(kind)), {}};
  }
  const std::string text = read_regular_file(file, kMostBytes);
  if (first_invalid_utf8(text)) return {"a text that is not in UTF-8; iconv makes it one", {}};
  if (file.extension() == ".toml") {
    read_study_file(file);
    return {
        "a study file",
        {"kvscope study plan {}", "kvscope study run {}", "kvscope study report {} --out report"}};
  }
  if (kind == FileKind::csv) return about_result(*open_result(file));
  if (kind == FileKind::json || kind == FileKind::own_json) return about_json(text, file);
  return {"a text",
          {"kvscope record trace.h5 --max-tokens 4096 --text {}", "kvscope tokenize --text {}"}};
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

std::string file_and_next_steps(const std::string& file) {
  Answer answer;
  try {
    answer = about(describe(file), file);
  } catch (const FormatError&) {
    if (fs::is_directory(file)) throw;
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

KVSCOPE_COMMAND(120, InfoCommand)

}  // namespace kvscope::cli
