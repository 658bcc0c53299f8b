#include "analysis/kinds/quest_bounds.hpp"

#include <numeric>

#include "analysis/base/columns.hpp"
#include "analysis/base/mapped.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/kinds/quest_step.hpp"
#include "core/attention/visible.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kN = kQuestSemantics.size();

/// What a semantics keeps, and what the totals call it.
std::string of(QuestSemantics semantics, const char* name) {
  return std::string(enum_name(semantics)) + name;
}

/// All arrays of one layer.
struct QuestArrays {
  QuestArrays(ResultWriter& output, const TraceInfo& info, Index n_steps, Index n_pages,
              bool store_pages)
      : columns(output, n_of(info.layers)),
        heads(columns, {n_of(info.q_heads), n_steps}, {"q_head", "step"}),
        kept{heads_kept(), heads_kept()},
        groups(columns, {n_of(info.kv_heads), n_steps}, {"kv_head", "step"}) {
    using Head = QuestHeadStep;
    using Kept = QuestKept;
    heads.add<std::int32_t>("violations", &Head::violations, "page",
                            "pages whose bound is below their maximum",
                            {{Total::count, "rows"}, {Total::sum, "violations"}});
    heads.add<float>("gap_mean", &Head::gap_mean, "logit",
                     "bound minus true page maximum, page mean", {{Total::mean, "gap_mean"}});
    heads.add<float>("gap_best", &Head::gap_best, "logit",
                     "bound minus true maximum at the best page", {{Total::mean, "gap_best"}});
    heads.add<float>("rank_correlation", &Head::rank_correlation, "1",
                     "Spearman, bound against true page maximum",
                     {{Total::mean, "rank_correlation"}});
    heads.add<std::int32_t>("best_rank", &Head::best_rank, "1",
                            "place of the truly best page by the bound",
                            {{Total::zeros, "best_page_ranked_first"}});
    for (const QuestSemantics s : kQuestSemantics) {
      auto& of_head = kept[static_cast<std::size_t>(s)];
      of_head.add<float>(of(s, "/mass"), &Kept::mass, "1", "attention mass on the selected pages",
                         {{Total::mean, of(s, "_mass")}});
      of_head.add<float>(of(s, "/recall"), &Kept::recall, "1",
                         "share of the ten heaviest keys selected",
                         {{Total::mean, of(s, "_recall_top10")}});
      of_head.add<std::uint8_t>(of(s, "/best_kept"), &Kept::best_kept, "1",
                                "the truly best page is selected",
                                {{Total::mean, of(s, "_best_page_kept")}});
      of_head.add<std::int32_t>(
          of(s, "/pages"), [](const Kept& one) { return one.pages.size(); }, "page",
          "selected pages");
      of_head.add<std::int32_t>(of(s, "/loaded"), &Kept::loaded, "token",
                                "tokens loaded per query head",
                                {{Total::saved, of(s, "_reduction_per_q_head")}});
      groups.add<std::int32_t>(
          of(s, "/union_loaded"),
          [s](const QuestGroupStep& one) { return one.union_loaded[static_cast<std::size_t>(s)]; },
          "token", "tokens loaded per KV head (union over its query heads)",
          {{Total::saved, of(s, "_reduction_per_kv_head")}});
    }
    if (!store_pages) return;
    const auto per_page = [&]<class T>(const std::string& name, const char* text, T fill) {
      return &columns.arrays.add<T>(name, {n_of(info.q_heads), n_steps, n_pages},
                                    {"q_head", "step", "page"}, "1", text, fill);
    };
    bound = per_page("bound", "upper bound on q.k over the page", kNanF);
    true_max = per_page("true_max", "largest q.k of the page", kNanF);
    violated = per_page("violated", "1 if the bound is below the largest q.k", std::uint8_t{0});
    for (const QuestSemantics s : kQuestSemantics) {
      selected[static_cast<std::size_t>(s)] =
          per_page(of(s, "/selected"), "page selected", std::uint8_t{0});
    }
  }
  ColumnsOf<QuestKept> heads_kept() { return {columns, heads.shape(), {"q_head", "step"}}; }

  LayerColumns columns;
  ColumnsOf<QuestHeadStep> heads;
  std::array<ColumnsOf<QuestKept>, kN> kept;
  ColumnsOf<QuestGroupStep> groups;
  // Null where the pages are not stored.
  Tensor<float>*bound = nullptr, *true_max = nullptr;
  Tensor<std::uint8_t>* violated = nullptr;
  std::array<Tensor<std::uint8_t>*, kN> selected{};

