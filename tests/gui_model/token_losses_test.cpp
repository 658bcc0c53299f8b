// Losses at every token against the kept keys of the same replay, and the passages they make.
#include "gui/model/tokens/token_losses.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "support/planted_trace.hpp"
#include "tests/gui_model/job_context.hpp"

namespace kvscope::gui::test::token_losses_test {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;
using kvscope::test::planted_trace;
using kvscope::test::PlantOptions;

PlantOptions plant() {
  PlantOptions options;
  options.n_tokens = 160;
  options.chunk = 16;
  options.band = 1.0;
  options.sink = 1.0;
  options.seed = 5;
  return options;
}

LossRequest asking(LossHeads heads) {
  LossRequest request;
  request.of.layer = 1;
  request.of.q_head = 2;
  request.of.chunk = 16;
  request.of.spec = "quoka";
  request.of.budget = Budget{Budget::Kind::tokens, 12.0};
  request.heads = heads;
  return request;
}

TEST_CASE("a head's losses are one minus the mass on the keys that it keeps") {
  const auto trace = planted_trace(plant());
  TestJob job;
  const LossRequest request = asking(LossHeads::head);
  const TokenLosses losses = token_losses(trace, nullptr, request, job.context);
  const KeptRows kept = kept_rows(trace, nullptr, request.of, job.context);
  REQUIRE(losses.pos.size() == kept.rows.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < kept.rows.size(); ++i) {
    CHECK(losses.pos[i] == kept.rows[i].pos);
    CHECK_THAT(losses.lost[i], WithinAbs(1.0 - kept.rows[i].mass, 1e-9));
    sum += losses.lost[i];
    CHECK(losses.lost[i] <= losses.largest());
  }
  CHECK_THAT(losses.mean, WithinAbs(sum / static_cast<double>(losses.lost.size()), 1e-12));
  CHECK(losses.at(losses.pos.back()) == losses.lost.back());
  CHECK(losses.mean > 0.0);
  CHECK_THAT(loss_words(losses, request), ContainsSubstring("on average"));
}

TEST_CASE("losses of a layer and of all are means over their heads, for any number of threads") {
  const auto trace = planted_trace(plant());
  TestJob job;
  TestJob alone(1);
  const auto of = [&](LossRequest request) {
    const TokenLosses losses = token_losses(trace, nullptr, request, job.context);
    CHECK(token_losses(trace, nullptr, request, alone.context).lost == losses.lost);
    return losses;
  };
  const TraceInfo& info = trace.info();
  std::vector<double> layer_sum(static_cast<std::size_t>(info.n_tokens));
  std::vector<double> sum = layer_sum;
  for (const Index layer : info.layers) {
    for (const Index head : info.q_heads) {
      LossRequest request = asking(LossHeads::head);
      request.of.layer = layer;
      request.of.q_head = head;
      const TokenLosses one = of(request);
      for (std::size_t i = 0; i < one.pos.size(); ++i) {
        sum[static_cast<std::size_t>(one.pos[i])] += one.lost[i];
        if (layer == 1) layer_sum[static_cast<std::size_t>(one.pos[i])] += one.lost[i];
      }
    }
  }
  const auto n_heads = static_cast<double>(info.q_heads.size());
  const TokenLosses layer = of(asking(LossHeads::layer));
  const TokenLosses all = of(asking(LossHeads::all));
  REQUIRE(layer.pos.size() == static_cast<std::size_t>(info.n_tokens));
  REQUIRE(all.pos == layer.pos);
  const double n_all = n_heads * static_cast<double>(info.layers.size());
  for (std::size_t i = 0; i < layer.pos.size(); ++i) {
    CHECK_THAT(layer.lost[i], WithinAbs(layer_sum[i] / n_heads, 1e-9));
    CHECK_THAT(all.lost[i], WithinAbs(sum[i] / n_all, 1e-9));
  }
}

TEST_CASE("what stays dense loses nothing, and the words say so") {
  const auto trace = planted_trace(plant());
  TestJob job;
  LossRequest request = asking(LossHeads::layer);
  request.of.dense_layers = 2;
  const TokenLosses losses = token_losses(trace, nullptr, request, job.context);
  CHECK(losses.empty());
  CHECK(losses.largest() == 0.0);
  CHECK_FALSE(losses.at(5).has_value());
  CHECK_THAT(loss_words(losses, request), ContainsSubstring("nothing is lost"));
}

TEST_CASE("where not all queries were measured the one before stands for a token") {
  TokenLosses losses;
  losses.pos = {4, 10};
  losses.lost = {0.25, 0.5};
  CHECK_FALSE(losses.at(3).has_value());
  CHECK(losses.at(4) == 0.25);
  CHECK(losses.at(9) == 0.25);
  CHECK(losses.at(400) == 0.5);
}

}  // namespace
}  // namespace kvscope::gui::test::token_losses_test
