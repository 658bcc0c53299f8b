// kvscope info: what a trace, a result, a model or a folder of units holds.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "analysis/base/number_formats.hpp"
#include "analysis/cli/command.hpp"
#include "analysis/cli/common_options.hpp"
#include "analysis/cli/describe_model.hpp"
#include "analysis/cli/model_source.hpp"
#include "analysis/cli/output.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/cli/unit_status.hpp"
#include "analysis/units/unit_folder.hpp"
#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/model/gguf/gguf_checkpoint.hpp"
#include "core/trace/result.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json capture_words(const CaptureSet& capture) {
  Json words = Json::array();
  if (capture.qkv) words.push_back("qkv");
  if (capture.lse) words.push_back("lse");
  if (capture.logits) words.push_back("logits");
  if (capture.attn_dense) words.push_back("attn");
  if (capture.attn_topk > 0) words.push_back(fmt::format("attn-topk={}", capture.attn_topk));
  if (capture.stats) words.push_back("stats");
  if (capture.routing) words.push_back("routing");
  if (capture.k_pre_rope) words.push_back("k-pre-rope");
  return words;
}

Json describe_trace(const fs::path& file) {
  const TraceFile trace = TraceFile::open(file, {.allow_partial = true});
  const TraceInfo& info = trace.info();
  const TraceInfo& planned = trace.planned();
  Json json = {{"what", "trace"},
               {"file", file.string()},
               {"file_bytes", trace.file_bytes()},
               {"status", name_of(info.status)}};
  json["model"] = {{"name", info.model_name},
                   {"hash", info.model_hash},
                   {"family", info.model_family},
                   {"n_layers", info.n_layers},
                   {"n_q", info.n_q},
                   {"n_kv", info.n_kv},
                   {"d_head", info.d_head},
                   {"d_model", info.d_model},
                   {"n_vocab", info.n_vocab},
                   {"score_scale", info.score_scale},
                   {"score_cap", info.score_cap},
                   {"rope_kind", info.rope_kind},
                   {"rope_theta", info.rope_theta},
                   {"qk_norm", info.qk_norm},
                   {"sinks", !info.sink_logits.empty()}};
  if (info.n_experts_per_token > 0) {
    json["model"]["n_experts_per_token"] = info.n_experts_per_token;
  }
  json["capture"] = capture_words(info.capture);
  if (const IndexShape& index = info.index; !index.empty()) {
    json["capture"].push_back("index");
    json["index"] = {{"layers", index.layers},           {"n_heads", index.n_heads},
                     {"n_key_heads", index.n_key_heads}, {"width", index.width},
                     {"gates", index.has_gates},         {"n_lists", index.n_lists},
                     {"n_selected", index.n_selected},   {"block", index.block}};
  }
  json["dtype"] = name_of(info.dtype);
  if (const NumberFormats formats = NumberFormats::of(info); !formats.are_f32()) {
    formats.add_to(json);
    json["formats"] = formats.sentence();
  }
  json["layers"] = info.layers;
  json["q_heads"] = info.q_heads;
  json["kv_heads"] = info.kv_heads;
  json["rows"] = {info.rows.begin, info.rows.end};
  json["n_tokens"] = info.n_tokens;
  json["n_prompt"] = info.n_prompt;
  json["n_units"] = info.units.size();
  json["planned_tokens"] = planned.n_tokens;
  json["planned_units"] = planned.units.size();
  json["chunk"] = info.chunk;
  json["text_source"] = info.text_source;
  json["uuid"] = info.uuid;
  json["content_hash"] = info.content_hash;
  json["created"] = info.created;
  json["writer"] = info.writer;
  json["command_line"] = info.command_line;
  json["host"] = info.host;
  json["seed"] = info.seed;
  json["warnings"] = trace.warnings();
  return json;
}

// Nothing if the file is not a result either.
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