  /// Files the outcome of one group and step; `first_head` is the slot of the group's first query
  /// head.
  void store(const QuestGroupStep& group, Index kv_slot, Index first_head, Index step) const {
    groups.put(kv_slot, step, group);
    for (std::size_t h = 0; h < group.heads.size(); ++h) {
      const QuestHeadStep& head = group.heads[h];
      const Index slot = first_head + static_cast<Index>(h);
      heads.put(slot, step, head);
      for (std::size_t s = 0; s < kN; ++s) kept[s].put(slot, step, head.kept[s]);
      if (bound != nullptr) store_pages(head, slot, step);
    }
  }
  void store_pages(const QuestHeadStep& head, Index slot, Index step) const {
    for (std::size_t p = 0; p < head.bound.size(); ++p) {
      const Index page = head.first_page + static_cast<Index>(p);
      (*bound)(slot, step, page) = static_cast<float>(head.bound[p]);
      (*true_max)(slot, step, page) = static_cast<float>(head.true_max[p]);
      (*violated)(slot, step, page) = head.violated[p];
    }
    for (std::size_t s = 0; s < kN; ++s) {
      for (const Index page : head.kept[s].pages) (*selected[s])(slot, step, page) = 1;
    }
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

Json analyze_quest(const TraceSource& trace, const QuestOptions& options, const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, "quest");
  require_one_shape(trace.info(), "quest");
  require_whole_groups(trace.info(), "quest");
  const TraceInfo& info = trace.info();
  const std::vector<Index> step_pos = quest_step_positions(trace, options);
  const auto n_steps = static_cast<Index>(step_pos.size());
  const Index n_pages = (info.n_tokens - 1) / options.page_size + 1;
  run.begin("quest", trace, fields_to_json(options));
  write_head_axes(run.output, info);
  write_axis(run.output, "step_pos", step_pos, "token", "position of the step");
  if (options.store_pages) {
    std::vector<Index> numbers(static_cast<std::size_t>(n_pages));
    std::iota(numbers.begin(), numbers.end(), Index{0});
    write_axis(run.output, "page", numbers, "page", "page");
  }
  QuestArrays arrays(run.output, info, n_steps, n_pages, options.store_pages);

  Totals sparse(arrays.columns);
  Totals all(arrays.columns);
  const auto measure = [&](Index, Index layer) {
    for (std::size_t kv_slot = 0; kv_slot < info.kv_heads.size(); ++kv_slot) {
      const Index first_head = static_cast<Index>(kv_slot) * info.group();
      for_each_quest_step(trace, options, layer, kv_slot, step_pos, run.pool, run.stop,
                          [&](Index step, const QuestGroupStep& group) {
                            arrays.store(group, static_cast<Index>(kv_slot), first_head, step);
                          });
    }
  };
  const auto summarize = [&](Index, Index layer, Json& entry) {
    std::vector<std::int64_t> visible;
    for (const Index pos : step_pos)
      visible.push_back(visible_keys(pos, info.window_of(layer)).size());
    Totals of_layer(arrays.columns);
    for (Totals* totals : {&of_layer, &all}) totals->add(visible);
    if (layer >= options.dense_layers) sparse.add(visible);
    entry["dense"] = layer < options.dense_layers;
    entry.update(of_layer.to_json());
  };
  Json summary;
  summary["layers"] =
      measure_layers("quest", info.layers, arrays.columns.arrays, run.progress, measure, summarize);

  // the reduction of the whole model counts the dense layers as loaded in full
  summary["totals"] = sparse.to_json();
  summary["totals"]["violations"] = all.sum_of("violations");
  summary["totals"]["steps"] = n_steps;
  for (const QuestSemantics s : kQuestSemantics) {
    const std::string key = of(s, "_reduction_per_kv_head");
    const std::int64_t saved = sparse.available_of(key) - sparse.sum_of(key);
    summary["totals"][key + "_with_dense_layers"] =
        json_number(static_cast<double>(saved) / static_cast<double>(all.available_of(key)));
  }
  add_plots(run.output, options.store_pages);
  return run.finish(std::move(summary));
}

}  // namespace kvscope
