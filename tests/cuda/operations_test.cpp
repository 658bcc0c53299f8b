// Operations on the GPU that a model shows only through others, against loops: sums of values,
// products with keys, counts of lists, norms of rows of any width.
#include <set>
#include <tuple>

#include "core/cuda/key_questions.hpp"
#include "core/cuda/layer_kernels.hpp"
#include "core/cuda/list_counts.hpp"
#include "core/cuda/row_votes.hpp"
#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::operations_test {

/// Values on the device, with an owner.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values)
      : n_(values.size()), buffer_(n_ * sizeof(T), "a test's values") {
    buffer_.upload(values.data(), n_ * sizeof(T));
  }
  T* data() { return reinterpret_cast<T*>(buffer_.data()); }
  std::vector<T> read() { return gpu::read_device(data(), n_); }

 private:
  std::size_t n_;
  gpu::DeviceBuffer buffer_;
};

TEST_CASE("gpu: sums of values are the loops'", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  for (const DType dtype : {DType::bf16, DType::f32}) {
    DeviceBatch batch({.n_past = {70}, .n_tok = 3, .capacity = 90, .dtype = dtype});
    const Sequence1& s = batch.sequences[0];
    for (const auto& [begin, end] : {std::pair{0, 73}, {5, 6}, {71, 73}, {9, 9}}) {
      gpu::KeyQuestions sums;
      const double* const found =
          sums.value_sums(batch.shape, batch.rows(), begin, end, batch.stream);
      batch.stream.wait();
      const auto values = gpu::read_device(found, static_cast<std::size_t>(s.n_kv * s.d));
      for (int head = 0; head < s.n_kv; ++head) {
        for (int c = 0; c < s.d; ++c) {
          double expected = 0.0;
          for (int pos = begin; pos < end; ++pos)
            expected += static_cast<double>(s.v_row(head, pos)[c]);
          REQUIRE(values[head * s.d + c] == expected);
        }
      }
    }
  }
}

