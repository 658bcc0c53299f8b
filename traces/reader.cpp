#include "traces/reader.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "traces/open_trace.hpp"

namespace kvscope {

TraceFile::TraceFile(std::unique_ptr<OpenTrace> trace) : trace_(std::move(trace)) {}
TraceFile::TraceFile(TraceFile&&) noexcept = default;
TraceFile& TraceFile::operator=(TraceFile&&) noexcept = default;
TraceFile::~TraceFile() = default;

TraceFile TraceFile::open(const std::filesystem::path& path, OpenOptions options) {
  return TraceFile(OpenTrace::open(path, options));
}

TraceFile TraceFile::open_image(std::span<const std::byte> bytes, const std::string& name,
                                OpenOptions options) {
  return TraceFile(OpenTrace::open_image(bytes, name, options));
}

const TraceInfo& TraceFile::info() const {
  return trace_->info;
}
const TraceInfo& TraceFile::planned() const {
  return trace_->layout.info;
}
std::string TraceFile::where() const {
  return trace_->where;
}
std::span<const TokenId> TraceFile::tokens() const {
  return trace_->tokens;
}
std::vector<std::string> TraceFile::warnings() const {
  return trace_->layout.warnings;
}
std::int64_t TraceFile::file_bytes() const {
  return trace_->file_bytes;
}
bool TraceFile::is_chunked() const {
  return trace_->is_chunked();
}
std::vector<std::string> TraceFile::token_bytes() const {
  return trace_->token_bytes();
}

Tensor<float> TraceFile::read(TraceTensor what, Index layer, Index head, TokenRange range) const {
  const std::size_t array = trace_->layer_array(layer, std::string(enum_name(what)).c_str(),
                                                what == TraceTensor::lse ? "lse" : "qkv");
  const TraceInfo& info = trace_->info;
  return trace_->read_rows(array,
                           is_of_queries(what) ? info.q_slot(head) : info.kv_slot(layer, head),
                           trace_->locate(array, range));
}

Tensor<float> TraceFile::read_side(SideTensor what, Index layer, Index head,
                                   TokenRange range) const {
  require_side(*this, what, layer, head);
  const std::size_t array =
      trace_->layer_array(layer, std::string(enum_name(what)).c_str(), "index");
  const Index slot = what == SideTensor::k_pre_rope ? trace_->info.kv_slot(layer, head) : head;
  return trace_->read_rows(array, slot, trace_->locate(array, range));
}

Tensor<std::int32_t> TraceFile::read_selected(Index layer, Index list, TokenRange range) const {
  require_selected(*this, layer, list);
  const std::size_t array = trace_->layer_array(layer, "index_selected", "index");
  const TokenRange positions = trace_->locate(array, range);
  const IndexShape& index = trace_->info.index;
  auto out = Tensor<std::int32_t>::uninitialized({positions.size(), index.n_selected});
  trace_->read_stored(array, list, positions, out.data());
  for (Index i = 0; i < positions.size(); ++i) {
    Index before = -1;
    bool has_ended = false;
    for (const std::int32_t block : out.view().row(i)) {
      const bool is_pad = block == -1;
      if (!is_pad && (has_ended || block <= before || block > (range.begin + i) / index.block)) {
        throw FormatError(
            "{}: {}: list {}, row {} names block {} after {}: expected rising blocks that begin at "
            "or before the row, and -1 behind them",
            trace_->where, trace_->spec(array).path, list, range.begin + i, block, before);
      }
      has_ended = has_ended || is_pad;
      if (!is_pad) before = block;
    }
  }
  return out;
}

Tensor<float> TraceFile::read_attn(Index layer, Index q_head, TokenRange range) const {
  const std::size_t array = trace_->layer_array(layer, "attn", "attn");
  Tensor<float> rows =
      trace_->read_rows(array, trace_->info.q_slot(q_head), trace_->locate(array, range));
  const Index n_tokens = trace_->info.n_tokens;
  if (rows.dim(1) == n_tokens) return rows;
  // A partial file has the width of the planned run.
  auto cut = Tensor<float>::uninitialized({rows.dim(0), n_tokens});
  for (Index i = 0; i < rows.dim(0); ++i) {
    std::copy_n(rows.view().row(i).data(), n_tokens, cut.view().row(i).data());
  }
  return cut;
}

TopkRows TraceFile::read_topk(Index layer, Index q_head, TokenRange range) const {
  const std::size_t pos_array = trace_->layer_array(layer, "topk_pos", "attn-topk=N");
  const std::size_t prob_array = trace_->layer_array(layer, "topk_prob", "attn-topk=N");
  const Index slot = trace_->info.q_slot(q_head);
  const TokenRange positions = trace_->locate(pos_array, range);
  const Index n = trace_->info.capture.attn_topk;
  TopkRows out{Tensor<std::int32_t>::uninitialized({positions.size(), n}),
               trace_->read_rows(prob_array, slot, positions)};
  trace_->read_stored(pos_array, slot, positions, out.pos.data());
  for (Index i = 0; i < positions.size(); ++i) {
    for (const std::int32_t pos : out.pos.view().row(i)) {
      if (pos >= -1 && pos <= range.begin + i) continue;
      throw FormatError("{}: {}: row {} names key {}, which it cannot see", trace_->where,
                        trace_->spec(pos_array).path, range.begin + i, pos);
    }
  }
  return out;
}

Tensor<float> TraceFile::read_logits(TokenRange range) const {
  const std::size_t array = trace_->array_at("/logits", "logits");
  return trace_->read_rows(array, 0, trace_->locate(array, range));
}

RoutedRows TraceFile::read_routing(Index layer, TokenRange range) const {
  const TraceInfo& info = trace_->info;
  const std::size_t experts = trace_->layer_array(layer, "experts", "routing");
  const std::size_t weights = trace_->layer_array(layer, "expert_weights", "routing");
  const TokenRange positions = trace_->locate(experts, range);
  const Index n = info.n_experts_per_token;
  RoutedRows out{Tensor<std::int32_t>::uninitialized({positions.size(), n}),
                 trace_->read_rows(weights, 0, positions)};
  trace_->read_stored(experts, 0, positions, out.expert.data());
  const Index n_experts = info.layer_kinds[static_cast<std::size_t>(layer)].n_experts;
  for (Index i = 0; i < positions.size(); ++i) {
    for (const std::int32_t expert : out.expert.view().row(i)) {
      if (expert >= 0 && expert < n_experts) continue;
      throw FormatError("{}: {}: row {} names expert {}, expected 0 to {}", trace_->where,
                        trace_->spec(experts).path, range.begin + i, expert, n_experts - 1);
    }
  }
  return out;
}

Tensor<float> TraceFile::read_q_norm(Index layer, Index q_head, TokenRange range) const {
  const std::size_t array = trace_->layer_array(layer, "stats/q_norm", "stats");
  return trace_->read_rows(array, trace_->info.q_slot(q_head), trace_->locate(array, range));
}

Tensor<float> TraceFile::read_k_norm(Index layer, Index kv_head, TokenRange range) const {
  const std::size_t array = trace_->layer_array(layer, "stats/k_norm", "stats");
  return trace_->read_rows(array, trace_->info.kv_slot(layer, kv_head),
                           trace_->locate(array, range));
}

Tensor<float> TraceFile::read_page_min(Index layer, Index kv_head) const {
  const std::size_t array = trace_->layer_array(layer, "stats/page_min", "stats");
  return trace_->read_rows(array, trace_->info.kv_slot(layer, kv_head),
                           {0, trace_->info.n_full_pages()});
}

Tensor<float> TraceFile::read_page_max(Index layer, Index kv_head) const {
  const std::size_t array = trace_->layer_array(layer, "stats/page_max", "stats");
  return trace_->read_rows(array, trace_->info.kv_slot(layer, kv_head),
                           {0, trace_->info.n_full_pages()});
}

}  // namespace kvscope
