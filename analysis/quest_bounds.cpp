#include "analysis/quest_bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "analysis/quest_step.hpp"
#include "analysis/statistics.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kN = kQuestSemantics.size();

std::vector<Index> choose_steps(const TraceSource& trace, const QuestOptions& options) {
  const TraceInfo& info = trace.info();
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 0, info.n_tokens);
  const bool has_decoded = n_prompt < info.n_tokens;
  const bool decoded = options.step_source == StepSource::decode ||
                       (options.step_source == StepSource::automatic && has_decoded);
  const std::vector<Index> steps = decoded ? evenly_spaced(n_prompt, info.n_tokens, options.steps)
                                           : evenly_spaced(0, n_prompt, options.steps);
  if (steps.empty()) {
    throw ConfigError(fmt::format(
        "quest: expected {} positions to look at, but {} holds {} prompt "
        "and {} decoded tokens",
        decoded ? "decoded" : "prompt", trace.where(), n_prompt, info.n_tokens - n_prompt));
  }
  return steps;
}

/// What one semantics gives in one layer.
struct KeptArrays {
  Tensor<float> mass, recall;                // [q_head, step]
  Tensor<std::int32_t> pages, loaded;        // [q_head, step]
  Tensor<std::uint8_t> best_kept, selected;  // [q_head, step], [q_head, step, page]
  Tensor<std::int32_t> union_loaded;         // [kv_head, step]
};

/// All arrays of one layer.
struct LayerArrays {
  LayerArrays(const TraceInfo& info, Index n_steps, Index n_pages, bool store_pages) {
    const auto n_q = static_cast<Index>(info.q_heads.size());
    const auto n_kv = static_cast<Index>(info.kv_heads.size());
    const Shape heads{n_q, n_steps};
    for (Tensor<float>* t : {&gap_mean, &gap_best, &rank_correlation}) *t = Tensor<float>(heads);
    best_rank = Tensor<std::int32_t>(heads);
    violations = Tensor<std::int32_t>(heads);
    const Shape pages{n_q, n_steps, store_pages ? n_pages : 0};
    bound = Tensor<float>(pages);
    true_max = Tensor<float>(pages);
    violated = Tensor<std::uint8_t>(pages);
    std::fill(bound.flat().begin(), bound.flat().end(), kNanF);
    std::fill(true_max.flat().begin(), true_max.flat().end(), kNanF);
    for (KeptArrays& k : kept) {
      k.mass = Tensor<float>(heads);
      k.recall = Tensor<float>(heads);
      k.pages = Tensor<std::int32_t>(heads);
      k.loaded = Tensor<std::int32_t>(heads);
      k.best_kept = Tensor<std::uint8_t>(heads);
      k.selected = Tensor<std::uint8_t>(pages);
      k.union_loaded = Tensor<std::int32_t>(Shape{n_kv, n_steps});
    }
  }

  /// Files the outcome of one group and step; `first_head` is the slot of the group's first query
  /// head.
  void store(const QuestGroupStep& group, Index kv_slot, Index first_head, Index step,
             bool store_pages) {
    for (std::size_t h = 0; h < group.heads.size(); ++h) {
      const QuestHeadStep& head = group.heads[h];
      const Index slot = first_head + static_cast<Index>(h);
      gap_mean(slot, step) = static_cast<float>(head.gap_mean);
      gap_best(slot, step) = static_cast<float>(head.gap_best);
      rank_correlation(slot, step) = static_cast<float>(head.rank_correlation);
      best_rank(slot, step) = static_cast<std::int32_t>(head.best_rank);
      violations(slot, step) = static_cast<std::int32_t>(head.violations);
      for (std::size_t p = 0; store_pages && p < head.bound.size(); ++p) {
        const Index page = head.first_page + static_cast<Index>(p);
        bound(slot, step, page) = static_cast<float>(head.bound[p]);
        true_max(slot, step, page) = static_cast<float>(head.true_max[p]);
        violated(slot, step, page) = head.violated[p];
      }
      for (std::size_t s = 0; s < kN; ++s) {
        const QuestKept& from = head.kept[s];
        kept[s].mass(slot, step) = static_cast<float>(from.mass);
        kept[s].recall(slot, step) = static_cast<float>(from.recall);
        kept[s].pages(slot, step) = static_cast<std::int32_t>(from.pages.size());
        kept[s].loaded(slot, step) = static_cast<std::int32_t>(from.loaded);
        kept[s].best_kept(slot, step) = from.best_kept;
        if (!store_pages) continue;
        for (Index page : from.pages) kept[s].selected(slot, step, page) = 1;
      }
    }
    for (std::size_t s = 0; s < kN; ++s) {
      kept[s].union_loaded(kv_slot, step) = static_cast<std::int32_t>(group.union_loaded[s]);
    }
  }

