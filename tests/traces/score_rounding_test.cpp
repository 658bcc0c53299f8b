// Storing q and k in 16 bits says by how much it moved scores; verify accepts what is said only.
#include "traces/score_rounding.hpp"

#include <cmath>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/reader.hpp"
#include "traces/recording_observer.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::score_rounding_test {

constexpr float kLarge = 200.0F;  // what the keys of layer 0 are multiplied by

SyntheticTrace with_large_keys(DType dtype) {
  Plan plan;
  plan.key_scale = kLarge;
  SyntheticTrace trace = make_trace(plan);
  trace.info.dtype = dtype;
  return trace;
}

AttentionEvent event_of(const SyntheticTrace& trace, Index layer, TokenRange tokens) {
  const auto& [q, k, v, lse, attn] = trace.layers[static_cast<std::size_t>(layer)];
  return {.layer = layer,
          .pos_begin = tokens.begin,
          .n_tok = tokens.size(),
          .score_scale = trace.info.score_scale,
          .q = q.view().range(1, tokens.begin, tokens.end),
          .k = k.view().range(1, tokens.begin, tokens.end),
          .v = v.view().range(1, tokens.begin, tokens.end),
          .lse = lse.view().range(1, tokens.begin, tokens.end),
          .k_cache = k.view().range(1, 0, tokens.end),
          .v_cache = v.view().range(1, 0, tokens.end)};
}

double score(const SyntheticTrace& trace, Index layer, Index head, Index row, Index key,
             DType dtype) {
  const auto& rows = trace.layers[static_cast<std::size_t>(layer)];
  double sum = 0.0;
  for (Index c = 0; c < trace.info.d_head; ++c)
    sum += static_cast<double>(stored(dtype, rows.q(head, row, c))) *
           stored(dtype, rows.k(head / trace.info.group(), key, c));
  return sum * trace.info.score_scale;
}

TEST_CASE("the bound holds for every score of recorded rows, and is no tenfold of the largest") {
  const Index layer = GENERATE(0, 1);
  const DType dtype = GENERATE(DType::f16, DType::bf16);
  SyntheticTrace trace = with_large_keys(dtype);
  trace.info.rows = {3, 20};
  ThreadPool pool(2);
  ScoreRounding rounding(trace.info, dtype);
  for (const ForwardCall& call : trace.info.calls)
    rounding.add(event_of(trace, layer, call.tokens), pool);
  double most = 0.0;
  for (Index head = 0; head < 4; ++head) {
    for (Index row = 3; row < 20; ++row) {
      for (Index key = 0; key <= row; ++key)
        most = std::max(most, std::abs(score(trace, layer, head, row, key, dtype) -
                                       score(trace, layer, head, row, key, DType::f32)));
    }
  }
  const auto bound = static_cast<double>(rounding.by_layer()[static_cast<std::size_t>(layer)]);
  CHECK(most > 0.0);
  CHECK(bound >= most);
  CHECK(bound <= 10.0 * most);
}

TEST_CASE("a trace that says what storing moved is sound, one that does not is not") {
  SyntheticTrace trace = with_large_keys(DType::bf16);
  const bool says = GENERATE(true, false);
  if (says) trace.info.moved_scores = {NAN, NAN, NAN};
  const TempFolder folder;
  const auto file = folder / "t.h5";
  const auto writer = create_trace(file, {});
  ThreadPool pool(2);
  RecordingObserver observer(trace.info, *writer, pool);
  writer->begin(trace.info);
  for (const ForwardCall& call : trace.info.calls) {
    for (const Index layer : trace.info.layers)
      observer.on_attention(event_of(trace, layer, call.tokens));
    writer->write_moved_scores(observer.moved_scores());
    const auto begin = static_cast<std::size_t>(call.tokens.begin);
    const auto n = static_cast<std::size_t>(call.tokens.size());
    writer->write_tokens(std::span(trace.tokens).subspan(begin, n),
                         std::span(trace.texts).subspan(begin, n));
    writer->commit_call();
  }
  writer->finish(TraceStatus::complete);
  CHECK(observer.moved_scores().empty() == !says);

  const VerifyReport report = verified(file);
  REQUIRE(report.lse_errors.size() == 3);
  CHECK(report.lse_errors[0] > 0.5);
  CHECK(report.lse_errors[1] < 0.1);
  CHECK(report.ok == says);
  if (says) {
    const TraceInfo info = TraceFile::open(file).info();
    CHECK(info.moved_scores[0] > 0.5F);
    CHECK(info.moved_scores[2] < 0.2F);
    CHECK(info.moved_scores[0] >= report.lse_errors[0]);
  } else {
    REQUIRE(report.problems.size() == 1);
    CHECK(report.problems[0].starts_with("/layers/0: storing q and k in bf16 moved"));
  }
}

}  // namespace kvscope::test::score_rounding_test
