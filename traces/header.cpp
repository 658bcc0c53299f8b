#include "traces/header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>
#include <type_traits>

#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "traces/result_schema.hpp"
#include "traces/schema.hpp"

namespace kvscope {

namespace {

// Longer provenance texts are cut: HDF5 limits attributes.
constexpr std::size_t kMaxTextBytes = 16384;

/// The first bytes of a long text, not cutting a UTF-8 character.
std::string shortened(const std::string& text) {
  if (text.size() <= kMaxTextBytes) return text;
  std::size_t n = kMaxTextBytes;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0U) == 0x80U) --n;
  return text.substr(0, n);
}

/// Calls visit(name, field) for every integer that the root group holds.
template <class Info, class Visit>
void visit_integers(Info& info, Visit visit) {
  visit("n_layers", info.n_layers);
  visit("n_q", info.n_q);
  visit("n_kv", info.n_kv);
  visit("d_head", info.d_head);
  visit("d_model", info.d_model);
  visit("n_vocab", info.n_vocab);
  visit("n_tokens", info.n_tokens);
  visit("n_prompt", info.n_prompt);
  visit("chunk", info.chunk);
  visit("rows_begin", info.rows.begin);
  visit("rows_end", info.rows.end);
  visit("attn_topk", info.capture.attn_topk);
  visit("page_size", info.capture.page_size);
  visit("token_text_capacity", info.token_text_capacity);
}

/// The same for recordings with indexers.
template <class Index_, class Visit>
void visit_index_integers(Index_& index, Visit visit) {
  visit("index_heads", index.n_heads);
  visit("index_key_heads", index.n_key_heads);
  visit("index_width", index.width);
  visit("index_lists", index.n_lists);
  visit("index_selected", index.n_selected);
  visit("index_block", index.block);
}

/// Calls visit(name, field) for every provenance text of the root group; none is needed to read the
/// tensors.
template <class Info, class Visit>
void visit_texts(Info& info, Visit visit) {
  visit("model_name", info.model_name);
  visit("model_family", info.model_family);
  visit("rope_kind", info.rope_kind);
  visit("created", info.created);
  visit("writer", info.writer);
  visit("command_line", info.command_line);
  visit("host", info.host);
  visit("text_source", info.text_source);
  visit("tokenizer_hash", info.tokenizer_hash);
}

/// The same for those that are absent where nothing is to be said.
template <class Info, class Visit>
void visit_optional_texts(Info& info, Visit visit) {
  visit("model_hash", info.model_hash);
  visit("matmul", info.matmul);
  visit("kv_dtype", info.kv_dtype);
}

/// The axes of an array of the header, "layer,field", its unit, and what the fields are.
struct ArrayText {
  const char* axes;
  const char* units;
  const char* fields = nullptr;
};

template <class T>
void put_array(h5::File& file, const char* path, const h5::Dims& dims, const T* values,
               const ArrayText& text) {
  constexpr h5::Type kType = std::is_same_v<T, float>   ? h5::Type::f32
                             : std::is_same_v<T, Index> ? h5::Type::i64
                                                        : h5::Type::u8;
  h5::Dataset dataset = file.create_dataset(path, kType, dims);
  dataset.write(h5::Dims(dims.size(), 0), dims, values);
  schema::describe(file, dataset, text.axes, text.units);
  if (text.fields != nullptr) dataset.set_text("fields", text.fields);
}

void write_indices(h5::File& file, const char* path, const std::vector<Index>& values,
                   const char* axes, const char* units) {
  put_array(file, path, {std::ssize(values)}, values.data(), {axes, units});
}

/// An array of these extents, of which -1 is any; `expected` says it in words.
template <class T>
std::vector<T> get_array(const h5::File& file, const char* path, const h5::Dims& dims,
                         std::string_view expected = {}) {
  const h5::Dataset dataset = file.open_dataset(path);
  const bool fits = std::ranges::equal(dataset.dims(), dims, [](Index found, Index wanted) {
    return found == wanted || wanted < 0;
  });
  if (!fits) {
    throw FormatError("{}: shape {}, expected {}", dataset.where(), h5::to_string(dataset.dims()),
                      expected.empty() ? h5::to_string(dims) : std::string(expected));
  }
  return dataset.read_all<T>();
}

