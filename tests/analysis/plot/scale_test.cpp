// Axes: positions there and back, ticks, labels.
#include "analysis/plot/scale.hpp"

#include "tests/support/test.hpp"

namespace kvscope::plot::scale_test {

std::string labels_of(const std::vector<Tick>& ticks) {
  std::string out;
  for (const Tick& tick : ticks) out += (out.empty() ? "" : " ") + tick.label;
  return out;
}

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

TEST_CASE("linear ticks are round, lie in the range and have equally many decimals") {
  Axis axis;
  CHECK(labels_of(choose_ticks(axis, {0.0, 1.0}, 5)) == "0.0 0.2 0.4 0.6 0.8 1.0");
  CHECK(labels_of(choose_ticks(axis, {-0.31, 0.29}, 3)) == "\u22120.2 0.0 0.2");
  CHECK(labels_of(choose_ticks(axis, {0.0, 1000.0}, 5)) == "0 200 400 600 800 1000");
  axis.format = TickFormat::percent;
  CHECK(labels_of(choose_ticks(axis, {0.0, 1.0}, 4)) == "0% 25% 50% 75% 100%");
  axis.format = TickFormat::number;
  axis.whole_numbers = true;
  CHECK(labels_of(choose_ticks(axis, {0.0, 3.0}, 8)) == "0 1 2 3");
  axis.whole_numbers = false;
  for (double low : {-1e-9, 3.2e7, 0.99999}) {
    for (double width : {1e-7, 0.003, 12.0, 4e9}) {
      const Range range{low, low + width};
      const auto ticks = choose_ticks(axis, range, 6);
      CHECK(ticks.size() >= 2);
      CHECK(ticks.size() <= 9);
      for (const Tick& tick : ticks) {
        CHECK(tick.at >= range.low - 1e-6 * width);
        CHECK(tick.at <= range.high + 1e-6 * width);
      }
    }
  }
}

TEST_CASE("logarithmic ticks are powers, fewer when they are many") {
  Axis axis{.scale = ScaleKind::log10};
  CHECK(labels_of(choose_ticks(axis, {0.01, 100.0}, 8)) == "0.01 0.1 1 10 100");
  CHECK(labels_of(choose_ticks(axis, {1e-8, 1.0}, 3)) == "$10^{\u22126}$ $10^{\u22123}$ $10^{0}$");
  CHECK(labels_of(choose_ticks(axis, {0.15, 0.9}, 6)) == "0.2 0.5");
  CHECK(labels_of(choose_ticks(axis, {13.0, 27.0}, 4)) == "15 20 25");
  CHECK(minor_ticks(axis, {1.0, 10.0}).size() == 8);
  axis.scale = ScaleKind::log2;
  axis.format = TickFormat::tokens;
  CHECK(labels_of(choose_ticks(axis, {256.0, 4096.0}, 8)) == "256 512 1024 2048 4096");
  // before 16k stands 8192, which says what k is
  CHECK(labels_of(choose_ticks(axis, {8192.0, 131072.0}, 8)) == "8192 16k 32k 64k 128k");
  CHECK(tick_text(1000.0, TickFormat::tokens) == "1000");
  axis.format = TickFormat::number;
  CHECK(labels_of(choose_ticks(axis, {75.0, 114.0}, 4)) == "80 90 100 110");
  CHECK(labels_of(choose_ticks(axis, {0.25, 2.0}, 8)) == "0.25 0.5 1 2");
  axis.format = TickFormat::bytes;
  CHECK(labels_of(choose_ticks(axis, {512.0, 4096.0}, 8)) == "512 B 1 KiB 2 KiB 4 KiB");
}

}  // namespace kvscope::plot::scale_test
