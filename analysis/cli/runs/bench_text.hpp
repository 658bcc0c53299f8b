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
  Tensor<float> read(TraceTensor what, Index, Index head, TokenRange range) const override {
    if (what == TraceTensor::lse) return Tensor<float>(Shape{range.size()});
    const TensorView<const float> all = what == TraceTensor::q   ? call_.q
                                        : what == TraceTensor::k ? call_.k
                                                                 : call_.v;
    Tensor<float> out(Shape{range.size(), all.dim(2)});
    for (Index i = 0; i < range.size(); ++i) {
      const auto row = all.sub(head).row((range.begin + i) % all.dim(1));
      std::copy(row.begin(), row.end(), out.view().row(i).begin());
    }
    return out;
  }

 private:
  const SelectCall& call_;
  TraceInfo info_;
};

}  // namespace kvscope::cli