std::vector<Index> read_indices(const h5::File& file, const char* path) {
  return get_array<std::int64_t>(file, path, {-1}, "[n]");
}

void write_calls(h5::File& file, const TraceInfo& info) {
  std::vector<Index> rows;
  for (const ForwardCall& call : info.calls) {
    rows.insert(rows.end(), {call.tokens.begin, call.tokens.end, call.is_decode ? 1 : 0});
  }
  put_array(file, schema::kCalls, {std::ssize(info.calls), 3}, rows.data(),
            {"unit,field", "token", "begin,end,is_decode"});
}

std::vector<ForwardCall> read_calls(const h5::File& file) {
  const auto rows = get_array<std::int64_t>(file, schema::kCalls, {-1, 3}, "[n_calls, 3]");
  std::vector<ForwardCall> calls;
  for (std::size_t i = 0; i + 3 <= rows.size(); i += 3) {
    calls.push_back({{rows[i], rows[i + 1]}, rows[i + 2] != 0});
  }
  return calls;
}

void write_layer_shapes(h5::File& file, const TraceInfo& info) {
  std::vector<Index> shapes;
  std::vector<float> scores;
  for (const LayerShape& shape : info.layer_shapes) {
    shapes.insert(shapes.end(), {shape.n_kv, shape.d_head, shape.keys_of});
    scores.insert(scores.end(), {shape.score_scale, shape.score_cap});
  }
  put_array(file, schema::kLayerShapes, {info.n_layers, 3}, shapes.data(),
            {"layer,field", "1", "n_kv,d_head,keys_of"});
  put_array(file, schema::kLayerScores, {info.n_layers, 2}, scores.data(),
            {"layer,field", "1", "score_scale,score_cap"});
}

void write_model(h5::File& file, const TraceInfo& info) {
  if (!info.model_config.empty()) {
    put_array(file, schema::kConfigJson, {std::ssize(info.model_config)}, info.model_config.data(),
              {"byte", "1"});
  }
  std::vector<Index> windows;
  for (const auto& window : info.window) windows.push_back(window.value_or(0));
  if (!windows.empty()) write_indices(file, schema::kWindows, windows, "layer", "token");
  if (!info.sink_logits.empty()) {
    put_array(file, schema::kSinks, {info.n_layers, info.n_q}, info.sink_logits.data(),
              {"layer,q_head", "nat"});
  }
  if (!info.rope_frequencies.empty()) {
    put_array(file, schema::kRopeFrequencies,
              {info.n_layers, std::ssize(info.rope_frequencies) / info.n_layers},
              info.rope_frequencies.data(), {"layer,pair", "radian/token"});
    put_array(file, schema::kRopeAmplitudes, {info.n_layers}, info.rope_amplitudes.data(),
              {"layer", "1"});
  }
  if (!info.layer_kinds.empty()) {
    std::vector<Index> rows;
    for (const LayerKind& kind : info.layer_kinds) {
      rows.insert(rows.end(), {kind.has_rope ? 1 : 0, kind.n_experts});
    }
    put_array(file, schema::kLayerKinds, {info.n_layers, 2}, rows.data(),
              {"layer,field", "1", "has_rope,n_experts"});
  }
  if (!info.layer_shapes.empty()) write_layer_shapes(file, info);
}

// Needs n_layers.
void read_layer_shapes(const h5::File& file, TraceInfo& info) {
  const auto shapes = get_array<std::int64_t>(file, schema::kLayerShapes, {info.n_layers, 3});
  const auto scores = get_array<float>(file, schema::kLayerScores, {info.n_layers, 2});
  for (std::size_t i = 0; i < scores.size() / 2; ++i) {
    info.layer_shapes.push_back(
        {shapes[3 * i], shapes[3 * i + 1], scores[2 * i], scores[2 * i + 1], shapes[3 * i + 2]});
  }
}