TEST_CASE("gpu: the attention of each row over all heads is the loops'", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  for (const std::int64_t most_bytes : {std::int64_t{1} << 27, std::int64_t{1}}) {
    DeviceBatch batch({.n_q = 6, .n_kv = 2, .n_past = {301}, .n_tok = 6});
    const Sequence1& s = batch.sequences[0];
    gpu::VoteCall call{batch.rows(), gpu::DeviceLists{}, s.n_ctx(), 2, 6, most_bytes};
    call.of = gpu::VoteCall::Of::rows;
    gpu::RowVotes votes;
    const float* const sums = votes.sum(batch.shape, call, batch.stream);
    batch.stream.wait();
    const auto found = gpu::read_device(sums, static_cast<std::size_t>(4 * votes.stride()));
    double worst = 0.0;
    for (int row = 2; row < 6; ++row) {
      std::vector<double> expected(static_cast<std::size_t>(s.n_ctx()), 0.0);
      for (int head = 0; head < s.n_q; ++head) {
        const std::vector<double> weights = row_weights(s, head, row);
        for (std::size_t i = 0; i < weights.size(); ++i) expected[i] += weights[i];
      }
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto at =
            static_cast<std::size_t>(row - 2) * static_cast<std::size_t>(votes.stride());
        worst = larger_gap(worst, std::abs(static_cast<double>(found[at + i]) - expected[i]));
      }
    }
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("gpu: scores of rows are the loops'", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  for (const DType dtype : {DType::bf16, DType::f32}) {
    DeviceBatch batch({.n_q = 6, .n_kv = 2, .n_past = {301}, .n_tok = 70, .dtype = dtype});
    const Sequence1& s = batch.sequences[0];
    for (const auto& [head, first, end] : {std::tuple{4, 3, 70}, {0, 0, 1}, {5, 69, 70}}) {
      gpu::RowVotes votes;
      const float* const scores =
          votes.scores(batch.shape, batch.rows(), s.n_past, {head, first, end}, batch.stream);
      batch.stream.wait();
      const auto n_context = static_cast<std::size_t>(s.n_ctx());
      const auto found =
          gpu::read_device(scores, static_cast<std::size_t>(end - first) * n_context);
      double worst = 0.0;
      for (int row = first; row < end; ++row) {
        const std::vector<double> expected = row_scores(s, head, row);
        for (int pos = 0; pos <= s.n_past + row; ++pos) {
          const auto at = static_cast<std::size_t>(row - first) * n_context;
          worst = larger_gap(
              worst, std::abs(static_cast<double>(found[at + static_cast<std::size_t>(pos)]) -
                              expected[static_cast<std::size_t>(pos)]));
        }
      }
      CHECK(worst < 1e-5);
    }
  }
}

TEST_CASE("gpu: products with keys are the loops', those of the call's own among them",
          "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  for (const DType dtype : {DType::bf16, DType::f32}) {
    DeviceBatch batch({.n_past = {300}, .n_tok = 5, .dtype = dtype});
    const Sequence1& s = batch.sequences[0];
    constexpr std::size_t kRows = 4, kFirst = 1, kTaken = 3;  // of each KV head
    const std::vector<float> rows(s.q.begin(),
                                  s.q.begin() + static_cast<std::ptrdiff_t>(kRows) * s.n_kv * s.d);
    gpu::KeyQuestions products;
    const float* const found = products.products(batch.shape, batch.rows(), s.n_past,
                                                 {rows, kRows, kFirst, kTaken}, batch.stream);
    batch.stream.wait();
    const auto stride = static_cast<std::size_t>(products.stride());
    const auto values = gpu::read_device(found, static_cast<std::size_t>(s.n_kv) * kTaken * stride);
    double worst = 0.0;
    for (int head = 0; head < s.n_kv; ++head) {
      for (std::size_t i = 0; i < kTaken; ++i) {
        const float* const vector =
            rows.data() + (static_cast<std::size_t>(head) * kRows + kFirst + i) * s.d;
        for (int pos = 0; pos < s.n_ctx(); ++pos) {
          double expected = 0.0;
          for (int c = 0; c < s.d; ++c)
            expected += static_cast<double>(vector[c]) * static_cast<double>(s.k_row(head, pos)[c]);
          const std::size_t at = (static_cast<std::size_t>(head) * kTaken + i) * stride +
                                 static_cast<std::size_t>(pos);
          worst = larger_gap(worst, std::abs(static_cast<double>(values[at]) - expected));
        }
      }
    }
    std::printf("  products with keys differ by at most %.1e\n", worst);
    CHECK(worst < 2e-5);
  }
}