// Numbers of a list, in ranges: "0-7", "0, 3-5".
std::string list_text(const Json& list) {
  std::string out;
  for (std::size_t i = 0; i < list.size();) {
    std::size_t last = i;
    while (last + 1 < list.size() && list[last + 1].get<Index>() == list[last].get<Index>() + 1)
      ++last;
    out += out.empty() ? "" : ",";
    out += last == i ? list[i].dump() : fmt::format("{}-{}", list[i].dump(), list[last].dump());
    i = last + 1;
  }
  return out;
}

std::string value_text(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (key.ends_with("_bytes")) return bytes_text(value.get<double>());
  if (key == "window") {
    const bool any =
        std::any_of(value.begin(), value.end(), [](const Json& w) { return !w.is_null(); });
    return any ? value.dump() : "none";
  }
  if (key == "rows" && value.is_array())
    return fmt::format("{}:{}", value[0].dump(), value[1].dump());
  const auto is_whole = [](const Json& item) { return item.is_number_integer(); };
  if (value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_whole)) {
    return list_text(value);
  }
  if (value.is_array()) {
    std::string out;
    for (const auto& item : value)
      out += (out.empty() ? "" : ", ") + (item.is_string() ? item.get<std::string>() : item.dump());
    return out.empty() ? "none" : out;
  }
  return value.dump();
}

/// Line breaks of a file's strings must not look like lines of ours.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string("\\n") : std::string(1, c);
  return line;
}

void add_lines(std::string& out, const Json& json, const std::string& prefix) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = one_line(prefix + key);
    if (value.is_object()) {
      add_lines(out, value, name + ".");
    } else if (key == "inputs" && value.is_array() && !value.empty()) {
      for (const Json& input : value) {
        std::string words;
        for (const auto& [part, text] : input.items())
          words += (words.empty() ? "" : " ") + value_text(part, text);
        out += fmt::format("{:<22} {}\n", "input", one_line(words));
      }
    } else if (value.is_array() && !value.empty() && value[0].is_object()) {
      out += fmt::format("{:<22} {} entries (--json shows them)\n", name, value.size());
    } else {
      out += fmt::format("{:<22} {}\n", name, one_line(value_text(key, value)));
    }
  }
}

class InfoCommand final : public Command {
 public:
  std::string name() const override { return "info"; }
  std::string summary() const override {
    return "what a trace, a result, a model or a folder of units holds";
  }
  std::vector<Example> examples() const override {
    return {{"kvscope info trace.h5",
             "shapes, captures and provenance of a trace (also of a .part file)"},
            {"kvscope info verifier --json",
             "config and parameter count of a checkpoint, here an embedded one"},
            {"kvscope info SmolLM2-135M-Instruct.Q4_1.gguf",
             "metadata, types of weights and shapes of a GGUF file"},
            {"kvscope info sweep.csv.units",
             "of a folder of units: what is done, missing and failed, and the time left"}};
  }
  void declare(OptionSet& options) override {
    options
        .positional("WHAT",
                    "a trace, a result file, a folder of units, or a model (as --model takes it)",
                    what_,
                    /*required=*/true)
        .kind = ValueKind::file;
    declare_json(options, json_);
  }

  int run(const OptionSet&, const std::string&) override {
    const Json json = describe();
    if (json_) {
      print_json(json);
    } else {
      std::string out;
      add_lines(out, json, "");
      print(out);
    }
    return kOk;
  }

 private:
  Json describe() const {
    if (!fs::exists(what_) && names_model(what_)) return describe_model(model_dir(what_));
    if (is_unit_folder(what_)) return unit_status(what_);
    if (fs::is_directory(what_) || gguf_file_of(what_)) return describe_model(what_);
    try {
      return describe_trace(what_);
    } catch (const FormatError&) {
      const auto result = describe_result(what_);
      if (result) return *result;
      throw;  // what is wrong with it as a trace says more
    }
  }

  std::string what_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_info_command() {
  return std::make_unique<InfoCommand>();
}

}  // namespace kvscope::cli
