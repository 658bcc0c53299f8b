// What every method that selects anew in each call has to keep, over random shapes.
#include "core/selectors/candidates.hpp"
#include "tests/core/selectors/kit.hpp"

namespace kvscope::test::rules_test {

constexpr std::string_view kTokenMethods[] = {"quoka",
                                              "quoka:scope=whole",
                                              "quest-paper:dense-layers=0",
                                              "quest-kernel:dense-layers=0",
                                              "quest-frontier",
                                              "quest-hub:page-size=16",
                                              "sampleattention",
                                              "sparq:n-channels=4",
                                              "loki:basis=self,rank=4",
                                              "oracle-topk",
                                              "oracle-topk-past",
                                              "oracle-topk-group",
                                              "oracle-topk-chunk",
                                              "oracle-pages:page-size=8"};

CallShape random_shape(std::mt19937& rng) {
  const auto pick = [&](Index low, Index high) {
    return std::uniform_int_distribution<Index>(low, high)(rng);
  };
  CallShape shape{.n_kv = pick(1, 3)};
  shape.n_q = shape.n_kv * pick(1, 4);
  shape.d_head = pick(1, 5) * 4;
  shape.n_past = pick(0, 150);
  shape.phase = static_cast<Phase>(pick(0, 2));
  shape.n_tok = shape.phase == Phase::decode ? 1 : pick(1, 30);
  shape.seed = static_cast<unsigned>(pick(0, 1 << 20));
  shape.has_ties = pick(0, 1) == 1;
  return shape;
}

void check_answer(const CallFixture& fixture, const Selection& selection) {
  const Index n_q = fixture.q.dim(0);
  const Index n_owners = selection.owner == ListOwner::q_head ? n_q : fixture.k.dim(0);
  check_selection(selection, n_owners, fixture.k.dim(1));
  for (Index h = 0; h < n_q; ++h) {
    for (Index row = 0; row < fixture.call.n_tok; ++row) {
      const auto keys = merged(selection.list(owner_of(selection.owner, h, fixture.group()), row));
      for (const KeyPos pos : keys) CHECK(fixture.alive.is_alive(h / fixture.group(), pos));
    }
  }
}

TEST_CASE("selections are well formed, alive, repeatable, and the same for one budget or many") {
  std::mt19937 rng(11);
  for (int trial = 0; trial < 25; ++trial) {
    CallFixture fixture(random_shape(rng));
    if (trial % 3 == 0) fixture.call.window = 40;
    const Index n_ctx = fixture.k.dim(1);
    for (Index t = 0; t < fixture.call.pos_begin; t += 7)
      fixture.alive.kill(t % fixture.k.dim(0), static_cast<KeyPos>(t));
    const Budget budgets[] = {Budget::parse("tokens=1"), Budget::parse("ratio=0.3"),
                              Budget::parse("tokens=33")};
    for (const std::string_view spec : kTokenMethods) {
      INFO(spec << " with " << n_ctx << " keys, trial " << trial);
      auto many = made(spec, fixture);
      const auto answers = many->select_budgets(fixture.call, budgets);
      for (std::size_t i = 0; i < 3; ++i) {
        check_answer(fixture, answers[i]);
        fixture.call.budget = budgets[i];
        const Selection one = made(spec, fixture)->select(fixture.call);
        REQUIRE(one.n_lists() == answers[i].n_lists());
        for (Index l = 0; l < one.n_lists(); ++l) {
          REQUIRE(one.at(l).scored() == answers[i].at(l).scored());
          REQUIRE(one.at(l).forced() == answers[i].at(l).forced());
        }
        const SelectCost cost = many->cost(fixture.call, answers[i]);
        CHECK(cost.score_flops >= 0.0);
        CHECK(std::isfinite(cost.score_bytes + cost.metadata_bytes));
      }
    }
  }
}

TEST_CASE("zero queries and zero keys give no NaN and deterministic ties") {
  CallFixture fixture({.n_past = 30, .n_tok = 3});
  std::ranges::fill(fixture.q.flat(), 0.0f);
  std::ranges::fill(fixture.k.flat(), 0.0f);
  fixture.call.budget = Budget::parse("tokens=4");
  for (const std::string_view spec :
       {"quoka", "sampleattention", "sparq", "loki:basis=self", "oracle-topk-chunk"}) {
    INFO(spec);
    CHECK(made(spec, fixture)->select(fixture.call).at(0).scored() == positions(0, 4));
  }
}

TEST_CASE("forced keys leave the scored part") {
  KeyList list{{1, 4, 6, 9}, {2}, {}};
  const std::vector<KeyPos> forced = {4, 9, 12};
  force_keys(list, forced);
  CHECK(list.scored == std::vector<KeyPos>{1, 6});
  CHECK(list.forced == std::vector<KeyPos>{2, 4, 9, 12});
}

}  // namespace kvscope::test::rules_test
