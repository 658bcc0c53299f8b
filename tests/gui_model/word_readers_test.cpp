// Who reads a word: every head against its rows one by one.
#include "gui/model/tokens/word_readers.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "gui/model/map/attention_row.hpp"
#include "gui/model/tokens/token_text.hpp"
#include "support/planted_trace.hpp"
#include "tests/gui_model/job_context.hpp"

namespace kvscope::gui::test::word_readers_test {

using Catch::Matchers::WithinAbs;

TEST_CASE("every head is told with what it gives the word, the one that gives most first") {
  kvscope::test::PlantOptions plant{.n_tokens = 90, .chunk = 16, .seed = 7};
  const auto trace = kvscope::test::planted_trace(plant);
  const TraceInfo& info = trace.info();
  TestJob job;
  TestJob alone(1);
  const TokenRange word{20, 22};
  const WordReaders readers = word_readers(trace, word, job.context);
  REQUIRE(readers.heads.size() == info.layers.size() * info.q_heads.size());
  double before = 1e9;
  for (const WordReader& reader : readers.heads) {
    CHECK(reader.received <= before);
    before = reader.received;
    double received = 0.0;
    double most = 0.0;
    for (Index query = word.end; query < info.n_tokens; ++query) {
      const AttentionRow row = attention_row(trace, reader.layer, reader.q_head, query);
      const double weight = row.prob(20) + row.prob(21);
      received += weight;
      most = std::max(most, weight);
      if (query == reader.from) CHECK_THAT(weight, WithinAbs(reader.most, 1e-5));
    }
    CHECK_THAT(reader.received, WithinAbs(received, 1e-4));
    CHECK_THAT(reader.most, WithinAbs(most, 1e-5));
  }
  const WordReaders same = word_readers(trace, word, alone.context);
  for (std::size_t i = 0; i < same.heads.size(); ++i)
    CHECK(same.heads[i].received == readers.heads[i].received);
  CHECK(word_readers(trace, {89, 90}, job.context).heads[0].received == 0.0);
}

}  // namespace kvscope::gui::test::word_readers_test
