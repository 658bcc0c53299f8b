#include "traces/verify_stats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "traces/verify_rows.hpp"

namespace kvscope {

namespace {

/// How far a recorded statistic of this size may be from the one of stored rows: rows are rounded
/// to the storage type, small ones of f16 to multiples of 2^-24, and norms are sums in f32.
double allowed_difference(double value, DType dtype) {
  return std::fabs(value) * (1.01 * unit_roundoff(dtype) + 1e-5) + 1e-6;
}

/// The first norm that is not that of its row; rows and norms begin at position `first`.
void check_norms(const std::string& array, Index head, Index first, TensorView<const float> rows,
                 const Tensor<float>& norms, DType dtype, std::vector<std::string>& problems) {
  for (Index i = 0; i < norms.count(); ++i) {
    double sum = 0.0;
    for (const float x : rows.row(i)) sum += static_cast<double>(x) * x;
    const double exact = std::sqrt(sum);
    const double allowed = allowed_difference(exact, dtype);
    if (std::fabs(norms.data()[i] - exact) <= allowed) continue;
    problems.push_back(
        fmt::format("{}: head {}, position {}: the norm is {:.6g}, of the recorded row {:.6g} "
                    "(allowed difference {:.2g})",
                    array, head, first + i, norms.data()[i], exact, allowed));
    return;
  }
}

/// The first bound that is not that of its page. bounds [n_pages, d_head].
void check_bounds(const std::string& array, Index head, Index page_size, bool is_max,
                  TensorView<const float> keys, const Tensor<float>& bounds, DType dtype,
                  std::vector<std::string>& problems) {
  for (Index page = 0; page < bounds.dim(0); ++page) {
    for (Index c = 0; c < bounds.dim(1); ++c) {
      float exact = keys(page * page_size, c);
      for (Index t = page * page_size; t < (page + 1) * page_size; ++t)
        exact = is_max ? std::max(exact, keys(t, c)) : std::min(exact, keys(t, c));
      const double allowed = allowed_difference(exact, dtype);
      if (std::fabs(static_cast<double>(bounds(page, c)) - exact) <= allowed) continue;
      problems.push_back(
          fmt::format("{}: head {}, page {}, channel {}: the bound is {:.6g}, of the recorded keys "
                      "{:.6g} (allowed difference {:.2g})",
                      array, head, page, c, bounds(page, c), exact, allowed));
      return;
    }
  }
}

}  // namespace

std::vector<std::string> check_stats(const TraceFile& trace, Index layer, Index kv_head) {
  const TraceInfo& info = trace.info();
  const TokenRange all{0, info.n_tokens};
  const std::string at = fmt::format("/layers/{}/stats/", layer);
  std::vector<std::string> problems;
  const Tensor<float> keys = trace.read_k(layer, kv_head, all);
  check_norms(at + "k_norm", kv_head, 0, keys.view(), trace.read_k_norm(layer, kv_head, all),
              info.dtype, problems);
  const Index page_size = info.capture.page_size;
  check_bounds(at + "page_min", kv_head, page_size, /*is_max=*/false, keys.view(),
               trace.read_page_min(layer, kv_head), info.dtype, problems);
  check_bounds(at + "page_max", kv_head, page_size, /*is_max=*/true, keys.view(),
               trace.read_page_max(layer, kv_head), info.dtype, problems);
  for (const Index q_head : info.q_heads) {
    if (q_head / info.group(layer) != kv_head || info.rows.size() == 0) continue;
    check_norms(at + "q_norm", q_head, info.rows.begin,
                trace.read_q(layer, q_head, info.rows).view(),
                trace.read_q_norm(layer, q_head, info.rows), info.dtype, problems);
  }
  return problems;
}

}  // namespace kvscope
