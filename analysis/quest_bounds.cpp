#include "analysis/quest_bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/layer_arrays.hpp"
#include "analysis/quest_step.hpp"
#include "analysis/statistics.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kN = kQuestSemantics.size();

/// All arrays of one layer.
struct QuestArrays {
  QuestArrays(ResultWriter& output, const TraceInfo& info, Index step_count, Index page_count,
              bool store_pages)
      : layer(output, static_cast<Index>(info.layers.size())),
        n_heads(static_cast<Index>(info.q_heads.size())),
        n_kv(static_cast<Index>(info.kv_heads.size())),
        n_steps(step_count),
        n_pages(page_count),
        has_pages(store_pages) {}

  template <class T>
  Tensor<T>& per_head(const std::string& name, const char* units, const char* text) {
    return layer.add<T>(name, {n_heads, n_steps}, {"q_head", "step"}, units, text);
  }
  /// Null where the pages are not stored.
  template <class T>
  Tensor<T>* per_page(const std::string& name, const char* text, T fill = T{}) {
    if (!has_pages) return nullptr;
    return &layer.add<T>(name, {n_heads, n_steps, n_pages}, {"q_head", "step", "page"}, "1", text,
                         fill);
  }

  LayerArrays layer;
  Index n_heads, n_kv, n_steps, n_pages;
  bool has_pages;

  Tensor<float>& gap_mean =
      per_head<float>("gap_mean", "logit", "bound minus true page maximum, page mean");
  Tensor<float>& gap_best =
      per_head<float>("gap_best", "logit", "bound minus true maximum at the best page");
  Tensor<float>& rank_correlation =
      per_head<float>("rank_correlation", "1", "Spearman, bound against true page maximum");
  Tensor<std::int32_t>& best_rank =
      per_head<std::int32_t>("best_rank", "1", "place of the truly best page by the bound");
  Tensor<std::int32_t>& violations =
      per_head<std::int32_t>("violations", "page", "pages whose bound is below their maximum");

  /// What one semantics gives.
  struct Kept {
    Kept(QuestArrays& arrays, std::string_view semantics) : all(arrays), name(semantics) {}
    QuestArrays& all;
    std::string name;
    Tensor<float>& mass =
        all.per_head<float>(name + "/mass", "1", "attention mass on the selected pages");
    Tensor<float>& recall =
        all.per_head<float>(name + "/recall", "1", "share of the ten heaviest keys selected");
    Tensor<std::int32_t>& pages =
        all.per_head<std::int32_t>(name + "/pages", "page", "selected pages");
    Tensor<std::int32_t>& loaded =
        all.per_head<std::int32_t>(name + "/loaded", "token", "tokens loaded per query head");
    Tensor<std::uint8_t>& best_kept =
        all.per_head<std::uint8_t>(name + "/best_kept", "1", "the truly best page is selected");
    Tensor<std::int32_t>& union_loaded = all.layer.add<std::int32_t>(
        name + "/union_loaded", {all.n_kv, all.n_steps}, {"kv_head", "step"}, "token",
        "tokens loaded per KV head (union over its query heads)");
    Tensor<std::uint8_t>* selected =
        all.per_page<std::uint8_t>(name + "/selected", "page selected");
  };
  std::array<Kept, kN> kept{Kept(*this, kQuestSemanticsNames[0]),
                            Kept(*this, kQuestSemanticsNames[1])};

  Tensor<float>* bound = per_page<float>("bound", "upper bound on q.k over the page", kNanF);
  Tensor<float>* true_max = per_page<float>("true_max", "largest q.k of the page", kNanF);
  Tensor<std::uint8_t>* violated =
      per_page<std::uint8_t>("violated", "1 if the bound is below the largest q.k");

