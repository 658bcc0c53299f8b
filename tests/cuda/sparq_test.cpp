// SparQ's choice for chunks and steps on the GPU against the f64 reference.
#include "core/cuda/sparq.hpp"

#include "core/cuda/mean_values.hpp"
#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::sparq_test {

struct Case {
  const char* name;
  BatchShape batch;
  gpu::SparqOptions options;
};

TEST_CASE("gpu: SparQ's lists of chunks are the reference's", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  using gpu::Dtype;
  const BatchShape chunk{.n_q = 6, .n_kv = 2, .n_past = {900}, .n_tok = 40};
  const BatchShape wide{.n_q = 6, .n_kv = 2, .n_past = {900}, .n_tok = 40, .dtype = Dtype::f32};
  const BatchShape narrow{.n_q = 8, .n_kv = 2, .d = 64, .n_past = {9000}, .n_tok = 1};
  const BatchShape copies{.n_past = {9000}, .n_tok = 32, .draw = Draw::copies};
  const BatchShape start{.n_past = {0}, .n_tok = 33};
  for (const Case& c :
       {Case{"chunk", chunk, {64, 32}}, Case{"chunk f32", wide, {64, 32}},
        Case{"one channel", chunk, {100, 1}}, Case{"all channels", wide, {100, 128}},
        Case{"d 64", narrow, {500, 16}}, Case{"copies", copies, {700, 32}},
        Case{"no past", start, {64, 32}}, Case{"budget beyond all", chunk, {5000, 64}}}) {
    INFO(c.name);
    DeviceBatch batch(c.batch);
    const Sequence1& s = batch.sequences[0];
    gpu::Sparq sparq;
    sparq.choose(batch.shape, c.options, batch.rows(), s.n_past, batch.stream);
    batch.stream.wait();
    int n_swapped = 0;
    double farthest = 0.0;
    for (int kv_head = 0; kv_head < s.n_kv; ++kv_head) {
      const ListDifference difference = compare_list(
          list_of(sparq.lists(), 0, kv_head), sparq_scores(s, kv_head, c.options.n_channels),
          std::min(c.options.budget, s.n_past), /*rounding=*/2e-6);
      CHECK(difference.is_right);
      n_swapped += difference.n_swapped;
      farthest = std::max(farthest, difference.farthest);
    }
    std::printf("  sparq %-18s swapped %d, farthest %.1e\n", c.name, n_swapped, farthest);
    if (c.batch.draw == Draw::copies) CHECK(n_swapped == 0);
  }
}

TEST_CASE("gpu: SparQ's steps keep the latest keys, and mix in the mean value", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  using gpu::Dtype;
  const BatchShape step{.n_q = 6, .n_kv = 2, .n_past = {900}, .n_tok = 1};
  const BatchShape wide{.n_q = 6, .n_kv = 2, .n_past = {5000}, .n_tok = 1, .dtype = Dtype::f32};
  const BatchShape narrow{.n_q = 15, .n_kv = 1, .d = 64, .n_past = {9000}, .n_tok = 1};
  const BatchShape start{.n_past = {0}, .n_tok = 1};
  for (const Case& c :
       {Case{"step", step, {64, 32, 16, true}}, Case{"step f32", wide, {640, 16, 100, true}},
        Case{"15 heads", narrow, {500, 16, 0, true}}, Case{"all local", step, {64, 32, 64, true}},
        Case{"no past", start, {64, 32, 16, true}},
        Case{"budget beyond all", step, {5000, 64, 1250, true}}}) {
    INFO(c.name);
    DeviceBatch batch(c.batch);
    const Sequence1& s = batch.sequences[0];
    gpu::Sparq sparq;
    sparq.choose(batch.shape, c.options, batch.rows(), s.n_past, batch.stream);
    gpu::MeanValues values(batch.shape);
    // in parts, with a rollback; then anew
    const int n_context = s.n_past + 1;
    values.compute(batch.v.data(), 0, std::max(1, n_context - 100), batch.stream);
    values.compute(batch.v.data(), std::max(0, n_context - 300), n_context, batch.stream);
    gpu::MeanValues anew(batch.shape);
    anew.compute(batch.v.data(), 0, n_context, batch.stream);
    gpu::attend(batch.shape, batch.rows(), sparq.lists(), batch.out_rows.data(),
                reinterpret_cast<float*>(batch.lse_rows.data()), {}, batch.stream);
    batch.stream.wait();
    const std::vector<float> before = batch.out();
    sparq.mix(batch.shape, values.means(), batch.out_rows.data(), batch.stream);
    batch.stream.wait();
    const std::vector<float> after = batch.out();
    const auto width = static_cast<std::size_t>(s.d);
    const auto means = gpu::read_device<float>(values.means(), s.n_kv * width);
    CHECK(means == gpu::read_device<float>(anew.means(), s.n_kv * width));
    const auto shares = gpu::read_device<float>(sparq.shares(), static_cast<std::size_t>(s.n_q));
    const int n_latest = std::min(c.options.n_latest, s.n_past);
    double worst_share = 0.0, worst_mean = 0.0, worst_out = 0.0;
    for (int kv_head = 0; kv_head < s.n_kv; ++kv_head) {
      std::vector<int> list = list_of(sparq.lists(), 0, kv_head);
      std::vector<int> kept = list;
      bool has_latest = static_cast<int>(list.size()) >= n_latest;
      for (int i = 0; has_latest && i < n_latest; ++i) {
        has_latest = kept.back() == s.n_past - 1 - i;
        kept.pop_back();
      }
      CHECK(has_latest);
      std::vector<double> competing = sparq_scores(s, kv_head, c.options.n_channels);
      competing.resize(static_cast<std::size_t>(s.n_past - n_latest));
      CHECK(compare_list(kept, competing,
                         std::min(c.options.budget - n_latest, s.n_past - n_latest), 2e-6)
                .is_right);
      for (int channel = 0; channel < s.d; ++channel) {
        double mean = 0.0;
        for (int pos = 0; pos < n_context; ++pos)
          mean += static_cast<double>(s.v_row(kv_head, pos)[channel]) / n_context;
        const float found = means[kv_head * width + static_cast<std::size_t>(channel)];
        worst_mean = larger_gap(worst_mean, std::abs(static_cast<double>(found) - mean));
      }
      list.push_back(s.n_past);
      for (int head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
        const auto scores = sparq_scores(s, kv_head, c.options.n_channels, head);
        double all = 0.0, share = 0.0;
        for (const double score : scores) all += std::exp(score);
        for (const int pos : list) share += std::exp(scores[static_cast<std::size_t>(pos)]) / all;
        const auto h = static_cast<std::size_t>(head);
        worst_share = larger_gap(worst_share, std::abs(static_cast<double>(shares[h]) - share));
        for (std::size_t i = 0; i < width; ++i) {
          const float mean = means[kv_head * width + i];
          const float mixed = shares[h] * before[h * width + i] + (1.0f - shares[h]) * mean;
          worst_out =
              larger_gap(worst_out, std::abs(static_cast<double>(after[h * width + i]) - mixed) /
                                        std::max(0.01, std::abs(static_cast<double>(mixed))));
        }
      }
    }
    std::printf("  sparq's step %-18s share %.1e mean %.1e out %.1e\n", c.name, worst_share,
                worst_mean, worst_out);
    CHECK(worst_share < 1e-5);
    CHECK(worst_mean < 1e-6);
    CHECK(worst_out < (c.batch.dtype == Dtype::bf16 ? 4e-3 : 1e-6));
  }
}

}  // namespace kvscope::test::sparq_test
