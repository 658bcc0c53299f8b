#include "analysis/cli/inspect/info_describe.hpp"

#include "analysis/base/number_formats.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"

namespace kvscope::cli {

namespace {

namespace fs = std::filesystem;

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

}  // namespace

Json describe_file(const fs::path& file) {
  try {
    return describe_trace(file);
  } catch (const FormatError&) {
    const auto result = describe_result(file);
    if (result) return *result;
    throw;  // what is wrong with it as a trace says more
  }
}

}  // namespace kvscope::cli