  /// Files the outcome of one group and step; `first_head` is the slot of the group's first query
  /// head.
  void store(const QuestGroupStep& group, Index kv_slot, Index first_head, Index step) {
    for (std::size_t h = 0; h < group.heads.size(); ++h) {
      const QuestHeadStep& head = group.heads[h];
      const Index slot = first_head + static_cast<Index>(h);
      gap_mean(slot, step) = static_cast<float>(head.gap_mean);
      gap_best(slot, step) = static_cast<float>(head.gap_best);
      rank_correlation(slot, step) = static_cast<float>(head.rank_correlation);
      best_rank(slot, step) = static_cast<std::int32_t>(head.best_rank);
      violations(slot, step) = static_cast<std::int32_t>(head.violations);
      for (std::size_t p = 0; has_pages && p < head.bound.size(); ++p) {
        const Index page = head.first_page + static_cast<Index>(p);
        (*bound)(slot, step, page) = static_cast<float>(head.bound[p]);
        (*true_max)(slot, step, page) = static_cast<float>(head.true_max[p]);
        (*violated)(slot, step, page) = head.violated[p];
      }
      for (std::size_t s = 0; s < kN; ++s) {
        const QuestKept& from = head.kept[s];
        kept[s].mass(slot, step) = static_cast<float>(from.mass);
        kept[s].recall(slot, step) = static_cast<float>(from.recall);
        kept[s].pages(slot, step) = static_cast<std::int32_t>(from.pages.size());
        kept[s].loaded(slot, step) = static_cast<std::int32_t>(from.loaded);
        kept[s].best_kept(slot, step) = from.best_kept;
        if (!has_pages) continue;
        for (Index page : from.pages) (*kept[s].selected)(slot, step, page) = 1;
      }
    }
    for (std::size_t s = 0; s < kN; ++s) {
      kept[s].union_loaded(kv_slot, step) = static_cast<std::int32_t>(group.union_loaded[s]);
    }
  }
};

/// Means and counts over the (head, step) pairs of some layers.
struct BoundsTally {
  std::int64_t rows = 0;
  std::int64_t violations = 0;
  Mean gap_mean, gap_best, rank_correlation, best_first;
  struct Kept {
    Mean mass, recall, best_kept;
    std::int64_t loaded = 0;        // per query head
    std::int64_t union_loaded = 0;  // per KV head
  };
  std::array<Kept, kN> kept;
  std::int64_t available = 0;        // visible tokens, per query head
  std::int64_t union_available = 0;  // visible tokens, per KV head

  void add(const QuestArrays& layer, std::span<const std::int64_t> visible) {
    for (std::size_t step = 0; step < visible.size(); ++step) {
      const auto t = static_cast<Index>(step);
      for (Index head = 0; head < layer.gap_mean.dim(0); ++head) {
        ++rows;
        violations += layer.violations(head, t);
        gap_mean.add(layer.gap_mean(head, t));
        gap_best.add(layer.gap_best(head, t));
        rank_correlation.add(layer.rank_correlation(head, t));
        best_first.add(layer.best_rank(head, t) == 0 ? 1.0 : 0.0);
        available += visible[step];
        for (std::size_t s = 0; s < kN; ++s) {
          kept[s].mass.add(layer.kept[s].mass(head, t));
          kept[s].recall.add(layer.kept[s].recall(head, t));
          kept[s].best_kept.add(layer.kept[s].best_kept(head, t));
          kept[s].loaded += layer.kept[s].loaded(head, t);
        }
      }
      for (Index kv = 0; kv < layer.kept[0].union_loaded.dim(0); ++kv) {
        union_available += visible[step];
        for (std::size_t s = 0; s < kN; ++s) {
          kept[s].union_loaded += layer.kept[s].union_loaded(kv, t);
        }
      }
    }
  }

  nlohmann::ordered_json to_json() const {
    const auto reduction = [](std::int64_t loaded, std::int64_t all) {
      return json_number(1.0 - static_cast<double>(loaded) / static_cast<double>(all));
    };
    nlohmann::ordered_json json;
    json["rows"] = rows;
    json["violations"] = violations;
    json["gap_mean"] = json_number(gap_mean.value());
    json["gap_best"] = json_number(gap_best.value());
    json["rank_correlation"] = json_number(rank_correlation.value());
    json["best_page_ranked_first"] = json_number(best_first.value());
    for (std::size_t s = 0; s < kN; ++s) {
      const std::string name(kQuestSemanticsNames[s]);
      json[name + "_mass"] = json_number(kept[s].mass.value());
      json[name + "_recall_top10"] = json_number(kept[s].recall.value());
      json[name + "_best_page_kept"] = json_number(kept[s].best_kept.value());
      json[name + "_reduction_per_q_head"] = reduction(kept[s].loaded, available);
      json[name + "_reduction_per_kv_head"] = reduction(kept[s].union_loaded, union_available);
    }
    return json;
  }
};

