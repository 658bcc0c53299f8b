// The numbers of a benchmark's call as a calibration text: every layer has the same queries and
// keys, nothing is copied ahead.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/selectors/selector.hpp"
#include "core/trace/memory_trace.hpp"

namespace kvscope::cli {

class BenchText final : public TraceSource {
 public:
  /// The call's tensors must outlive it: its queries, keys and values in turn, n_tokens of each.
  BenchText(const SelectCall& call, Index n_layers, Index n_tokens)
      : call_(call),
        info_(make_trace_info(n_layers, call.q.dim(0), call.k.dim(0), call.q.dim(2), n_tokens,
                              n_tokens)) {}
  const TraceInfo& info() const override { return info_; }
  std::string where() const override { return "the benchmark's numbers"; }
  std::span<const TokenId> tokens() const override { return {}; }
  std::vector<std::string> token_bytes() const override { return {}; }
  Tensor<float> read_q(Index, Index q_head, TokenRange range) const override {
    Tensor<float> out(Shape{range.size(), info_.d_head});
    for (Index i = 0; i < range.size(); ++i) {
      const auto row = call_.q.sub(q_head).row((range.begin + i) % call_.q.dim(1));
      std::copy(row.begin(), row.end(), out.view().row(i).begin());
    }
    return out;
  }
  Tensor<float> read_k(Index, Index kv_head, TokenRange range) const override {
    return rows(call_.k, kv_head, range);
  }
  Tensor<float> read_v(Index, Index kv_head, TokenRange range) const override {
    return rows(call_.v, kv_head, range);
  }
  Tensor<float> read_lse(Index, Index, TokenRange range) const override {
    return Tensor<float>(Shape{range.size()});
  }

 private:
  static Tensor<float> rows(TensorView<const float> all, Index head, TokenRange range) {
    Tensor<float> out(Shape{range.size(), all.dim(2)});
    for (Index i = 0; i < range.size(); ++i) {
      const auto row = all.sub(head).row((range.begin + i) % all.dim(1));
      std::copy(row.begin(), row.end(), out.view().row(i).begin());
    }
    return out;
  }
  const SelectCall& call_;
  TraceInfo info_;
};

}  // namespace kvscope::cli