// Needs n_layers and n_q.
void read_layer_properties(const h5::File& file, bool must_have_sinks, TraceInfo& info) {
  if (must_have_sinks || file.has(schema::kSinks))
    info.sink_logits = get_array<float>(file, schema::kSinks, {info.n_layers, info.n_q});
  if (file.has(schema::kRopeFrequencies)) {
    info.rope_frequencies =
        get_array<float>(file, schema::kRopeFrequencies, {info.n_layers, -1}, "[n_layers, pairs]");
    info.rope_amplitudes = get_array<float>(file, schema::kRopeAmplitudes, {info.n_layers});
  }
  if (file.has(schema::kLayerKinds)) {
    const auto rows = get_array<std::int64_t>(file, schema::kLayerKinds, {info.n_layers, 2});
    for (std::size_t i = 0; i + 2 <= rows.size(); i += 2) {
      info.layer_kinds.push_back({rows[i] != 0, rows[i + 1]});
    }
  }
}

void read_model(const h5::File& file, TraceInfo& info) {
  if (file.has(schema::kConfigJson)) {
    const auto bytes = file.open_dataset(schema::kConfigJson).read_all<std::uint8_t>();
    info.model_config.assign(bytes.begin(), bytes.end());
  }
  if (file.has(schema::kWindows)) {
    for (Index window : read_indices(file, schema::kWindows)) {
      info.window.push_back(window == 0 ? std::nullopt : std::optional<Index>(window));
    }
  }
}

void check_version(const h5::File& file, std::vector<std::string>& warnings) {
  const std::string format = file.has_attribute("format") ? file.text("format") : "";
  if (format == result_schema::kFormat) {
    throw FormatError(
        "{}: expected a recording (a trace), found a result; kvscope table, kvscope figure and the "
        "explorer take it",
        file.name());
  }
  if (format != schema::kFormat) {
    throw FormatError("{}: not a kvscope trace: the root attribute 'format' is not '{}'",
                      file.name(), schema::kFormat);
  }
  const std::string version = file.text("schema_version");
  int major = 0;
  int minor = 0;
  const char* end = version.data() + version.size();
  const auto first = std::from_chars(version.data(), end, major);
  const bool dot = first.ec == std::errc() && first.ptr != end && *first.ptr == '.';
  const auto second = dot ? std::from_chars(first.ptr + 1, end, minor) : first;
  if (!dot || second.ec != std::errc() || second.ptr != end || major < 1 || minor < 0)
    throw FormatError("{}: schema_version '{}', expected major.minor", file.name(), version);
  if (major > schema::kMajor) {
    throw FormatError(
        "{}: written in schema version {}, this program reads up to {}.x; use a newer kvscope",
        file.name(), version, schema::kMajor);
  }
  if (minor > schema::kMinor) {
    warnings.push_back(fmt::format(
        "schema version {} is newer than {}.{}: there may be more in the file than is shown",
        version, schema::kMajor, schema::kMinor));
  }
}

/// Whether scores have a soft cap: the feature says so, and the attribute holds it.
bool has_cap(const h5::File& file) {
  const std::vector<std::string> features = split_words(file.text("features"), ',');
  return std::find(features.begin(), features.end(), "score-cap") != features.end();
}

// The numbers are checked with the rest of the header, and against the arrays' shapes after that.
void read_index(const h5::File& file, IndexShape& index) {
  visit_index_integers(index, [&](const char* name, Index& value) { value = file.integer(name); });
  index.has_gates = file.integer("index_gates") != 0;
  index.layers = read_indices(file, schema::kIndexLayers);
}

