// QuoKA's choice of queries: the golden vector of the specification. Its key scores are tested
// with the selector.
#include "core/attention/quoka_scores.hpp"
#include "tests/support/test.hpp"

namespace kvscope::quoka_scores_test {

Tensor<float> rows_of(const std::vector<std::vector<float>>& rows) {
  Tensor<float> x({static_cast<Index>(rows.size()), static_cast<Index>(rows[0].size())});
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), x.view().row(static_cast<Index>(i)).begin());
  return x;
}

struct Golden {
  Tensor<float> q0 = rows_of({{3, -3}, {-2, 3}, {0, 1}, {1, -3}});
  Tensor<float> q1 = rows_of({{-1, 1}, {1, -2}, {0, 1}, {-2, -1}});
  std::vector<TensorView<const float>> q = {q0.view(), q1.view()};
  QuokaCosines cosines = quoka_group_cosines(q, QuokaMean::raw, 1e-12);
};

void require_close(std::span<const double> found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    REQUIRE(found[i] == Approx(expected[i]).margin(1.5e-6));
}

using Picks = std::vector<std::vector<Index>>;

TEST_CASE("quoka golden vector: cosines, choices, averages") {
  const Golden golden;
  require_close(golden.cosines.heads[0], {1.0, -0.980581, -0.707107, 0.894427});
  require_close(golden.cosines.heads[1], {0.316228, 0.0, -0.447214, 1.0});
  REQUIRE_FALSE(golden.cosines.has_zero_mean);
  const Picks picks = quoka_pick_slots(golden.cosines.heads, 2, QuokaPairing::rank);
  REQUIRE(picks == Picks{{1, 2}, {2, 1}});
  require_close(quoka_slot_means(golden.q, picks, /*unit=*/true, 1e-12).flat(),
                {-0.277350, 0.916025, 0.223607, 0.052786});
}

TEST_CASE("quoka golden vector: pairing by position, or shared tokens") {
  const Golden golden;
  CHECK(quoka_pick_slots(golden.cosines.heads, 2, QuokaPairing::position_sorted) ==
        Picks{{1, 2}, {1, 2}});
  // Head means -0.490 and -0.577.
  CHECK(quoka_pick_slots(golden.cosines.heads, 2, QuokaPairing::shared_tokens) ==
        Picks{{2, 1}, {2, 1}});
}

TEST_CASE("quoka: as many queries as tokens means all of them, in order") {
  const Golden golden;
  REQUIRE(quoka_pick_slots(golden.cosines.heads, 4, QuokaPairing::rank) ==
          Picks{{0, 1, 2, 3}, {0, 1, 2, 3}});
}

TEST_CASE("quoka: the mean of raw queries weighs long ones, the mean of unit ones does not") {
  const Tensor<float> q = rows_of({{10, 0}, {0, 1}, {0, 1}});
  const auto raw = quoka_mean_query(q.view(), QuokaMean::raw, 1e-12);
  const auto unit = quoka_mean_query(q.view(), QuokaMean::unit, 1e-12);
  require_close(raw, {10.0 / 3.0, 2.0 / 3.0});
  require_close(unit, {1.0 / 3.0, 2.0 / 3.0});
  REQUIRE(quoka_pick(quoka_cosines(q.view(), raw, 1e-12), 1) == std::vector<Index>{1});
  REQUIRE(quoka_pick(quoka_cosines(q.view(), unit, 1e-12), 1) == std::vector<Index>{0});
}

TEST_CASE("quoka: opposite queries cancel: cosines are 0 and the first tokens are taken") {
  const Tensor<float> q = rows_of({{1, 0}, {-1, 0}, {0, 2}, {0, -2}});
  const std::vector<TensorView<const float>> views = {q.view()};
  const QuokaCosines cosines = quoka_group_cosines(views, QuokaMean::raw, 1e-12);
  REQUIRE(cosines.has_zero_mean);
  REQUIRE(quoka_pick_slots(cosines.heads, 2, QuokaPairing::rank) == Picks{{0, 1}});
  for (double c : cosines.heads[0]) REQUIRE(c == 0.0);
}

}  // namespace kvscope::quoka_scores_test
