// Bands: every mean of every figure lies in its own, whichever rows a table has.

#include "core/base/lists.hpp"
#include "tests/analysis/figures/samples.hpp"
#include "tests/support/test.hpp"

namespace kvscope::bands_test {

/// The lines whose layer and head (-1: the layer's own row) are wanted.
std::string lines_of(const std::string& csv, const std::function<bool(int, int)>& is_wanted) {
  std::string out;
  std::size_t layer_at = 0;
  std::size_t head_at = 0;
  for (const std::string& line : split_words(csv, '\n')) {
    const std::vector<std::string> cells = split_words(line, ',');
    if (cells.size() < 2) continue;
    if (out.empty()) {
      const auto at = [&](const char* name) {
        const auto found = std::ranges::find(cells, name);
        return static_cast<std::size_t>(found - cells.begin());
      };
      layer_at = at("layer");
      head_at = at("q_head");
    } else if (!is_wanted(std::stoi(cells.at(layer_at)),
                          cells.at(head_at).empty() ? -1 : std::stoi(cells.at(head_at)))) {
      continue;
    }
    out += line + "\n";
  }
  return out;
}

const std::string kMetrics = "mass,recall10,output_error_rel";

TEST_CASE("every mean of a sweep's curves lies in its band, whichever rows there are") {
  const struct {
    const char* name;
    std::function<bool(int, int)> is_wanted;
  } tables[] = {
      {"layers and heads", [](int, int) { return true; }},
      {"heads alone", [](int, int head) { return head >= 0; }},
      {"one layer has no row", [](int layer, int head) { return head >= 0 || layer != 1; }},
      {"some heads, and rows of layers", [](int, int head) { return head < 2; }},
  };
  for (const auto& table : tables) {
    const std::string csv = lines_of(testing::swept(), table.is_wanted);
    for (const char* figure : {"budget", "bytes", "top10-recall"}) {
      for (const BandKind band : {BandKind::ci, BandKind::quartiles, BandKind::range}) {
        for (const char* layers : {"", "1", "0,2"}) {
          for (const char* heads : {"", "1"}) {
            INFO(table.name << ", " << figure << ", layers " << layers << ", heads " << heads);
            FigureOptions options;
            if (figure != std::string_view("top10-recall")) options.metric = kMetrics;
            options.layers = layers;
            options.heads = heads;
            options.band = band;
            const std::size_t n = testing::check_bands(
                testing::drawn(testing::result_of(csv, "sweep"), figure, options));
            if (band == BandKind::ci) CHECK(n > 0);  // one head alone has no quartiles
          }
        }
      }
    }
    for (const char* x : {"keys", "bytes", "flops", "budget"}) {
      CHECK(testing::check_bands(testing::drawn(testing::result_of(csv, "sweep"), "budget",
                                                FigureOptions{.metric = kMetrics, .x = x})) > 0);
    }
  }
}

TEST_CASE("a mean of which one part has no interval has no band") {
  const std::string csv =
      "trace,phase,selector,budget_kind,layer,q_head,budget,dense,window,kept,mass_mean,mass_low,"
      "mass_high,bytes\n"
      "a,decode,quest,tokens,1,0,64,0,0,64,0.4,0.35,0.45,10\n"
      "a,decode,quest,tokens,1,1,64,0,0,64,0.8,,,10\n"
      "a,decode,quest,tokens,1,0,96,0,0,96,0.5,0.45,0.55,10\n"
      "a,decode,quest,tokens,1,1,96,0,0,96,0.9,0.80,0.95,10\n";
  const plot::Figure figure =
      testing::drawn(testing::result_of(csv, "sweep"), "budget", {.metric = "mass"});
  const auto& line = std::get<plot::Line>(figure.panels.at(0).marks.at(0));
  CHECK(std::isnan(line.low.at(0)));
  CHECK(line.low.at(1) == Approx(0.625));
}

}  // namespace kvscope::bands_test