void read_features(const h5::File& file, TraceInfo& info, std::vector<std::string>& warnings) {
  const std::vector<std::string> known = {
      "qkv",       "lse",   "attn-dense", "attn-topk", "logits",     "stats",     "token-text",
      "checksums", "sinks", "routing",    "index",     "k-pre-rope", "score-cap", "layer-shapes"};
  const std::vector<std::string> features = split_words(file.text("features"), ',');
  const auto has = [&](const char* name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  };
  for (const auto& feature : features) {
    if (feature.empty() || std::find(known.begin(), known.end(), feature) != known.end()) continue;
    warnings.push_back(
        fmt::format("unknown feature '{}': a newer kvscope may read more of this file", feature));
  }
  info.capture.qkv = has("qkv");
  info.capture.lse = has("lse");
  info.capture.attn_dense = has("attn-dense");
  info.capture.logits = has("logits");
  info.capture.stats = has("stats");
  info.capture.routing = has("routing");
  info.capture.k_pre_rope = has("k-pre-rope");
  if (has("index")) read_index(file, info.index);
  read_layer_properties(file, has("sinks"), info);
  if (has("layer-shapes")) read_layer_shapes(file, info);
  if (!has("attn-topk")) info.capture.attn_topk = 0;
  if (!has("token-text")) info.token_text_capacity = 0;
}

/// A recorded layer has a group and arrays, which take room in the file.
void check_layers(const h5::File& file, std::size_t n_layers) {
  constexpr std::uint64_t kBytesPerLayer = 256;
  if (n_layers <= file.size_bytes() / kBytesPerLayer) return;
  throw FormatError("{}: {}: {} layers cannot be in a file of {} bytes", file.name(),
                    schema::kLayers, n_layers, file.size_bytes());
}

/// Numbers that mean something else are not to be read as if they meant this.
void check_meaning(const h5::File& file, const char* name, std::string_view expected) {
  if (!file.has_attribute(name)) return;
  const std::string found = file.text(name);
  if (found == expected) return;
  throw FormatError("{}: {} is '{}', expected {}", file.name(), name, found, expected);
}

}  // namespace

void write_header(h5::File& file, const TraceInfo& info) {
  file.set_text("format", schema::kFormat);
  file.set_text("schema_version",
                fmt::format("{}.{}", schema::kMajor, schema::minor_version_of(info)));
  file.set_text("status", enum_name(info.status), /*capacity=*/16);
  file.set_text("uuid", info.uuid, /*capacity=*/36);
  file.set_text("content_hash", info.content_hash, /*capacity=*/40);
  file.set_text("features", fmt::format("{}", fmt::join(schema::features_of(info), ",")));
  visit_texts(info, [&](const char* name, const std::string& value) {
    file.set_text(name, shortened(value));
  });
  visit_optional_texts(info, [&](const char* name, const std::string& value) {
    if (!value.empty()) file.set_text(name, value);
  });
  visit_integers(info, [&](const char* name, Index value) { file.set_integer(name, value); });
  if (info.planned_tokens > 0) file.set_integer("planned_tokens", info.planned_tokens);
  file.set_text("seed", fmt::format("{}", info.seed));
  file.set_real("score_scale", info.score_scale);
  if (info.score_cap > 0.0f) file.set_real("score_cap", info.score_cap);
  file.set_real("rope_theta", info.rope_theta);
  file.set_real("rope_factor", info.rope_factor);
  file.set_integer("n_experts_per_token", info.n_experts_per_token);
  file.set_integer("qk_norm", info.qk_norm ? 1 : 0);
  file.set_text("dtype", enum_name(info.dtype));
  file.set_text("score_stage", "post-rope");
  file.set_text("mask", "causal");
  write_indices(file, schema::kLayers, info.layers, "slot", "layer");
  write_indices(file, schema::kQHeads, info.q_heads, "slot", "query head");
  write_indices(file, schema::kKvHeads, info.kv_heads, "slot", "KV head");
  std::vector<Index> rows(static_cast<std::size_t>(info.rows.size()));
  std::iota(rows.begin(), rows.end(), info.rows.begin);
  write_indices(file, schema::kQHeadAxis, info.q_heads, "q_head", "query head");
  write_indices(file, schema::kKvHeadAxis, info.kv_heads, "kv_head", "KV head");
  write_indices(file, schema::kRowAxis, rows, "row", "token");
  if (!info.index.empty()) {
    visit_index_integers(info.index,
                         [&](const char* name, Index value) { file.set_integer(name, value); });
    file.set_integer("index_gates", info.index.has_gates ? 1 : 0);
    write_indices(file, schema::kIndexLayers, info.index.layers, "slot", "layer");
  }
  write_calls(file, info);
  write_model(file, info);
}

