// Columns and diagonals on the GPU against the f64 reference.
#include "core/cuda/slash_lists.hpp"

#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::slash_lists_test {

/// The best of the sums, the first n_raised before all others.
std::vector<int> best_raised(std::vector<double> sums, int n, int n_raised) {
  for (int i = 0; i < std::min(n_raised, static_cast<int>(sums.size())); ++i) sums[i] = 1e9;
  return best_of(sums, std::min(n, static_cast<int>(sums.size())));
}

TEST_CASE("gpu: lists of columns and diagonals are the reference's", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  struct Case {
    BatchShape batch;
    gpu::SlashOptions options;
  };
  const BatchShape small{.n_q = 6, .n_kv = 2, .n_past = {300}, .n_tok = 40};
  const BatchShape in_f32{
      .n_q = 4, .n_kv = 2, .d = 64, .n_past = {1000}, .n_tok = 70, .dtype = gpu::Dtype::f32};
  const BatchShape start{.n_past = {0}, .n_tok = 90};
  const BatchShape copies{.n_past = {3000}, .n_tok = 33, .draw = Draw::copies};
  int n_lists = 0, n_different = 0;
  for (const Case& c : {Case{small, {10, 20, 30, 3, 5}}, Case{small, {64, 1, 100, 0, 1}},
                        Case{in_f32, {64, 100, 200, 30, 100}}, Case{in_f32, {1000, 5, 5, 9, 9}},
                        Case{start, {64, 30, 50, 30, 100}}, Case{start, {64, 1000, 6096, 30, 100}},
                        Case{copies, {16, 64, 64, 4, 8}}}) {
    DeviceBatch batch(c.batch);
    const Sequence1& s = batch.sequences[0];
    gpu::SlashLists slashes;
    const gpu::DeviceLists lists =
        slashes.choose(batch.shape, c.options, batch.rows(), s.n_past, batch.stream);
    batch.stream.wait();
    for (int head = 0; head < s.n_q; ++head) {
      std::vector<double> columns(static_cast<std::size_t>(s.n_ctx()), 0.0);
      std::vector<double> distances = columns;
      for (int row = std::max(0, s.n_tok - c.options.n_voters); row < s.n_tok; ++row) {
        const std::vector<double> weights = row_weights(s, head, row);
        for (int pos = 0; pos <= s.n_past + row; ++pos) {
          columns[pos] += weights[pos];
          distances[s.n_past + row - pos] += weights[pos];
        }
      }
      const std::vector<int> best = best_raised(columns, c.options.n_columns, c.options.n_first);
      const std::vector<int> near = best_raised(distances, c.options.n_slashes, c.options.n_near);
      for (int row = 0; row < s.n_tok; ++row) {
        std::vector<bool> is_kept(static_cast<std::size_t>(s.n_past + row + 1), false);
        for (const int pos : best) {
          if (pos <= s.n_past + row) is_kept[pos] = true;
        }
        for (const int distance : near) {
          if (distance <= s.n_past + row) is_kept[s.n_past + row - distance] = true;
        }
        std::vector<int> expected;
        for (int pos = 0; pos <= s.n_past + row; ++pos) {
          if (is_kept[pos]) expected.push_back(pos);
        }
        ++n_lists;
        n_different += list_of(lists, row, head) == expected ? 0 : 1;
      }
    }
  }
  std::printf("  columns and diagonals: lists %d, different %d\n", n_lists, n_different);
  CHECK(n_different == 0);
}

}  // namespace kvscope::test::slash_lists_test
