// Axes: positions there and back, ticks, labels.
#include "analysis/plot/scale.hpp"

#include "tests/support/test.hpp"

namespace kvscope::plot::scale_test {

TEST_CASE("a scale maps its ends to 0 and 1 and back, reversed the other way round") {
  for (ScaleKind kind : {ScaleKind::linear, ScaleKind::log10, ScaleKind::log2}) {
    for (bool reversed : {false, true}) {
      const Scale scale(kind, {0.5, 300.0}, reversed);
      CHECK(scale.to_unit(0.5) == Approx(reversed ? 1.0 : 0.0));
      CHECK(scale.to_unit(300.0) == Approx(reversed ? 0.0 : 1.0));
      for (double v : {0.5, 1.0, 2.0, 17.0, 299.0})
        CHECK(scale.from_unit(scale.to_unit(v)) == Approx(v));
    }
  }
  CHECK(std::isnan(Scale(ScaleKind::log10, {1.0, 10.0}).to_unit(0.0)));
  CHECK(std::isnan(Scale(ScaleKind::log10, {1.0, 10.0}).to_unit(-3.0)));
}

}  // namespace kvscope::plot::scale_test
