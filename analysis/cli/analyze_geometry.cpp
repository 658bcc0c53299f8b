// kvscope analyze geometry: principal axes, clustering and norms of queries and keys.
#include <nlohmann/json.hpp>

#include "analysis/cli/analyze_one.hpp"
#include "analysis/geometry.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::cli {
namespace {

class AnalyzeGeometry final : public AnalyzeOne<GeometryOptions> {
 public:
  AnalyzeGeometry()
      : AnalyzeOne("geometry", "queries and keys: principal axes, clustering, norms",
                   analyze_geometry) {}

 private:
  std::string about() const override {
    return "Fits principal axes to all recorded queries and keys after RoPE, per layer and KV "
           "head, and shows the queries and keys along the first three. Means are those of the "
           "prompt: a cosine of 1 to the mean says that all vectors point one way. Rows are means "
           "over the heads, the last line the mean over the layers; shares of the variance are out "
           "of 1.";
  }
  std::vector<Index> unit_layers(const Traces& traces) const override { return all_layers(traces); }
  std::vector<ReportColumn> columns() const override {
    return {{"explained_first", "1st axis"},
            {"explained_shown", "first 3"},
            {"axes_for_90_percent", "axes for 90 %"},
            {"query_clustering", "cos(q, mean q)"},
            {"key_clustering", "cos(k, mean k)"},
            {"mean_query_mean_key", "cos(mean q, mean k)"},
            {"q_norm_mean", "|q|"},
            {"k_norm_mean", "|k|"},
            {"v_norm_mean", "|v|"}};
  }
  std::string headline(const Json& totals) const override {
    return fmt::format(
        "three axes hold {} of the variance; queries lie at cosine {} to their mean, keys at {} to "
        "theirs, and the two means at {}",
        percent_text(total_of(totals, "explained_shown")),
        number_text(total_of(totals, "query_clustering"), 3),
        number_text(total_of(totals, "key_clustering"), 3),
        number_text(total_of(totals, "mean_query_mean_key"), 3));
  }
};

}  // namespace

std::unique_ptr<Command> make_analyze_geometry_command() {
  return std::make_unique<AnalyzeGeometry>();
}

}  // namespace kvscope::cli
