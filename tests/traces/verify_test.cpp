// What verify finds, and that sound traces pass.
#include "traces/verify.hpp"

#include <memory>
#include <utility>

#include "tests/support/places.hpp"
#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::verify_test {

CaptureSet with_attention() {
  CaptureSet capture;
  capture.attn_dense = capture.stats = capture.logits = true;
  capture.attn_topk = 4;
  capture.page_size = 4;
  return capture;
}

VerifyReport record_and_verify(const SyntheticTrace& trace) {
  const TempFolder folder;
  write_all(trace, *create_trace(folder / "t.h5", {}));
  ThreadPool pool(2);
  return verify_trace(folder / "t.h5", {.n_rows = 1000, .seed = 3}, pool);
}

std::string joined(const VerifyReport& report) {
  std::string text;
  for (const auto& problem : report.problems) text += problem + "\n";
  return text;
}

TEST_CASE("recordings that were made before verify: what is hashed is part of the format") {
  ThreadPool pool(2);
  for (const char* name : {"plain.h5", "packed.h5"}) {
    const VerifyReport report =
        verify_trace(testing::source_dir() / "tests/fuzz/corpus/trace" / name, {}, pool);
    INFO(name << ": " << joined(report));
    CHECK(report.ok);
  }
}

TEST_CASE("a sound trace verifies, all rows recomputed, in every storage type") {
  Plan plan;
  plan.dtype = GENERATE(DType::f32, DType::f16, DType::bf16);
  plan.capture = with_attention();
  const VerifyReport report = record_and_verify(make_trace(plan));
  INFO(joined(report));
  CHECK(report.ok);
  CHECK(report.n_rows_checked == 3 * 4 * 24);
  CHECK(report.max_lse_error < 1e-5);
  CHECK(report.max_attn_error < (plan.dtype == DType::bf16 ? 4e-3 : 1e-3));
  CHECK(report.max_output_norm > 0);
  // Per call: tokens; per layer 6 arrays of 4 query heads and 5 of 2 KV heads; logits; token text.
  CHECK(report.n_checksums == 6 * (1 + 3 * (6 * 4 + 5 * 2) + 1 + 1) + 1);  // the model once
}

/// Adds `error` to the last element of one statistic of every layer on its way to a trace.
class StatsChanger final : public PassingOn {
 public:
  StatsChanger(std::unique_ptr<TraceReceiver> to, const char* which, float error)
      : PassingOn(*to), owned_(std::move(to)), which_(which), error_(error) {}
  void write(const CallRows& rows) override {
    CallRows changed = rows;
    Tensor<float> copy;
    for (ArrayRows& array : changed.arrays) {
      if (array.name != which_) continue;
      const TypedRows given = std::get<TypedRows>(array.rows);
      copy = Tensor<float>(given.shape());
      std::copy_n(given.floats(copy).data(), copy.count(), copy.data());
      if (copy.count() > 0) copy.data()[copy.count() - 1] += error_;
      array.rows = copy.view();
    }
    to_.write(changed);
  }

 private:
  std::unique_ptr<TraceReceiver> owned_;
  std::string which_;
  float error_;
};

TEST_CASE("norms and page bounds that are not those of the recorded rows are found") {
  Plan plan;
  plan.dtype = GENERATE(DType::f32, DType::f16);
  plan.capture.stats = true;
  plan.capture.page_size = 4;
  const auto [which, sentence] =
      GENERATE(std::pair("stats/q_norm", "/layers/2/stats/q_norm: head 3, position 7: the norm is"),
               std::pair("stats/k_norm", "/layers/0/stats/k_norm: head 1, position 7: the norm is"),
               std::pair("stats/page_min", "/layers/1/stats/page_min: head 1, page 1, channel"),
               std::pair("stats/page_max", "/layers/1/stats/page_max: head 1, page 1, channel"));
  const TempFolder folder;
  StatsChanger receiver(create_trace(folder / "t.h5", {}), which, 0.01f);
  write_all(make_trace(plan), receiver);
  ThreadPool pool(2);
  const VerifyReport report = verify_trace(folder / "t.h5", {.n_rows = 4}, pool);
  CHECK(report.problems.size() == 3);
  CHECK_HAS(joined(report), sentence);
}

TEST_CASE("numbers that contradict each other are found by recomputation") {
  Plan plan;
  plan.capture = with_attention();
  SyntheticTrace trace = make_trace(plan);
  SECTION("lse") {
    trace.layers[2].lse(1, 17) += 0.01f;
    CHECK_HAS(joined(record_and_verify(trace)), "/layers/2: query head 1, row 17: lse is");
  }
  SECTION("a key") {
    trace.layers[0].k(1, 3, 2) += 1.0f;
    CHECK_HAS(joined(record_and_verify(trace)), "/layers/0: query head 2");
  }
  SECTION("attention outside the window") {
    trace.layers[1].attn(0, 20, 2) = 0.25f;
    CHECK_HAS(joined(record_and_verify(trace)),
              "/layers/1: query head 0, row 20: attention to key 2");
  }
  SECTION("a token outside the vocabulary") {
    trace.tokens[5] = 50;
    CHECK_HAS(joined(record_and_verify(trace)), "token 5 has the id 50");
  }
}

TEST_CASE("a sampled verification says how much it looked at, and finds what lies there") {
  const TempFolder folder;
  Plan plan;
  plan.capture = with_attention();
  const SyntheticTrace trace = make_trace(plan);
  write_all(trace, *create_trace(folder / "t.h5", {}));
  ThreadPool pool(2);
  const VerifyReport all = verify_trace(folder / "t.h5", {.n_rows = 8}, pool);
  CHECK(all.n_checksums == all.n_all_checksums);
  CHECK(all.n_heads_checked == all.n_all_heads);

  VerifyOptions options{.n_rows = 8, .seed = 5};
  options.bounds.share = 0.25;
  const VerifyReport part = verify_trace(folder / "t.h5", options, pool);
  CHECK(part.ok);
  CHECK(part.n_all_checksums == all.n_checksums);
  CHECK(part.n_checksums < all.n_checksums / 2);
  CHECK(part.n_heads_checked == (all.n_all_heads + 3) / 4);
  CHECK(part.n_rows_checked < all.n_rows_checked);

  // No time at all: one of each.
  options.bounds.share = 1.0;
  options.bounds.end = VerifyBounds::Clock::now();
  const VerifyReport least = verify_trace(folder / "t.h5", options, pool);
  CHECK(least.ok);
  CHECK(least.n_heads_checked == 1);
  CHECK(least.n_checksums < part.n_checksums);

  // One wrong number is found by some seeds, and by all of the trace.
  damage(folder / "t.h5", trace.layers[1].v(1, 13, 4));
  int n_found = 0;
  options.bounds = {.share = 0.5};
  for (options.seed = 0; options.seed < 16; ++options.seed)
    n_found += verify_trace(folder / "t.h5", options, pool).ok ? 0 : 1;
  CHECK(n_found > 0);
  CHECK_FALSE(verify_trace(folder / "t.h5", {.n_rows = 8}, pool).ok);
}

}  // namespace kvscope::test::verify_test
