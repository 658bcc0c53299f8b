#include "analysis/kinds/coverage_writer.hpp"

#include "analysis/base/mapped.hpp"

#include <limits>

namespace kvscope {

namespace {

constexpr auto kF64 = ResultType::f64;
constexpr auto kF32 = ResultType::f32;

/// One number of each entry.
template <class T, class Member>
std::vector<double> column(const std::vector<T>& entries, Member T::*member) {
  return mapped<double>(entries, [&](const T& entry) { return entry.*member; });
}

/// The pairs' vectors one after another.
template <class T>
std::vector<T> joined(const std::vector<PairCoverage>& pairs,
                      std::vector<T> PairCoverage::*member) {
  std::vector<T> out;
  for (const PairCoverage& pair : pairs)
    out.insert(out.end(), (pair.*member).begin(), (pair.*member).end());
  return out;
}

std::vector<Index> counted(std::size_t n) {
  std::vector<Index> out;
  for (std::size_t i = 0; i < n; ++i) out.push_back(static_cast<Index>(i));
  return out;
}

}  // namespace

void CoverageWriter::declare(const std::string& name, ResultType type, Shape shape,
                             std::vector<std::string> axes, const std::string& units,
                             const std::string& long_name) {
  output_.declare({name, type, shape, std::move(axes), units, long_name});
}

CoverageWriter::CoverageWriter(ResultWriter& output, const CoverageAxes& axes, const MapGrid& grid)
    : output_(output), has_pairs_(!axes.pairs.empty()) {
  const auto n_layers = static_cast<Index>(axes.layers.size());
  const auto n_heads = static_cast<Index>(axes.q_heads.size());
  const auto n_pairs = static_cast<Index>(axes.pairs.size());
  const auto n_shares = static_cast<Index>(axes.shares.size());
  const Index n_bins = n_size_bins(axes.n_tokens);
  std::vector<Index> bins;
  for (Index i = 0; i < n_bins; ++i) bins.push_back(Index{1} << i);

  write_axis(output, "layer", axes.layers, "1", "layer");
  write_axis(output, "q_head", axes.q_heads, "1", "query head");
  write_axis(output, "row_pos", axes.row_pos, "token", "measured query positions");
  write_axis(output, "query_block", grid.block_begins(), "token", "first query of a block");
  write_axis(output, "page", grid.page_begins(), "token", "first key of a page");
  write_axis(output, "size_bin", bins, "key", "smallest nucleus size of a bin");
  write_axis(output, "k", axes.top_k, "key", "budget of an oracle");
  declare("p", kF64, {n_shares}, {"p"}, "1", "share of the attention");
  output.write<double>("p", 0, axes.shares);

  const std::vector<std::string> head = {"layer", "q_head"};
  const std::vector<std::string> head_p = {"layer", "q_head", "p"};
  const Shape head_shape{n_layers, n_heads};
  const Shape head_p_shape{n_layers, n_heads, n_shares};
  declare("nucleus_mean", kF64, head_p_shape, head_p, "key", "mean nucleus size");
  declare("nucleus_p50", kF64, head_p_shape, head_p, "key", "median nucleus size");
  declare("nucleus_p95", kF64, head_p_shape, head_p, "key", "95th percentile of nucleus sizes");
  declare("nucleus_share", kF64, head_p_shape, head_p, "1", "mean of nucleus size / visible keys");
  declare("nucleus_counts", ResultType::i64, {n_layers, n_heads, n_shares, n_bins},
          {"layer", "q_head", "p", "size_bin"}, "row", "rows by nucleus size");
  declare("budget_mean", kF64, head_shape, head, "key", "mean smallest budget for the target mass");
  declare("budget_p95", kF64, head_shape, head, "key", "95th percentile of smallest budgets");
  declare("budget_max", kF64, head_shape, head, "key", "largest smallest budget");
  for (const std::string name : {"mean", "p95", "max", "shared"}) {
    declare("layer_budget_" + name, kF64, {n_layers}, {"layer"}, "key",
            name == "shared" ? std::string("one budget whose mean mass reaches the target")
                             : name + " of the rows' smallest budgets");
  }
  declare("topk_mass", kF64, {n_layers, static_cast<Index>(axes.top_k.size())}, {"layer", "k"}, "1",
          "mean mass of the oracle's k keys");
  declare("map_mass", kF32, {n_layers, grid.n_blocks(), grid.n_pages()},
          {"layer", "query_block", "page"}, "1", "attention in the page");
  if (!has_pairs_) return;

  write_axis(output, "pair", counted(axes.pairs.size()), "1", "place in the summary's pairs");
  const std::vector<std::string> pair_head = {"layer", "pair", "q_head"};
  const Shape pair_shape{n_layers, n_pairs, n_heads};
  declare("kept_mass", kF64, pair_shape, pair_head, "1", "mean kept attention");
  declare("kept_mass_p05", kF64, pair_shape, pair_head, "1", "5th percentile of kept attention");
  declare("kept_keys", kF64, pair_shape, pair_head, "key", "mean number of kept keys");
  const std::vector<std::string> pair_map = {"layer", "pair", "query_block", "page"};
  const Shape map_shape{n_layers, n_pairs, grid.n_blocks(), grid.n_pages()};
  declare("map_kept", kF32, map_shape, pair_map, "1", "kept attention in the page");
  declare("map_selected", kF32, map_shape, pair_map, "1", "share of visible keys selected");
}

void CoverageWriter::write_layer(Index slot, const LayerNucleus& nucleus,
                                 std::optional<Index> shared, std::span<const double> topk_mass,
                                 const std::vector<float>& map_mass,
                                 const std::vector<PairCoverage>& pairs) {
  const auto write = [&](const std::string& name, const std::vector<double>& values) {
    output_.write<double>(name, slot, values);
  };
  write("nucleus_mean", column(nucleus.sizes, &KeyCounts::mean));
  write("nucleus_p50", column(nucleus.sizes, &KeyCounts::p50));
  write("nucleus_p95", column(nucleus.sizes, &KeyCounts::p95));
  write("nucleus_share", nucleus.size_share);
  output_.write<std::int64_t>("nucleus_counts", slot, nucleus.size_counts);
  write("budget_mean", column(nucleus.head_budget, &KeyCounts::mean));
  write("budget_p95", column(nucleus.head_budget, &KeyCounts::p95));
  write("budget_max", column(nucleus.head_budget, &KeyCounts::max));
  write("layer_budget_mean", {nucleus.budget.mean});
  write("layer_budget_p95", {nucleus.budget.p95});
  write("layer_budget_max", {nucleus.budget.max});
  write("layer_budget_shared",
        {shared ? static_cast<double>(*shared) : std::numeric_limits<double>::quiet_NaN()});
  output_.write<double>("topk_mass", slot, topk_mass);
  output_.write<float>("map_mass", slot, map_mass);
  if (!has_pairs_) return;
  write("kept_mass", joined(pairs, &PairCoverage::mass));
  write("kept_mass_p05", joined(pairs, &PairCoverage::mass_p05));
  write("kept_keys", joined(pairs, &PairCoverage::kept_keys));
  output_.write<float>("map_kept", slot, joined(pairs, &PairCoverage::map_kept));
  output_.write<float>("map_selected", slot, joined(pairs, &PairCoverage::map_selected));
}

void CoverageWriter::write_pinsker(const PinskerResult& pinsker) {
  write_axis(output_, "verified_pos", pinsker.row_pos, "token", "verified positions");
  const auto n_layers = static_cast<Index>(pinsker.layers.size());
  const auto n_rows = static_cast<Index>(pinsker.row_pos.size());
  const auto write = [&](const std::string& name, std::vector<double> PinskerLayer::*member,
                         const std::string& units, const std::string& long_name) {
    declare(name, kF64, {n_layers, n_rows}, {"layer", "verified_pos"}, units, long_name);
    for (Index l = 0; l < n_layers; ++l)
      output_.write<double>(name, l, pinsker.layers[static_cast<std::size_t>(l)].*member);
  };
  write("pinsker_kl", &PinskerLayer::kl, "nat", "KL(verifier || mapped draft layer)");
  write("pinsker_floor", &PinskerLayer::floor, "1", "max(0, p - sqrt(KL / 2))");
  write("tv_floor", &PinskerLayer::tv_floor, "1", "max(0, p - total variation)");
  write("nucleus_mass", &PinskerLayer::nucleus_mass, "1", "verifier's mass on the draft's nucleus");
  write("specattn_mass", &PinskerLayer::specattn_mass, "1", "attention that SpecAttn keeps");
  write("specattn_kept", &PinskerLayer::specattn_kept, "1", "share of visible keys it keeps");
  const auto draft_layers = mapped<std::int64_t>(pinsker.layers, &PinskerLayer::draft_layer);
  declare("draft_layer", ResultType::i64, {n_layers}, {"layer"}, "1", "mapped draft layer");
  output_.write<std::int64_t>("draft_layer", 0, draft_layers);
}

void CoverageWriter::add_plots(bool has_pinsker) {
  output_.add_plot(
      {"plot_map_mass", "map_mass", {"layer", "query_block", "page"}, "Where the attention lies"});
  output_.add_plot({"plot_nucleus", "nucleus_mean", {"layer", "q_head", "p"}, "Mean nucleus size"});
  output_.add_plot({"plot_budget", "budget_mean", {"layer", "q_head"}, "Mean smallest budget"});
  output_.add_plot({"plot_topk_mass", "topk_mass", {"layer", "k"}, "Mass of the oracle's k keys"});
  if (has_pairs_) {
    const std::vector<std::string> map_axes = {"layer", "pair", "query_block", "page"};
    output_.add_plot(
        {"plot_kept_mass", "kept_mass", {"layer", "pair", "q_head"}, "Kept attention"});
    output_.add_plot({"plot_map_kept", "map_kept", map_axes, "Kept attention by page"});
    output_.add_plot({"plot_map_selected", "map_selected", map_axes, "Selected keys by page"});
  }
  if (has_pinsker) {
    const std::vector<std::string> row_axes = {"layer", "verified_pos"};
    output_.add_plot({"plot_pinsker_floor", "pinsker_floor", row_axes, "Pinsker floor"});
    output_.add_plot({"plot_specattn_mass", "specattn_mass", row_axes, "What SpecAttn keeps"});
  }
}

}  // namespace kvscope
