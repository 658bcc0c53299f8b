#include "analysis/base/describe_trace.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/base/number_formats.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string("\\n") : std::string(1, c);
  return line;
}

namespace {

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

using Lines = std::vector<std::pair<std::string, std::string>>;

void add_lines(Lines& lines, const Json& json, const std::string& prefix) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = one_line(prefix + key);
    if (value.is_object()) {
      add_lines(lines, value, name + ".");
    } else if ((key == "inputs" || key == "shapes") && value.is_array() && !value.empty()) {
      const bool is_named = key == "shapes";
      for (const Json& one : value) {
        std::string words;
        for (const auto& [part, text] : one.items())
          words +=
              (words.empty() ? "" : " ") + (is_named ? part + " " : "") + value_text(part, text);
        lines.emplace_back(is_named ? name : "input", one_line(words));
      }
    } else if (value.is_array() && !value.empty() && value[0].is_object()) {
      lines.emplace_back(name, fmt::format("{} entries (--json shows them)", value.size()));
    } else {
      lines.emplace_back(name, one_line(value_text(key, value)));
    }
  }
}

}  // namespace

Json describe_trace(const TraceOfFile& trace) {
  const TraceInfo& info = trace.info;
  const TraceInfo& planned = trace.planned;
  Json json = {{"what", "trace"},
               {"file", trace.file},
               {"file_bytes", trace.file_bytes},
               {"status", enum_name(info.status)}};
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
  if (!info.layer_shapes.empty()) {
    for (const std::vector<Index>& layers : layers_by_shape(info)) {
      const LayerShape shape = info.shape(layers.front());
      json["model"]["shapes"].push_back({{"layers", layers},
                                         {"n_kv", shape.n_kv},
                                         {"d_head", shape.d_head},
                                         {"score_scale", shape.score_scale},
                                         {"score_cap", shape.score_cap}});
    }
    for (const Index layer : info.layers) {
      const Index owner = info.shape(layer).keys_of;
      json["model"]["keys_of"].push_back(owner < 0 ? layer : owner);
    }
  }
  if (info.n_experts_per_token > 0) {
    json["model"]["n_experts_per_token"] = info.n_experts_per_token;
  }
  json["capture"] = info.capture.words();
  if (const IndexShape& index = info.index; !index.empty()) {
    json["capture"].push_back("index");
    json["index"] = {{"layers", index.layers},           {"n_heads", index.n_heads},
                     {"n_key_heads", index.n_key_heads}, {"width", index.width},
                     {"gates", index.has_gates},         {"n_lists", index.n_lists},
                     {"n_selected", index.n_selected},   {"block", index.block}};
  }
  json["dtype"] = enum_name(info.dtype);
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
  json["n_units"] = info.calls.size();
  json["planned_tokens"] = planned.n_planned();
  json["planned_units"] = planned.calls.size();
  json["chunk"] = info.chunk;
  json["text_source"] = info.text_source;
  json["uuid"] = info.uuid;
  json["content_hash"] = info.content_hash;
  json["created"] = info.created;
  json["writer"] = info.writer;
  json["command_line"] = info.command_line;
  json["host"] = info.host;
  json["seed"] = info.seed;
  json["warnings"] = trace.warnings;
  return json;
}

std::vector<std::pair<std::string, std::string>> described_lines(const Json& json) {
  Lines lines;
  add_lines(lines, json, "");
  return lines;
}

}  // namespace kvscope
