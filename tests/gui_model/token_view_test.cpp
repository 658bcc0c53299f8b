// The token strip's model: ranks against naive ones, kept keys, table.
#include "gui/model/tokens/token_view.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "analysis/base/read_table.hpp"
#include "tests/gui_model/trace_files.hpp"
#include "tests/support/planted_trace.hpp"

namespace kvscope::gui::test::token_view_test {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

/// A document, one of its rows and what a method keeps for it.
struct Shown {
  TempFolder folder;
  Bench bench;
  RankedRow row;
  KeptKeys keys;

  explicit Shown(const Plan& plan = {}, Index query = 20) {
    SyntheticTrace trace = make_trace(plan);
    trace.texts[2] = " a,\"b\"";
    bench.open(write_trace(folder / "a.h5", trace));
    row = ranked_row(bench.document()->source(), 2, 1, query);
    keys = {"quoka", "256 tokens", KeptRow{query, row.row.visible, {0, 2, 5}, 0.0}, false};
    for (const KeyPos key : keys.row->keys) keys.row->mass += row.row.prob(key);
  }
  TokenFigureInput input(WeightScale scale = WeightScale::log, bool mask_sinks = false) {
    const Document& document = *bench.session().document();
    return {document, row, scale, mask_sinks, {keys}};
  }
};

TEST_CASE("a query that sees a single key, or only sinks, still makes a figure") {
  for (const Index query : {0, 2}) {
    Shown shown({}, query);
    shown.keys.row->keys = {0};
    for (const auto scale : {WeightScale::log, WeightScale::linear, WeightScale::percentile}) {
      for (const bool mask : {false, true})
        CHECK_NOTHROW(plot::check_figure(token_figure(shown.input(scale, mask))));
    }
  }
}

}  // namespace kvscope::gui::test::token_view_test
