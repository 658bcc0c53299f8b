// SparQ's choice for chunks on the GPU against the f64 reference.
#include "core/cuda/sparq.hpp"

#include "tests/cuda/device_batch.hpp"

namespace kvscope::test::sparq_test {

TEST_CASE("gpu: SparQ's lists of chunks are the reference's", "[gpu][picks]") {
  KVSCOPE_NEEDS_DEVICE();
  using gpu::Dtype;
  struct Case {
    const char* name;
    BatchShape batch;
    gpu::SparqOptions options;
  };
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

}  // namespace kvscope::test::sparq_test
