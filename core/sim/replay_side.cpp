#include "core/sim/replay_side.hpp"

#include <algorithm>

namespace kvscope {

const SideView* ReplaySide::of(const TraceSource& trace, Index layer, TokenRange call) {
  const IndexShape& index = trace.info().index;
  if (index.empty()) return nullptr;
  view_ = {};
  if (!index.has_layer(layer)) return &view_;
  const auto read = [&](SideTensor what, Index n_heads, Index width, TokenRange range) {
    Shape shape{n_heads, range.size()};
    if (width > 0) shape = Shape{n_heads, range.size(), width};
    auto all = Tensor<float>::uninitialized(shape);
    for (Index head = 0; head < n_heads; ++head) {
      const Tensor<float> one = trace.read_side(what, layer, head, range);
      std::copy_n(one.data(), one.count(), all.data() + head * one.count());
    }
    return all;
  };
  auto keys = index_k_.find(layer);
  if (keys == index_k_.end()) {
    keys = index_k_
               .emplace(layer, read(SideTensor::index_k, index.n_key_heads, index.width,
                                    {0, trace.info().n_tokens}))
               .first;
  }
  index_q_ = read(SideTensor::index_q, index.n_heads, index.width, call);
  view_.index_q = index_q_.view();
  view_.index_k = keys->second.view().range(1, 0, call.end);
  if (index.has_gates) {
    index_w_ = read(SideTensor::index_w, index.n_heads, 0, call);
    view_.index_w = index_w_.view();
  }
  return &view_;
}

}  // namespace kvscope