TEST_CASE("gpu: counts of lists are those of sets of keys", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  struct Case {
    const char* name;
    int n_owners, n_tok, page_size;
    bool adds_own;
  };
  constexpr int kQ = 6, kKv = 2, kPast = 64;
  for (const Case& c : {Case{"a list per KV head and row", kKv, 5, 1, false},
                        {"the same, own keys on top", kKv, 5, 1, true},
                        {"per query head, own keys on top", kQ, 5, 1, true},
                        {"one step", kKv, 1, 1, true},
                        {"pages of a step", kKv, 1, 16, false},
                        {"pages per query head", kQ, 1, 16, false}}) {
    INFO(c.name);
    const int n_places = (kPast + (c.adds_own ? 0 : 1) + c.page_size - 1) / c.page_size;
    std::vector<std::int32_t> items, counts;
    std::vector<std::uint64_t> attended(kQ, 0), loaded(kKv, 0);
    std::vector<std::set<int>> of_group(kKv);
    for (int row = 0; row < c.n_tok; ++row) {
      for (int owner = 0; owner < c.n_owners; ++owner) {
        std::vector<std::int32_t> list;
        for (int i = 0; i < n_places; ++i) {
          if ((i * 7 + row * 3 + owner * 5) % 4 != 0) list.push_back(i);
        }
        counts.push_back(static_cast<std::int32_t>(list.size()));
        std::set<int> keys;
        for (const int item : list) {
          for (int pos = item * c.page_size;
               pos < (item + 1) * c.page_size && pos < kPast + c.n_tok; ++pos)
            keys.insert(pos);
        }
        for (int pos = kPast; c.adds_own && pos <= kPast + row; ++pos) keys.insert(pos);
        const int heads = kQ / c.n_owners;
        for (int q = owner * heads; q < (owner + 1) * heads; ++q) attended[q] += keys.size();
        of_group[owner * heads / (kQ / kKv)].insert(keys.begin(), keys.end());
        list.resize(static_cast<std::size_t>(n_places), -1);
        items.insert(items.end(), list.begin(), list.end());
      }
    }
    for (std::size_t head = 0; head < kKv; ++head) loaded[head] = of_group[head].size();
    OnDevice<std::int32_t> on_device(items), n_of(counts);
    OnDevice<std::uint64_t> found(std::vector<std::uint64_t>(kQ + kKv, 99));
    gpu::ListCountCall call;
    call.lists = {on_device.data(), n_of.data(), n_places, c.n_owners, c.page_size};
    call.adds_own = c.adds_own;
    call.n_q = kQ, call.n_kv = kKv, call.pos_begin = kPast, call.n_tok = c.n_tok;
    call.attended = found.data(), call.loaded = found.data() + kQ;
    const gpu::Stream stream;
    gpu::count_lists(call, stream);
    stream.wait();
    const auto values = found.read();
    CHECK(std::vector<std::uint64_t>(values.begin(), values.begin() + kQ) == attended);
    CHECK(std::vector<std::uint64_t>(values.begin() + kQ, values.end()) == loaded);
  }
}

TEST_CASE("gpu: norms of rows of any width are the loops'", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  constexpr int kTok = 3;
  for (const int n : {6, 8, 1030, 4096}) {
    for (const bool takes_mean : {false, true}) {
      INFO(n << " wide, " << (takes_mean ? "with" : "without") << " mean");
      const auto drawn = [n](int rows, int seed) {
        std::vector<float> values;
        for (int i = 0; i < rows * n; ++i)
          values.push_back(std::sin(static_cast<float>(i * 31 + seed)) + 0.3f);
        return values;
      };
      const std::vector<float> x = drawn(kTok, 1), weight = drawn(1, 2), bias = drawn(1, 3);
      OnDevice<float> x_rows(x), y_rows(std::vector<float>(x.size(), 0.0f)), w(weight), b(bias);
      gpu::NormCall call;
      call.x = x_rows.data(), call.y = y_rows.data(), call.weight = w.data(), call.bias = b.data();
      call.x_stride = call.y_stride = call.n = n;
      call.eps = 1e-5f;
      call.takes_mean = takes_mean;
      const gpu::Stream stream;
      gpu::norm_rows(call, kTok, stream);
      stream.wait();
      const std::vector<float> y = y_rows.read();
      double worst = 0.0;
      for (std::size_t row = 0; row < kTok; ++row) {
        const float* const of_row = x.data() + row * static_cast<std::size_t>(n);
        double mean = 0.0, squares = 0.0;
        for (int i = 0; takes_mean && i < n; ++i) mean += static_cast<double>(of_row[i]) / n;
        for (int i = 0; i < n; ++i)
          squares += std::pow(static_cast<double>(of_row[i]) - mean, 2) / n;
        for (int i = 0; i < n; ++i) {
          const double expected = (static_cast<double>(of_row[i]) - mean) /
                                      std::sqrt(squares + 1e-5) * static_cast<double>(weight[i]) +
                                  static_cast<double>(bias[i]);
          const double found = static_cast<double>(
              y[row * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)]);
          worst = larger_gap(worst, std::abs(found - expected));
        }
      }
      CHECK(worst < 1e-5);
    }
  }
}

}  // namespace kvscope::test::operations_test
