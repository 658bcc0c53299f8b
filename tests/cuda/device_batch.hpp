// A batch of random sequences on the device, and comparisons of what comes back.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/cuda/attend.hpp"
#include "core/cuda/device.hpp"
#include "tests/cuda/reference.hpp"

/// Leaves the test where there is no device.
#define KVSCOPE_NEEDS_DEVICE()                                 \
  do {                                                         \
    const std::string why_not = kvscope::gpu::why_no_device(); \
    if (!why_not.empty()) SKIP(why_not);                       \
  } while (false)

namespace kvscope::test {

struct BatchShape {
  int n_q = 6, n_kv = 2, d = 128;
  std::vector<int> n_past = {100};  // of each sequence
  int n_tok = 5;
  int capacity = 0;  // 0: just enough
  DType dtype = DType::bf16;
  Draw draw = Draw::normal;
  unsigned seed = 1;
};

class DeviceBatch {
 public:
  explicit DeviceBatch(const BatchShape& of);
  gpu::DeviceRows rows() const;
  /// Attention to lists (dense without), into out and lse.
  void attend(const gpu::DeviceLists& lists, const gpu::AttendOptions& options);
  int n_batch() const { return static_cast<int>(sequences.size()); }
  /// Rows of bf16 or f32, as floats.
  std::vector<float> out() const;
  std::vector<float> lse() const;
  /// Fills out and lse with what no output is.
  void poison();

  std::vector<Sequence1> sequences;
  gpu::CallShape shape;
  int n_tok = 0;
  gpu::Stream stream;
  gpu::DeviceBuffer q, k, v, n_past, out_rows, lse_rows;
};

/// The list of an owner as it came from the device.
std::vector<int> list_of(const gpu::DeviceLists& lists, int batch, int owner);

/// How a list differs from the best of f64 scores.
struct ListDifference {
  int n_swapped = 0;      // keys that are in one and not in the other
  double farthest = 0.0;  // of their f64 scores from the cut
  bool is_right = true;   // ascending, of the right length, and farthest within `rounding`
};
ListDifference compare_list(const std::vector<int>& found, const std::vector<double>& scores,
                            int n_kept, double rounding);

/// The larger of two differences, where NaN (a row that nobody wrote) is infinitely large.
inline double larger_gap(double largest, double gap) {
  return std::isfinite(gap) ? std::max(largest, gap) : std::numeric_limits<double>::infinity();
}

/// Largest difference of out and lse from f64, over the largest number of out (lse: absolutely).
struct OutputDifference {
  double out = 0.0, lse = 0.0;
};
/// Every row_step-th row, and the last one: tiles end there.
inline int row_after(int row, int row_step, int n_rows) {
  return row + row_step < n_rows ? row + row_step : std::max(row + 1, n_rows - 1);
}

/// keys(batch, q_head, row): what the row attends to.
template <class Keys>
OutputDifference compare_outputs(const DeviceBatch& batch, const Keys& keys, int row_step = 1,
                                 const RowRule& rule = {}) {
  const std::vector<float> out = batch.out();
  const std::vector<float> lse = batch.lse();
  OutputDifference difference;
  double largest = 0.0;
  for (int b = 0; b < batch.n_batch(); ++b) {
    const Sequence1& s = batch.sequences[b];
    for (int head = 0; head < s.n_q; ++head) {
      for (int row = 0; row < s.n_tok; row = row_after(row, row_step, s.n_tok)) {
        const RowOutput expected = attend_row(s, head, row, keys(b, head, row), rule);
        const std::size_t at = (static_cast<std::size_t>(b) * s.n_q + head) * s.n_tok + row;
        for (int c = 0; c < s.d; ++c) {
          const double found = static_cast<double>(out[at * s.d + c]);
          const double x = expected.out[c];
          largest = std::max(largest, std::abs(x));
          difference.out = larger_gap(difference.out, std::abs(found - x));
        }
        const double found = static_cast<double>(lse[at]);
        const double gap = found == expected.lse ? 0.0 : std::abs(found - expected.lse);
        difference.lse = larger_gap(difference.lse, gap);
      }
    }
  }
  if (largest > 0.0) difference.out /= largest;
  return difference;
}

}  // namespace kvscope::test