/// Adds the plots of the result file.
void add_plots(ResultWriter& output, bool store_pages) {
  const std::vector<std::string> axes = {"layer", "q_head", "step_pos"};
  output.add_plot({"plot_gap", "gap_mean", axes, "How far Quest's bound exceeds the page maximum"});
  for (std::string_view semantics : kQuestSemanticsNames) {
    const std::string s(semantics);
    output.add_plot(
        {"plot_mass_" + s, s + "/mass", axes, "Mass on the selected pages (" + s + ")"});
    output.add_plot({"plot_recall_" + s, s + "/recall", axes, "Top-10 recall (" + s + ")"});
  }
  if (!store_pages) return;
  const std::vector<std::string> page_axes = {"layer", "q_head", "step_pos", "page"};
  output.add_plot({"plot_bound", "bound", page_axes, "Quest's upper bound per page"});
  output.add_plot({"plot_true_max", "true_max", page_axes, "True maximum of q.k per page"});
}

}  // namespace

nlohmann::ordered_json analyze_quest(const TraceSource& trace, const QuestOptions& options,
                                     ResultWriter& output, ThreadPool& pool,
                                     const ProgressFn& progress, std::stop_token stop,
                                     const ResultProvenance& provenance) {
  check_fields(options);
  require_full_qkv(trace, "quest");
  require_whole_groups(trace.info(), "quest");
  const TraceInfo& info = trace.info();
  const std::vector<Index> step_pos = quest_step_positions(trace, options);
  const auto n_steps = static_cast<Index>(step_pos.size());
  const Index n_pages = (info.n_tokens - 1) / options.page_size + 1;
  const TraceSource* const traces[] = {&trace};
  output.begin(make_result_info("quest", traces, fields_to_json(options), provenance));
  write_head_axes(output, info);
  write_axis(output, "step_pos", step_pos, "token", "position of the step");
  if (options.store_pages) {
    std::vector<Index> numbers(static_cast<std::size_t>(n_pages));
    std::iota(numbers.begin(), numbers.end(), Index{0});
    write_axis(output, "page", numbers, "page", "page");
  }
  QuestArrays arrays(output, info, n_steps, n_pages, options.store_pages);

  nlohmann::ordered_json summary;
  summary["layers"] = nlohmann::ordered_json::array();
  BoundsTally sparse;
  BoundsTally all;
  std::int64_t violations = 0;
  const auto n_layers = static_cast<Index>(info.layers.size());
  for (Index slot = 0; slot < n_layers; ++slot) {
    const Index layer = info.layers[static_cast<std::size_t>(slot)];
    const auto window = window_of(info, layer);
    arrays.layer.clear();
    const bool is_known = arrays.layer.load(slot);
    for (std::size_t kv_slot = 0; !is_known && kv_slot < info.kv_heads.size(); ++kv_slot) {
      const Index first_head = static_cast<Index>(kv_slot) * info.group();
      for_each_quest_step(trace, options, layer, kv_slot, step_pos, pool, stop,
                          [&](Index step, const QuestGroupStep& group) {
                            arrays.store(group, static_cast<Index>(kv_slot), first_head, step);
                          });
    }
    arrays.layer.write(slot);

    std::vector<std::int64_t> visible;
    for (Index pos : step_pos) visible.push_back(visible_keys(pos, window).size());
    BoundsTally tally;
    tally.add(arrays, visible);
    all.add(arrays, visible);
    violations += tally.violations;
    if (layer >= options.dense_layers) sparse.add(arrays, visible);
    nlohmann::ordered_json entry;
    entry["layer"] = layer;
    entry["dense"] = layer < options.dense_layers;
    entry.update(tally.to_json());
    summary["layers"].push_back(entry);
    if (progress) progress({"quest", slot + 1, n_layers, "layers"});
  }

  // the reduction of the whole model counts the dense layers as loaded in full
  summary["totals"] = sparse.to_json();
  summary["totals"]["violations"] = violations;
  summary["totals"]["steps"] = n_steps;
  for (std::size_t s = 0; s < kN; ++s) {
    const std::int64_t saved = sparse.union_available - sparse.kept[s].union_loaded;
    const double share = static_cast<double>(saved) / static_cast<double>(all.union_available);
    summary["totals"][std::string(kQuestSemanticsNames[s]) +
                      "_reduction_per_kv_head_with_dense_layers"] = json_number(share);
  }
  add_plots(output, options.store_pages);
  output.finish(summary);
  return summary;
}

}  // namespace kvscope