  Tensor<float> gap_mean, gap_best, rank_correlation;  // [q_head, step]
  Tensor<std::int32_t> best_rank, violations;          // [q_head, step]
  Tensor<float> bound, true_max;                       // [q_head, step, page]
  Tensor<std::uint8_t> violated;                       // [q_head, step, page]
  std::array<KeptArrays, kN> kept;
};

/// Means and counts over the (head, step) pairs of some layers.
struct Tally {
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

  void add(const LayerArrays& layer, std::span<const std::int64_t> visible) {
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

void declare_arrays(ResultSink& sink, const TraceInfo& info, std::span<const Index> step_pos,
                    Index n_pages, bool store_pages) {
  write_head_axes(sink, info);
  write_axis(sink, "step_pos", step_pos, "token", "position of the step");
  const auto n_layers = static_cast<Index>(info.layers.size());
  const auto n_steps = static_cast<Index>(step_pos.size());
  const Shape heads{n_layers, static_cast<Index>(info.q_heads.size()), n_steps};
  const Shape groups{n_layers, static_cast<Index>(info.kv_heads.size()), n_steps};
  const Shape pages{heads[0], heads[1], heads[2], n_pages};
  const auto per_head = [&](const std::string& name, ResultType type, std::string units,
                            std::string long_name) {
    sink.declare({name, type, heads, {"layer", "q_head", "step"}, units, long_name});
  };
  const auto per_page = [&](const std::string& name, ResultType type, std::string long_name) {
    sink.declare({name, type, pages, {"layer", "q_head", "step", "page"}, "1", long_name});
  };
  per_head("gap_mean", ResultType::f32, "logit", "bound minus true page maximum, page mean");
  per_head("gap_best", ResultType::f32, "logit", "bound minus true maximum at the best page");
  per_head("rank_correlation", ResultType::f32, "1", "Spearman, bound against true page maximum");
  per_head("best_rank", ResultType::i32, "1", "place of the truly best page by the bound");
  per_head("violations", ResultType::i32, "page", "pages whose bound is below their maximum");
  for (std::string_view semantics : kQuestSemanticsNames) {
    const std::string s = std::string(semantics) + "/";
    per_head(s + "mass", ResultType::f32, "1", "attention mass on the selected pages");
    per_head(s + "recall", ResultType::f32, "1", "share of the ten heaviest keys selected");
    per_head(s + "pages", ResultType::i32, "page", "selected pages");
    per_head(s + "loaded", ResultType::i32, "token", "tokens loaded per query head");
    per_head(s + "best_kept", ResultType::u8, "1", "the truly best page is selected");
    sink.declare({s + "union_loaded",
                  ResultType::i32,
                  groups,
                  {"layer", "kv_head", "step"},
                  "token",
                  "tokens loaded per KV head (union over its query heads)"});
    if (store_pages) per_page(s + "selected", ResultType::u8, "page selected");
  }
  if (store_pages) {
    per_page("bound", ResultType::f32, "upper bound on q.k over the page");
    per_page("true_max", ResultType::f32, "largest q.k of the page");
    per_page("violated", ResultType::u8, "1 if the bound is below the largest q.k");
    std::vector<Index> numbers;
    for (Index page = 0; page < n_pages; ++page) numbers.push_back(page);
    write_axis(sink, "page", numbers, "page", "page");
  }
}

void write_layer(ResultSink& sink, Index slot, const LayerArrays& layer, bool store_pages) {
  sink.write<float>("gap_mean", slot, layer.gap_mean.flat());
  sink.write<float>("gap_best", slot, layer.gap_best.flat());
  sink.write<float>("rank_correlation", slot, layer.rank_correlation.flat());
  sink.write<std::int32_t>("best_rank", slot, layer.best_rank.flat());
  sink.write<std::int32_t>("violations", slot, layer.violations.flat());
  for (std::size_t s = 0; s < kN; ++s) {
    const std::string name = std::string(kQuestSemanticsNames[s]) + "/";
    sink.write<float>(name + "mass", slot, layer.kept[s].mass.flat());
    sink.write<float>(name + "recall", slot, layer.kept[s].recall.flat());
    sink.write<std::int32_t>(name + "pages", slot, layer.kept[s].pages.flat());
    sink.write<std::int32_t>(name + "loaded", slot, layer.kept[s].loaded.flat());
    sink.write<std::uint8_t>(name + "best_kept", slot, layer.kept[s].best_kept.flat());
    sink.write<std::int32_t>(name + "union_loaded", slot, layer.kept[s].union_loaded.flat());
    if (store_pages) {
      sink.write<std::uint8_t>(name + "selected", slot, layer.kept[s].selected.flat());
    }
  }
  if (store_pages) {
    sink.write<float>("bound", slot, layer.bound.flat());
    sink.write<float>("true_max", slot, layer.true_max.flat());
    sink.write<std::uint8_t>("violated", slot, layer.violated.flat());
  }
}

/// Adds the plots of the result file.
void add_plots(ResultSink& sink, bool store_pages) {
  const std::vector<std::string> axes = {"layer", "q_head", "step_pos"};
  sink.add_plot({"plot_gap", "gap_mean", axes, "How far Quest's bound exceeds the page maximum"});
  for (std::string_view semantics : kQuestSemanticsNames) {
    const std::string s(semantics);
    sink.add_plot({"plot_mass_" + s, s + "/mass", axes, "Mass on the selected pages (" + s + ")"});
    sink.add_plot({"plot_recall_" + s, s + "/recall", axes, "Top-10 recall (" + s + ")"});
  }
  if (!store_pages) return;
  const std::vector<std::string> page_axes = {"layer", "q_head", "step_pos", "page"};
  sink.add_plot({"plot_bound", "bound", page_axes, "Quest's upper bound per page"});
  sink.add_plot({"plot_true_max", "true_max", page_axes, "True maximum of q.k per page"});
}

}  // namespace

nlohmann::ordered_json analyze_quest(const TraceSource& trace, const QuestOptions& options,
                                     ResultSink& sink, ThreadPool& pool, const ProgressFn& progress,
                                     std::stop_token stop, const ResultProvenance& provenance) {
  check_fields(options);
  require_full_qkv(trace, "quest");
  require_whole_groups(trace.info(), "quest");
  const TraceInfo& info = trace.info();
  const std::vector<Index> step_pos = choose_steps(trace, options);
  const auto n_steps = static_cast<Index>(step_pos.size());
  const Index n_pages = (info.n_tokens - 1) / options.page_size + 1;
  const TraceSource* const traces[] = {&trace};
  sink.begin(make_result_info("quest", traces, fields_to_json(options), provenance));
  declare_arrays(sink, info, step_pos, n_pages, options.store_pages);

  nlohmann::ordered_json summary;
  summary["layers"] = nlohmann::ordered_json::array();
  Tally sparse;
  Tally all;
  std::int64_t violations = 0;
  std::deque<QuestStepper> steppers;  // one per thread
  for (int i = 0; i < pool.n_threads(); ++i) steppers.emplace_back(options);
  const auto n_layers = static_cast<Index>(info.layers.size());
  for (Index slot = 0; slot < n_layers; ++slot) {
    const Index layer = info.layers[static_cast<std::size_t>(slot)];
    const auto window = window_of(info, layer);
    LayerArrays arrays(info, n_steps, n_pages, options.store_pages);
    for (std::size_t kv_slot = 0; kv_slot < info.kv_heads.size(); ++kv_slot) {
      check_stop(stop, "quest");
      const Tensor<float> k = trace.read_k(layer, info.kv_heads[kv_slot], {0, info.n_tokens});
      const KeyTable keys(k.view());
      for (QuestStepper& stepper : steppers) stepper.forget_keys();
      const Index first_head = static_cast<Index>(kv_slot) * info.group();
      const TokenRange asked{step_pos.front(), step_pos.back() + 1};
      auto q = Tensor<float>::uninitialized({info.group(), asked.size(), info.d_head});
      for (Index r = 0; r < info.group(); ++r) {
        const Index q_head = info.q_heads[static_cast<std::size_t>(first_head + r)];
        const Tensor<float> rows = trace.read_q(layer, q_head, asked);
        std::copy_n(rows.data(), rows.count(), q.sub(r).data());
      }
      pool.parallel_for(n_steps, [&](Index step, int worker) {
        check_stop(stop, "quest");
        const Index pos = step_pos[static_cast<std::size_t>(step)];
        const Index row = pos - asked.begin;
        const QuestGroupStep group = steppers[static_cast<std::size_t>(worker)].measure(
            {.layer = layer,
             .pos = pos,
             .q = q.view().range(1, row, row + 1),
             .k = k.view(),
             .keys = keys,
             .window = window,
             .scale = info.score_scale});
        arrays.store(group, static_cast<Index>(kv_slot), first_head, step, options.store_pages);
      });
    }
    write_layer(sink, slot, arrays, options.store_pages);

    std::vector<std::int64_t> visible;
    for (Index pos : step_pos) visible.push_back(visible_keys(pos, window).size());
    Tally tally;
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
  add_plots(sink, options.store_pages);
  sink.finish(summary);
  return summary;
}

}  // namespace kvscope
