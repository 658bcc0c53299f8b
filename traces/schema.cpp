#include "traces/schema.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/enum_names.hpp"
#include "core/base/lists.hpp"

namespace kvscope::schema {

namespace {

/// Collects the arrays of one trace.
class Builder {
 public:
  explicit Builder(const TraceInfo& info) : info_(info) {}

  void add(std::string path, h5::Type type, h5::Dims dims, Along along, std::string axes,
           std::string units) {
    ArraySpec array;
    array.checksum_path = "/checksums" + path;
    array.path = std::move(path);
    array.type = type;
    array.dims = std::move(dims);
    array.along = along;
    array.has_heads = axes.find("head") != std::string::npos;
    array.keys_last = axes.ends_with("key");
    array.axes = std::move(axes);
    array.units = std::move(units);
    arrays_.push_back(std::move(array));
  }

  void add_layer(Index layer) {
    const auto at = [&](const char* name) { return layer_path(layer, name); };
    const CaptureSet& capture = info_.capture;
    const h5::Type stored = h5::type_of(info_.dtype);
    const Index n_q = static_cast<Index>(info_.q_heads.size());
    const Index n_kv = std::ssize(info_.kv_heads_of(layer));
    const Index n_rows = info_.rows.size();
    const Index n_tokens = info_.n_tokens;
    const Index d_head = info_.shape(layer).d_head;
    const std::string kv = kv_axis(layer);
    if (capture.qkv) {
      add(at("q"), stored, {n_q, n_rows, d_head}, Along::rows, "q_head,row,dim", "1");
      add(at("k"), stored, {n_kv, n_tokens, d_head}, Along::tokens, kv + ",token,dim", "1");
      add(at("v"), stored, {n_kv, n_tokens, d_head}, Along::tokens, kv + ",token,dim", "1");
    }
    if (capture.lse) add(at("lse"), h5::Type::f32, {n_q, n_rows}, Along::rows, "q_head,row", "nat");
    if (capture.attn_dense) {
      add(at("attn"), stored, {n_q, n_rows, n_tokens}, Along::rows, "q_head,row,key",
          "probability");
    }
    if (capture.attn_topk > 0) {
      const Index n = capture.attn_topk;
      add(at("topk_pos"), h5::Type::i32, {n_q, n_rows, n}, Along::rows, "q_head,row,rank", "token");
      add(at("topk_prob"), h5::Type::f32, {n_q, n_rows, n}, Along::rows, "q_head,row,rank",
          "probability");
    }
    if (capture.routing && info_.has_experts(layer)) {
      const Index n = info_.n_experts_per_token;
      add(at("experts"), h5::Type::i32, {n_rows, n}, Along::rows, "row,rank", "expert");
      add(at("expert_weights"), h5::Type::f32, {n_rows, n}, Along::rows, "row,rank", "1");
    }
    add_side(layer, stored);
    if (capture.stats) {
      const Index n_pages = info_.n_full_pages();
      add(at("stats/q_norm"), h5::Type::f32, {n_q, n_rows}, Along::rows, "q_head,row", "1");
      add(at("stats/k_norm"), h5::Type::f32, {n_kv, n_tokens}, Along::tokens, kv + ",token", "1");
      add(at("stats/page_min"), h5::Type::f32, {n_kv, n_pages, d_head}, Along::full_pages,
          kv + ",page,dim", "1");
      add(at("stats/page_max"), h5::Type::f32, {n_kv, n_pages, d_head}, Along::full_pages,
          kv + ",page,dim", "1");
    }
  }

  void add_side(Index layer, h5::Type stored) {
    const auto at = [&](const char* name) { return layer_path(layer, name); };
    const IndexShape& index = info_.index;
    const Index n_rows = info_.rows.size();
    if (index.has_layer(layer)) {
      add(at("index_q"), stored, {index.n_heads, n_rows, index.width}, Along::rows,
          "index_head,row,dim", "1");
      add(at("index_k"), stored, {index.n_key_heads, info_.n_tokens, index.width}, Along::tokens,
          "index_key_head,token,dim", "1");
      if (index.has_gates)
        add(at("index_w"), h5::Type::f32, {index.n_heads, n_rows}, Along::rows, "index_head,row",
            "1");
      if (index.n_selected > 0)
        add(at("index_selected"), h5::Type::i32, {index.n_lists, n_rows, index.n_selected},
            Along::rows, "list_head,row,rank", "block");
    }
    if (info_.capture.k_pre_rope)
      add(at("k_pre_rope"), stored,
          {std::ssize(info_.kv_heads_of(layer)), info_.n_tokens, info_.shape(layer).d_head},
          Along::tokens, kv_axis(layer) + ",token,dim", "1");
  }

