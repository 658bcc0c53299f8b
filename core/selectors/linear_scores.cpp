#include "core/selectors/linear_scores.hpp"

#include <algorithm>

#include "core/attention/remote_rows.hpp"
#include "core/attention/score_kernels.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

namespace {

constexpr Index kLinearPart = 2048;  // keys of a task

}  // namespace

void linear_scores(const SelectCall& call, std::span<const double> vectors, TokenRange keys,
                   std::span<const std::span<double>> out) {
  if (call.remote != nullptr) return call.remote->linear_scores(vectors, keys, out);
  ScoreEngine& engine = engine_of(call);
  const auto d = static_cast<std::size_t>(call.k.dim(2));
  const auto n_rows = out.size() / static_cast<std::size_t>(call.k.dim(0));
  const Index n_parts = (std::max<Index>(keys.size(), 0) + kLinearPart - 1) / kLinearPart;
  const bool is_exact = engine.precision() == ScorePrecision::f64;
  const std::vector<float> narrow(vectors.begin(), vectors.end());
  const auto stride = static_cast<Index>(out.size() > 1 ? out[1].data() - out[0].data() : 0);
  bool is_table = true;  // rows at equal distances: one kernel call serves them all
  for (std::size_t i = 1; i < out.size(); ++i)
    is_table = is_table && out[i].data() - out[i - 1].data() == stride;
  engine.run(call.k.dim(0) * n_parts, [&](Index task, ScoreWorker& worker) {
    const Index kv_head = task / n_parts;
    const TokenRange range{keys.begin + task % n_parts * kLinearPart,
                           std::min(keys.end, keys.begin + (task % n_parts + 1) * kLinearPart)};
    const auto at = static_cast<std::size_t>(range.begin - keys.begin);
    const auto k = call.k.sub(kv_head);
    const std::size_t first = static_cast<std::size_t>(kv_head) * n_rows;
    if (!is_exact && is_table) {
      std::vector<float> memory;
      key_dots_f32(std::span(narrow).subspan(first * d, n_rows * d), static_cast<Index>(n_rows),
                   k.range(0, range.begin, range.end), memory, out[first].data() + at, stride);
      return;
    }
    for (std::size_t row = first; row < first + n_rows; ++row) {
      worker.dots.compute(vectors.subspan(row * d, d), 1, k, range);
      const auto dots = worker.dots.row(0);
      std::copy(dots.begin(), dots.end(), out[row].begin() + static_cast<std::ptrdiff_t>(at));
    }
  });
}

}  // namespace kvscope
