#include "core/attention/anchor_layers.hpp"

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"

namespace kvscope {

AnchorLayers best_anchor_layers(TensorView<const double> similarity, Index n_anchors) {
  if (similarity.rank() != 2 || similarity.dim(0) != similarity.dim(1) || similarity.dim(0) < 1) {
    throw ShapeError("anchor layers: expected a square similarity, found {}",
                     to_string(similarity.shape()));
  }
  const Index n = similarity.dim(0);
  n_anchors = std::clamp<Index>(n_anchors, 1, n);
  // best(k, b): layers [b, n) with k anchors, the first of them b; the last segments first, so that
  // ties keep low layers.
  Tensor<double> best(Shape{n_anchors + 1, n});
  Tensor<Index> next(Shape{n_anchors + 1, n});
  std::fill_n(best.data(), best.count(), -std::numeric_limits<double>::infinity());
  for (Index k = 1; k <= n_anchors; ++k) {
    for (Index begin = 0; begin < n; ++begin) {
      double segment = 0.0;  // of layers [begin, end)
      for (Index end = begin + 1; end <= n; ++end) {
        segment += similarity(begin, end - 1);
        const double rest =
            k == 1 ? (end == n ? 0.0 : -std::numeric_limits<double>::infinity())
                   : (end == n ? -std::numeric_limits<double>::infinity() : best(k - 1, end));
        if (segment + rest <= best(k, begin)) continue;
        best(k, begin) = segment + rest;
        next(k, begin) = end;
      }
    }
  }
  AnchorLayers out;
  out.score = best(n_anchors, 0);
  for (Index k = n_anchors, at = 0; k >= 1; at = next(k, at), --k) out.anchors.push_back(at);
  return out;
}

}  // namespace kvscope