  std::vector<ArraySpec> take() { return std::move(arrays_); }

 private:
  /// The scale kv_head holds the numbers of other heads, perhaps as many.
  std::string kv_axis(Index layer) const {
    return info_.kv_heads_of(layer) == info_.kv_heads ? "kv_head" : "layer_kv_head";
  }

  const TraceInfo& info_;
  std::vector<ArraySpec> arrays_;
};

}  // namespace

Index ArraySpec::row_size() const {
  Index n = 1;
  for (std::size_t a = growing_axis() + 1; a < dims.size(); ++a) n *= dims[a];
  return n;
}

int minor_version_of(const TraceInfo& info) {
  if (!info.rope_frequencies.empty() || !info.layer_shapes.empty()) return 3;
  return !info.index.empty() || info.capture.k_pre_rope || info.score_cap > 0.0f ? 2 : 1;
}

std::vector<ArraySpec> trace_arrays(const TraceInfo& info) {
  Builder builder(info);
  builder.add("/tokens", h5::Type::i32, {info.n_tokens}, Along::tokens, "token", "token id");
  for (Index layer : info.layers) builder.add_layer(layer);
  if (info.capture.logits) {
    builder.add("/logits", h5::Type::f32, {info.rows.size(), info.n_vocab}, Along::rows,
                "row,vocab", "nat");
  }
  return builder.take();
}

TokenRange positions_of(const ArraySpec& array, const TraceInfo& info, const ForwardCall& call) {
  switch (array.along) {
    case Along::rows: {
      const Index begin = std::clamp(call.tokens.begin, info.rows.begin, info.rows.end);
      const Index end = std::clamp(call.tokens.end, info.rows.begin, info.rows.end);
      return {begin - info.rows.begin, end - info.rows.begin};
    }
    case Along::full_pages:
      return {call.tokens.begin / info.capture.page_size, call.tokens.end / info.capture.page_size};
    case Along::tokens:
      break;
  }
  return call.tokens;
}

std::vector<std::string> features_of(const TraceInfo& info) {
  std::vector<std::string> features;
  const auto add_if = [&](bool present, const char* name) {
    if (present) features.emplace_back(name);
  };
  add_if(info.capture.qkv, "qkv");
  add_if(info.capture.lse, "lse");
  add_if(info.capture.attn_dense, "attn-dense");
  add_if(info.capture.attn_topk > 0, "attn-topk");
  add_if(info.capture.logits, "logits");
  add_if(info.capture.stats, "stats");
  add_if(info.token_text_capacity > 0, "token-text");
  add_if(!info.sink_logits.empty(), "sinks");
  add_if(info.score_cap > 0.0f, "score-cap");
  add_if(info.capture.routing, "routing");
  add_if(!info.index.empty(), "index");
  add_if(info.capture.k_pre_rope, "k-pre-rope");
  add_if(!info.layer_shapes.empty(), "layer-shapes");
  add_if(true, "checksums");
  return features;
}

void describe(h5::Dataset& dataset, const std::string& axes, const std::string& units) {
  dataset.set_text("axes", axes);
  dataset.set_text("dtype_logical", enum_name(dataset.type()));
  dataset.set_text("units", units);
  dataset.set_text("encoding-type", "array");
  dataset.set_text("encoding-version", "0.2.0");
}

void describe(h5::File& file, h5::Dataset& dataset, const std::string& axes,
              const std::string& units) {
  describe(dataset, axes, units);
  file.name_axes(dataset, split_words(axes, ','));
}

std::string layer_path(Index layer, const std::string& name) {
  return fmt::format("/layers/{}/{}", layer, name);
}

}  // namespace kvscope::schema
