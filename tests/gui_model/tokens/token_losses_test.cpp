// Losses at every token against the kept keys of the same replay, and the passages they make.
#include "gui/model/tokens/token_losses.hpp"

#include "analysis/simulate/perplexity.hpp"
#include "core/base/data_dir.hpp"
#include "core/sim/live.hpp"
#include "gui/model/map/attention_row.hpp"
#include "gui/model/tokens/next_token_losses.hpp"
#include "support/planted_trace.hpp"
#include "tests/gui_model/job_context.hpp"
#include "tests/gui_model/methods/kept_rows.hpp"
#include "tests/support/test.hpp"

namespace kvscope::gui::test::token_losses_test {

using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;

PlantOptions plant() {
  return PlantOptions{.n_tokens = 160, .chunk = 16, .sink = 1.0, .band = 1.0, .seed = 5};
}

LossRequest asking(LossHeads heads) {
  return LossRequest{.layer = 1,
                     .q_head = 2,
                     .chunk = 16,
                     .spec = "quoka",
                     .budget = Budget{Budget::Kind::tokens, 12.0},
                     .heads = heads};
}

TEST_CASE("a head's losses are one minus the mass on the keys that it keeps") {
  const auto trace = planted_trace(plant());
  TestJob job;
  const LossRequest request = asking(LossHeads::head);
  const TokenLosses losses = token_losses(trace, nullptr, request, job.context);
  const auto kept = kept_rows(trace, request, job.context);
  REQUIRE(losses.pos.size() == kept.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    CHECK(losses.pos[i] == kept[i].pos);
    CHECK_THAT(losses.lost[i], WithinAbs(1.0 - kept[i].mass, 1e-9));
    sum += losses.lost[i];
    CHECK(losses.lost[i] <= losses.largest());
  }
  CHECK_THAT(losses.mean, WithinAbs(sum / static_cast<double>(losses.lost.size()), 1e-12));
  CHECK(losses.at(losses.pos.back()) == losses.lost.back());
  CHECK_FALSE(losses.at(losses.pos.back() + 1).has_value());
  CHECK(losses.mean > 0.0);
  CHECK_THAT(loss_words(losses), ContainsSubstring("on average"));
}

TEST_CASE("what stays dense loses nothing, and the words say so") {
  const auto trace = planted_trace(plant());
  TestJob job;
  LossRequest request = asking(LossHeads::layer);
  request.dense_layers = 2;
  const TokenLosses losses = token_losses(trace, nullptr, request, job.context);
  CHECK(losses.empty());
  CHECK(losses.largest() == 0.0);
  CHECK_FALSE(losses.at(5).has_value());
  CHECK_THAT(loss_words(losses), ContainsSubstring("nothing is lost"));
}

TEST_CASE("the error of the output is that of the values on the kept keys") {
  const auto trace = planted_trace(plant());
  TestJob job;
  LossRequest request = asking(LossHeads::head);
  request.kind = LossKind::output;
  const TokenLosses losses = token_losses(trace, nullptr, request, job.context);
  const auto kept = kept_rows(trace, request, job.context);
  REQUIRE(losses.pos.size() == kept.size());
  const TraceInfo& info = trace.info();
  const Tensor<float> v = trace.read_v(1, 2 / info.group(), {0, info.n_tokens});
  for (const KeptRow& row : kept) {
    const AttentionRow weights = attention_row(trace, 1, 2, row.pos);
    double error = 0.0;
    double norm = 0.0;
    for (Index c = 0; c < info.d_head; ++c) {
      const auto at = [&](Index key) { return static_cast<double>(v.view().row(key)[c]); };
      double dense = 0.0;
      double sparse = 0.0;
      for (Index key = 0; key <= row.pos; ++key) dense += weights.prob(key) * at(key);
      for (const KeyPos key : row.keys) sparse += weights.prob(key) * at(key) / row.mass;
      error += (dense - sparse) * (dense - sparse);
      norm += dense * dense;
    }
    CHECK_THAT(*losses.at(row.pos), WithinAbs(std::sqrt(error / norm), 1e-4));
  }
  TestJob alone(1);
  CHECK(token_losses(trace, nullptr, request, alone.context).lost == losses.lost);
  CHECK_THAT(loss_words(losses), ContainsSubstring("of the output"));
  CHECK(request.key() != asking(LossHeads::head).key());
}

TEST_CASE("two methods are compared where both were measured") {
  TokenLosses a;
  TokenLosses b;
  for (const Index pos : {1, 2, 5}) a.add(pos, 0.5);
  for (const Index pos : {2, 4, 5}) b.add(pos, pos == 5 ? 0.75 : 0.25);
  a.request = asking(LossHeads::head);
  const TokenLosses difference = difference_of(a, b);
  CHECK(difference.pos == std::vector<Index>{2, 5});
  CHECK(difference.lost == std::vector<double>{0.25, -0.25});
  CHECK(difference.most == 0.25);
  CHECK(difference.worst == 0);
  LossRequest other = asking(LossHeads::head);
  other.spec = "quest";
  CHECK(difference_words(difference, other) ==
        "QuoKA loses 0.0 points more than Quest on average, at most 25.0 points more, at least "
        "25.0 points less");
  CHECK_THAT(difference_words({}, other), ContainsSubstring("no token"));
}

TEST_CASE("the loss of the next token is what the running model says under the method") {
  PlantOptions options = plant();
  options.n_tokens = 96;
  const auto trace = planted_trace(options);
  const Transformer model = Transformer::load(embedded_draft());
  TestJob job;
  LossRequest request = asking(LossHeads::all);
  request.kind = LossKind::next_token;
  request.spec = "full";
  request.budget.reset();
  const TokenLosses none = next_token_losses(model, trace, request, job.context);
  REQUIRE(none.pos.size() == 95);
  CHECK(none.most == 0.0);
  request = asking(LossHeads::head);
  request.kind = LossKind::next_token;
  request.spec = "streamingllm";
  const TokenLosses losses = next_token_losses(model, trace, request, job.context);
  CHECK(losses.most > 0.0);
  // The last token of the second chunk, by hand.
  const auto tokens = trace.tokens();
  const auto surprise = [&](const LiveOptions& how) {
    LiveSequence live(model, how, 96, job.pool);
    const Tensor<float> logits =
        live.prefill(tokens.first(32), 16, PrefillMode::sparse, Logits::last);
    return negative_log_likelihood(logits.view().row(0), tokens[32]);
  };
  LiveOptions sparse{
      .selector = request.spec, .budget = request.budget, .dense_layers = request.dense_layers};
  CHECK_THAT(losses.lost[31], WithinAbs(surprise(sparse) - surprise({}), 1e-5));
  CHECK_THAT(loss_words(losses), ContainsSubstring("nats of the next token"));
}

TEST_CASE("a trace whose model is not here says so in a sentence") {
  TraceInfo info{.model_name = "elsewhere",
                 .model_hash = "xxh128:0",
                 .command_line = "kvscope record --model '/no such/folder' out.h5"};
  CHECK_THROWS_AS(model_of_trace(info), ConfigError);
  info.command_line.clear();
  try {
    model_of_trace(info);
    FAIL("found");
  } catch (const ConfigError& error) {
    CHECK_THAT(error.what(), ContainsSubstring("elsewhere") && ContainsSubstring("Shade by mass"));
  }
  info.model_hash.clear();
  info.model_name = embedded_draft().filename().string();
  CHECK(model_of_trace(info) == embedded_draft());
}

}  // namespace kvscope::gui::test::token_losses_test
