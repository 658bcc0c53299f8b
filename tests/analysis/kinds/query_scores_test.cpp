// S_q against the prompt's and the chunk's mean query, by three loops.
#include "analysis/kinds/query_scores.hpp"

#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::query_scores_test {

/// -cos(q_i, mean of rows [begin, end)), the mean of raw or of unit queries.
double naive_score(TensorView<const float> q, Index i, Index begin, Index end, QuokaMean mean) {
  double dot = 0.0, mean_square = 0.0, square = 0.0;
  for (Index c = 0; c < q.dim(1); ++c) {
    double m = 0.0;
    for (Index t = begin; t < end; ++t) {
      double norm = 0.0;
      for (Index e = 0; e < q.dim(1); ++e) norm += std::pow(static_cast<double>(q(t, e)), 2);
      m += static_cast<double>(q(t, c)) / (mean == QuokaMean::unit ? std::sqrt(norm) : 1.0);
    }
    m /= static_cast<double>(end - begin);
    dot += m * static_cast<double>(q(i, c));
    mean_square += m * m;
    square += std::pow(static_cast<double>(q(i, c)), 2);
  }
  return -dot / std::sqrt(mean_square * square);
}

TEST_CASE("S_q equals the loops for both spans and both means") {
  const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 45});
  TraceInfo info = trace.info();
  info.n_prompt = 41;  // chunks of 16, 16 and 9; four decoded
  const QuokaMean mean = GENERATE(QuokaMean::raw, QuokaMean::unit);
  const Tensor<float> q = trace.read_q(1, 2, {0, 45});
  const QueryScoring scoring{16, mean, 1e-12};
  const auto prompt = query_scores(info, q.view(), QuerySpan::prompt, scoring);
  const auto chunk = query_scores(info, q.view(), QuerySpan::chunk, scoring);
  for (Index i = 0; i < 45; ++i) {
    const auto at = static_cast<std::size_t>(i);
    CHECK(prompt[at] == Approx(naive_score(q.view(), i, 0, 41, mean)).margin(1e-12));
    if (i >= 41) {
      CHECK(std::isnan(chunk[at]));
      continue;
    }
    const Index begin = i / 16 * 16;
    CHECK(chunk[at] ==
          Approx(naive_score(q.view(), i, begin, std::min<Index>(begin + 16, 41), mean))
              .margin(1e-12));
  }
}

TEST_CASE("a query alone in its chunk has no score; a chunk as long as the prompt is the prompt") {
  const MemoryTrace trace = test::planted_trace(test::PlantOptions{.n_tokens = 33});
  const TraceInfo& info = trace.info();
  const Tensor<float> q = trace.read_q(0, 0, {0, 33});
  const auto chunk = query_scores(info, q.view(), QuerySpan::chunk, {32, QuokaMean::raw, 1e-12});
  CHECK(std::isfinite(chunk[31]));
  CHECK(std::isnan(chunk[32]));
  const Index huge = std::numeric_limits<Index>::max();
  CHECK(query_scores(info, q.view(), QuerySpan::chunk, {huge, QuokaMean::raw, 1e-12}) ==
        query_scores(info, q.view(), QuerySpan::prompt, {1, QuokaMean::raw, 1e-12}));
  CHECK(prompt_chunks(info, 16).size() == 3);
  CHECK(prompt_chunks(info, 16).back() == TokenRange{32, 33});
}

}  // namespace kvscope::query_scores_test
