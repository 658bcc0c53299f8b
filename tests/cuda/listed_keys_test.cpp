// What evicting methods ask about listed keys on the GPU, against the f64 reference: sums of
// softmax weights, and cosines with their mean.
#include "core/cuda/key_questions.hpp"
#include "core/cuda/row_votes.hpp"
#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::listed_keys_test {

constexpr double kRounding = 1e-5;  // of a sum of weights

/// Every third key before the call, of the second KV head two thirds of them, and the call's own;
/// or all keys, and no lists on the device.
struct SomeLists {
  SomeLists(const Sequence1& s, bool has_lists) {
    std::vector<std::int32_t> items, counts;
    for (int head = 0; head < s.n_kv; ++head) {
      std::vector<int>& list = all.emplace_back();
      for (int pos = 0; pos < s.n_past; ++pos) {
        if (!has_lists || pos % 3 == 0 || (head == 1 && pos % 3 == 1)) list.push_back(pos);
      }
      counts.push_back(static_cast<std::int32_t>(list.size()));
      std::vector<std::int32_t> padded(list.begin(), list.end());
      padded.resize(static_cast<std::size_t>(s.n_past), -1);
      items.insert(items.end(), padded.begin(), padded.end());
      for (int pos = s.n_past; pos < s.n_ctx(); ++pos) list.push_back(pos);
      longest = std::max(longest, static_cast<int>(list.size()));
    }
    if (!has_lists) return;
    items_ = gpu::DeviceBuffer(4 * items.size(), "a test's lists");
    counts_ = gpu::DeviceBuffer(4 * counts.size(), "a test's lists");
    items_.upload(items.data(), 4 * items.size());
    counts_.upload(counts.data(), 4 * counts.size());
    on_device = {reinterpret_cast<const std::int32_t*>(items_.data()),
                 reinterpret_cast<const std::int32_t*>(counts_.data()), s.n_past, s.n_kv,
                 /*page_size=*/1};
  }
  std::vector<std::vector<int>> all;  // [n_kv]
  int longest = 0;
  gpu::DeviceLists on_device;

 private:
  gpu::DeviceBuffer items_, counts_;
};

struct VoteCase {
  const char* name;
  BatchShape batch;
  int first_row, end_row;
  bool has_lists = true;
  std::int64_t most_bytes = std::int64_t{128} << 20;
};

TEST_CASE("gpu: votes for listed keys are the reference's", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  const BatchShape shape{.n_q = 6, .n_kv = 2, .n_past = {500}, .n_tok = 70};
  const BatchShape wide{.n_q = 6, .n_kv = 2, .n_past = {500}, .n_tok = 70, .dtype = DType::f32};
  const BatchShape step{.n_q = 24, .n_kv = 8, .d = 64, .n_past = {3000}, .n_tok = 1};
  for (const VoteCase& c :
       {VoteCase{"last row", shape, 69, 70}, VoteCase{"last row f32", wide, 69, 70},
        VoteCase{"last 64 rows", shape, 6, 70}, VoteCase{"last 64 rows f32", wide, 6, 70},
        VoteCase{"few rows at a time", shape, 6, 70, true, 30000},
        VoteCase{"all keys", shape, 6, 70, false}, VoteCase{"all keys, f32", wide, 0, 70, false},
        VoteCase{"step", step, 0, 1}, VoteCase{"step, all keys", step, 0, 1, false}}) {
    INFO(c.name);
    DeviceBatch batch(c.batch);
    const Sequence1& s = batch.sequences[0];
    const SomeLists lists(s, c.has_lists);
    gpu::VoteCall call{batch.rows(), lists.on_device, lists.longest,
                       c.first_row,  c.end_row,       c.most_bytes};
    gpu::RowVotes votes;
    const float* const found = votes.sum(batch.shape, call, batch.stream);
    batch.stream.wait();
    const auto stride = static_cast<std::size_t>(votes.stride());
    const auto values = gpu::read_device(found, stride * static_cast<std::size_t>(s.n_kv));
    double worst = 0.0;
    for (int head = 0; head < s.n_kv; ++head) {
      const auto& list = lists.all[head];
      const auto expected = joined_weights(s, head, c.first_row, c.end_row, list);
      for (std::size_t i = 0; i < list.size(); ++i) {
        const double x = expected[list[i]];
        const double y = static_cast<double>(values[static_cast<std::size_t>(head) * stride + i]);
        worst = larger_gap(worst, std::abs(x - y) / std::max(x, 1e-12));
      }
    }
    std::printf("  votes %-20s differ by at most %.1e of themselves\n", c.name, worst);
    CHECK(worst < kRounding);
  }
}

TEST_CASE("gpu: cosines of listed keys with their mean are the reference's", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  struct Case {
    const char* name;
    BatchShape batch;
    bool has_lists, takes_unit;
  };
  const BatchShape shape{.n_q = 6, .n_kv = 2, .n_past = {1500}, .n_tok = 70};
  const BatchShape wide{.n_q = 6, .n_kv = 2, .n_past = {1500}, .n_tok = 70, .dtype = DType::f32};
  const BatchShape step{.n_q = 24, .n_kv = 8, .d = 64, .n_past = {3000}, .n_tok = 1};
  const BatchShape start{.n_past = {0}, .n_tok = 33, .dtype = DType::f32};
  const BatchShape copies{.n_past = {900}, .n_tok = 4, .draw = Draw::copies};
  for (const Case& c : {Case{"lists", shape, true, true}, Case{"lists f32", wide, true, true},
                        Case{"raw mean", shape, true, false}, Case{"all keys", shape, false, true},
                        Case{"step", step, true, true}, Case{"step, all keys", step, false, false},
                        Case{"no past", start, false, true}, Case{"copies", copies, true, true}}) {
    INFO(c.name);
    DeviceBatch batch(c.batch);
    const Sequence1& s = batch.sequences[0];
    const SomeLists lists(s, c.has_lists);
    gpu::KeyQuestions cosines;
    const gpu::CosineCall call{batch.rows(), lists.on_device, lists.longest, c.takes_unit, 1e-12};
    const double* const found = cosines.cosines(batch.shape, call, batch.stream);
    batch.stream.wait();
    const auto stride = static_cast<std::size_t>(cosines.stride());
    const auto values = gpu::read_device(found, stride * static_cast<std::size_t>(s.n_kv));
    double worst = 0.0;
    for (int head = 0; head < s.n_kv; ++head) {
      const auto& list = lists.all[head];
      const auto expected = mean_cosines(s, head, list, c.takes_unit, 1e-12);
      const double* const row = values.data() + static_cast<std::size_t>(head) * stride;
      for (std::size_t i = 0; i < list.size(); ++i) {
        worst = larger_gap(worst, std::abs(expected[i] - row[i]));
        // equal keys have equal cosines
        if (c.batch.draw == Draw::copies && i >= 4 && list[i] - list[i - 4] == 12)
          CHECK(row[i] == row[i - 4]);
      }
    }
    std::printf("  cosines %-16s differ by at most %.1e\n", c.name, worst);
    CHECK(worst < 1e-12);
  }
}

}  // namespace kvscope::test::listed_keys_test