void seal_header(h5::File& file, const TraceInfo& info) {
  file.set_text("uuid", info.uuid);
  file.set_text("content_hash", info.content_hash);
  file.set_text("status", enum_name(info.status));
}

TraceInfo read_header(const h5::File& file, std::vector<std::string>& warnings) {
  check_version(file, warnings);
  TraceInfo info;
  const std::string status = file.text("status");
  const auto known_status = enum_from_name<TraceStatus>(status);
  if (!known_status) {
    throw FormatError("{}: status '{}', expected recording, complete, interrupted or recovered",
                      file.name(), status);
  }
  info.status = *known_status;
  info.uuid = file.text("uuid");
  if (file.has_attribute("content_hash")) info.content_hash = file.text("content_hash");
  visit_integers(info, [&](const char* name, Index& value) { value = file.integer(name); });
  if (file.has_attribute("planned_tokens")) info.planned_tokens = file.integer("planned_tokens");
  const auto read_text = [&](const char* name, std::string& value) {
    if (file.has_attribute(name)) value = file.text(name);
  };
  visit_texts(info, read_text);
  visit_optional_texts(info, read_text);
  if (file.has_attribute("seed")) {
    const std::string seed = file.text("seed");
    const auto number = number_from<std::uint64_t>(seed);
    if (!number) throw FormatError("{}: seed '{}', expected a whole number", file.name(), seed);
    info.seed = *number;
  }
  info.score_scale = static_cast<float>(file.real("score_scale"));
  if (has_cap(file)) info.score_cap = static_cast<float>(file.real("score_cap"));
  if (file.has_attribute("rope_theta")) info.rope_theta = file.real("rope_theta");
  if (file.has_attribute("rope_factor")) info.rope_factor = file.real("rope_factor");
  if (file.has_attribute("n_experts_per_token")) {
    info.n_experts_per_token = file.integer("n_experts_per_token");
  }
  if (file.has_attribute("qk_norm")) info.qk_norm = file.integer("qk_norm") != 0;
  const std::string dtype = file.text("dtype");
  const auto known_dtype = enum_from_name<DType>(dtype);
  if (!known_dtype)
    throw FormatError("{}: dtype '{}', expected f32, f16 or bf16", file.name(), dtype);
  info.dtype = *known_dtype;
  check_meaning(file, "score_stage", "post-rope");
  check_meaning(file, "mask", "causal");
  read_features(file, info, warnings);
  info.layers = read_indices(file, schema::kLayers);
  check_layers(file, info.layers.size());
  if (file.has(schema::kMovedScores))
    info.moved_scores = get_array<float>(file, schema::kMovedScores, {std::ssize(info.layers)});
  info.q_heads = read_indices(file, schema::kQHeads);
  info.kv_heads = read_indices(file, schema::kKvHeads);
  info.calls = read_calls(file);
  read_model(file, info);
  if (!std::isfinite(info.score_scale) || info.score_scale <= 0.0f) {
    throw FormatError("{}: score_scale is {}, expected a positive number", file.name(),
                      info.score_scale);
  }
  if (!std::isfinite(info.score_cap) || (has_cap(file) && info.score_cap <= 0.0f)) {
    throw FormatError("{}: score_cap is {}, expected a positive number", file.name(),
                      info.score_cap);
  }
  try {
    check_trace_info(info);
  } catch (const ConfigError& error) {
    throw FormatError("{}: {}", file.name(), error.what());
  }
  return info;
}

}  // namespace kvscope
