#include "analysis/kinds/quest_bounds.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>

#include "analysis/base/columns.hpp"
#include "analysis/base/measure_layers.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/score_engine.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

/// Quest's two published programs, by the selector's names of how many pages a budget buys.
enum class QuestSemantics {
  eval,    // accuracy tables: at least three pages, and every page competes
  kernel,  // speed figures: the last page is always among them
};
constexpr std::array<QuestSemantics, 2> kQuestSemantics = {QuestSemantics::eval,
                                                           QuestSemantics::kernel};
constexpr auto kQuestSemanticsNames = EnumNames<QuestSemantics>::value;

/// What one selection keeps.
struct QuestKept {
  std::vector<Index> pages;  // absolute page numbers, ascending
  Index loaded = 0;          // visible tokens of those pages
  double mass = 0.0;         // true probability on them
  double recall = 0.0;       // share of the ten heaviest keys (fewer if fewer are visible)
  bool best_kept = false;    // the page with the truly largest score is among them
};

/// One query head in one step.
struct QuestHeadStep {
  Index first_page = 0;          // number of the first visible page
  std::vector<double> bound;     // U, unscaled, [n_pages]
  std::vector<double> true_max;  // max q.k over the page's visible keys, [n_pages]
  /// 1 where the bound is below the true maximum by more than rounding, [n_pages]
  std::vector<std::uint8_t> violated;
  Index violations = 0;   // how many those are
  double gap_mean = 0.0;  // mean of scale * (U - true maximum), logits before a soft cap
  double gap_best = 0.0;  // the same at the truly best page
  double rank_correlation = 0.0;
  Index best_rank = 0;            // 0 if the truly best page has the largest bound
  std::array<QuestKept, 2> kept;  // by kQuestSemantics
};

/// All heads of a KV group at position `pos`.
struct QuestGroupStep {
  std::vector<QuestHeadStep> heads;
  std::array<Index, 2> union_loaded{};  // tokens that the KV head must load for all its query heads
};

/// One KV group at one position. Keys are those of the KV head from position 0.
struct QuestQuestion {
  Index layer = 0;
  Index pos = 0;
  TensorView<const float> q;  // [group, 1, d_head]
  TensorView<const float> k;  // [> pos, d_head]
  const KeyTable& keys;       // of k
  std::optional<Index> window;
  ScoreRule score;
};

/// Asks the selector, for one thread. It keeps the boxes of one KV head's pages.
class QuestStepper {
 public:
  explicit QuestStepper(const QuestOptions& options);

  QuestGroupStep measure(const QuestQuestion& question);

 private:
  Index page_size_;
  Budget budget_;
  bool shares_lists_;
  std::unique_ptr<Selector> per_head_;                  // their own bounds, if they share lists
  std::array<std::unique_ptr<Selector>, 2> selectors_;  // by kQuestSemantics
  ScoreEngine engine_;
  ScoreRows rows_;
};

constexpr Index kRecallKeys = 10;  // the "top-10 recall" of Quest's figure 4
constexpr int kExactBoxes = 16;    // bits

/// Visible positions of a page.
TokenRange keys_of(Index page, Index page_size, TokenRange visible) {
  return {std::max(page * page_size, visible.begin), std::min((page + 1) * page_size, visible.end)};
}

std::span<const double> part_of(std::span<const double> row, TokenRange keys, TokenRange visible) {
  return row.subspan(static_cast<std::size_t>(keys.begin - visible.begin),
                     static_cast<std::size_t>(keys.size()));
}

/// The rounding error that a bound may carry: it and the dot products are f64 sums of at most d
/// exact f32 products, no larger than those of a box around the page.
double slack_of(std::span<const float> q, std::span<const float> box) {
  double magnitude = 0.0;
  for (std::size_t c = 0; c < q.size(); ++c) {
    const auto x = static_cast<double>(q[c]);
    magnitude += std::max(std::abs(x * static_cast<double>(box[c])),
                          std::abs(x * static_cast<double>(box[q.size() + c])));
  }
  return 2.0 * static_cast<double>(q.size()) * std::numeric_limits<double>::epsilon() * magnitude;
}

/// The pages that a position sees.
struct SeenPages {
  TokenRange visible;
  Index first = 0;
  Index page_size = 1;
  TensorView<const float> boxes;  // [n_pages, 2 * d_head] (high, low) of each
};

/// How the bounds of the pages compare with the pages' true maxima. dots: q.k of the visible keys.
QuestHeadStep measure_pages(std::span<const float> q, const SeenPages& pages,
                            std::vector<double> bounds, std::span<const double> dots,
                            double scale) {
  QuestHeadStep head;
  head.first_page = pages.first;
  head.bound = std::move(bounds);
  Mean gap;
  for (std::size_t p = 0; p < head.bound.size(); ++p) {
    const TokenRange keys =
        keys_of(pages.first + static_cast<Index>(p), pages.page_size, pages.visible);
    const double truth = max_of(part_of(dots, keys, pages.visible));
    const bool is_violated =
        head.bound[p] < truth - slack_of(q, pages.boxes.row(static_cast<Index>(p)));
    head.violated.push_back(is_violated ? 1 : 0);
    head.violations += is_violated ? 1 : 0;
    head.true_max.push_back(truth);
    gap.add(scale * (head.bound[p] - truth));
  }
  const Index best = arg_max(head.true_max);
  head.gap_mean = gap.value();
  head.gap_best = scale * (head.bound[static_cast<std::size_t>(best)] -
                           head.true_max[static_cast<std::size_t>(best)]);
  head.rank_correlation = spearman(head.bound, head.true_max);
  head.best_rank = rank_of(head.bound, best);
  return head;
}

/// Mass and recall of the pages that a list holds.
QuestKept measure_kept(const QuestHeadStep& head, const ListView& list, Index page_size,
                       TokenRange visible, std::span<const double> probs,
                       std::span<const Index> heaviest) {
  QuestKept kept;
  std::vector<char> is_kept(head.bound.size(), 0);
  for (const KeyPos key : list.keys) {
    const Index page = key / page_size;
    if (!kept.pages.empty() && kept.pages.back() == page) continue;
    kept.pages.push_back(page);
    kept.mass += sum_of(part_of(probs, keys_of(page, page_size, visible), visible));
    is_kept[static_cast<std::size_t>(page - head.first_page)] = 1;
  }
  kept.loaded = list.size();
  Index hits = 0;
  for (Index key : heaviest) {
    const Index page = (visible.begin + key) / page_size;
    hits += is_kept[static_cast<std::size_t>(page - head.first_page)];
  }
  kept.recall = static_cast<double>(hits) / static_cast<double>(heaviest.size());
  kept.best_kept = is_kept[static_cast<std::size_t>(arg_max(head.true_max))] != 0;
  return kept;
}

std::unique_ptr<Selector> make_quest(QuestSemantics semantics, GroupShared shared,
                                     Index page_size) {
  constexpr std::array<std::string_view, 3> kOwners = {"q_head", "group_max", "group_sum"};
  MethodSpec spec = "quest:dense-layers=0";
  spec.set("page-size", page_size);
  spec.set("pages", enum_name(semantics));
  spec.set("owner", kOwners[static_cast<std::size_t>(shared)]);  // a mean ranks as a sum does
  return spec.make();
}

QuestStepper::QuestStepper(const QuestOptions& options)
    : page_size_(options.page_size),
      budget_{Budget::Kind::tokens, static_cast<double>(options.budget)},
      shares_lists_(options.group_shared != GroupShared::none) {
  if (shares_lists_) per_head_ = make_quest(QuestSemantics::eval, GroupShared::none, page_size_);
  for (std::size_t s = 0; s < kQuestSemantics.size(); ++s)
    selectors_[s] = make_quest(kQuestSemantics[s], options.group_shared, page_size_);
}

QuestGroupStep QuestStepper::measure(const QuestQuestion& question) {
  const Index n_heads = question.q.dim(0);
  const TokenRange visible = visible_keys(question.pos, question.window);
  const auto [scale, cap] = question.score;
  const TensorView<const float> k(question.k.data(), {1, visible.end, question.k.dim(1)});
  SelectionTrace trace;
  SelectCall call{{.layer = question.layer,
                   .pos_begin = question.pos,
                   .n_tok = 1,
                   .score_scale = static_cast<float>(scale),
                   .score_cap = static_cast<float>(cap),
                   .q = question.q,
                   .k = k,
                   .window = question.window},
                  Phase::decode};
  call.budget = budget_;
  call.engine = &engine_;
  call.trace = &trace;
  std::array<Selection, 2> lists;
  if (shares_lists_) {
    per_head_->select(call);
    call.trace = nullptr;
  }
  for (std::size_t s = 0; s < lists.size(); ++s) {
    lists[s] = selectors_[s]->select(call);
    call.trace = nullptr;
  }

  std::vector<std::span<const float>> queries;
  for (Index h = 0; h < n_heads; ++h) queries.push_back(question.q.sub(h).row(0));
  rows_.compute(widened_rows(queries), n_heads, question.keys, visible);
  const PageTable& table =
      engine_.pages(question.layer, 0, k.sub(0), page_size_, PageBox(kExactBoxes));
  const SeenPages pages{visible, trace.scored.begin, page_size_,
                        table.rows().range(0, trace.scored.begin, trace.scored.end)};
  QuestGroupStep step;
  for (std::size_t h = 0; h < queries.size(); ++h) {
    step.heads.push_back(measure_pages(queries[h], pages, std::move(trace.scores[h]),
                                       rows_.row(static_cast<Index>(h), visible), scale));
  }
  std::array<std::vector<bool>, 2> is_loaded;
  for (auto& keys : is_loaded) keys.resize(static_cast<std::size_t>(visible.end), false);
  for (std::size_t h = 0; h < queries.size(); ++h) {
    const std::span<double> probs = rows_.row(static_cast<Index>(h), visible);
    const std::vector<Index> heaviest = top_k(probs, kRecallKeys);
    for (double& value : probs) value *= scale;
    soft_cap(probs, cap);
    softmax_in_place(probs);
    for (std::size_t s = 0; s < lists.size(); ++s) {
      const ListView list = lists[s].list(shares_lists_ ? 0 : static_cast<Index>(h), /*row=*/0);
      step.heads[h].kept[s] =
          measure_kept(step.heads[h], list, page_size_, visible, probs, heaviest);
      for (const KeyPos key : list.keys) is_loaded[s][static_cast<std::size_t>(key)] = true;
    }
  }
  for (std::size_t s = 0; s < lists.size(); ++s)
    step.union_loaded[s] = std::ranges::count(is_loaded[s], true);
  return step;
}

/// The positions that are looked at. Throws ConfigError if there is none.
std::vector<Index> quest_step_positions(const TraceSource& trace, const QuestOptions& options) {
  const TraceInfo& info = trace.info();
  const Index n_prompt = std::clamp<Index>(info.n_prompt, 0, info.n_tokens);
  const bool has_decoded = n_prompt < info.n_tokens;
  const bool decoded = options.step_source == StepSource::decode ||
                       (options.step_source == StepSource::automatic && has_decoded);
  const std::vector<Index> steps = decoded ? evenly_spaced(n_prompt, info.n_tokens, options.steps)
                                           : evenly_spaced(0, n_prompt, options.steps);
  if (steps.empty()) {
    throw ConfigError(
        "quest: expected {} positions to look at, but {} holds {} prompt and {} decoded tokens",
        decoded ? "decoded" : "prompt", trace.where(), n_prompt, info.n_tokens - n_prompt);
  }
  return steps;
}

/// Measures one KV group of a layer at these positions, ascending; `visit` gets the slot of each,
/// from several threads. The trace holds the group whole. Throws Interrupted on a stop.
void for_each_quest_step(const TraceSource& trace, const QuestOptions& options, Index layer,
                         std::size_t kv_slot, std::span<const Index> positions, ThreadPool& pool,
                         std::stop_token stop,
                         const std::function<void(Index, const QuestGroupStep&)>& visit) {
  check_stop(stop, "quest");
  const TraceInfo& info = trace.info();
  const auto window = info.window_of(layer);
  const Tensor<float> k = trace.read_k(layer, info.kv_heads[kv_slot], {0, info.n_tokens});
  const KeyTable keys(k.view());
  std::deque<QuestStepper> steppers;  // one per thread
  for (int i = 0; i < pool.n_threads(); ++i) steppers.emplace_back(options);
  const Index first_head = static_cast<Index>(kv_slot) * info.group();
  const TokenRange asked{positions.front(), positions.back() + 1};
  auto q = Tensor<float>::uninitialized({info.group(), asked.size(), info.d_head});
  for (Index r = 0; r < info.group(); ++r) {
    const Index q_head = info.q_heads[static_cast<std::size_t>(first_head + r)];
    const Tensor<float> rows = trace.read_q(layer, q_head, asked);
    std::copy_n(rows.data(), rows.count(), q.sub(r).data());
  }
  pool.parallel_for(static_cast<Index>(positions.size()), [&](Index step, int worker) {
    check_stop(stop, "quest");
    const Index pos = positions[static_cast<std::size_t>(step)];
    const Index row = pos - asked.begin;
    visit(step, steppers[static_cast<std::size_t>(worker)].measure(
                    {.layer = layer,
                     .pos = pos,
                     .q = q.view().range(1, row, row + 1),
                     .k = k.view(),
                     .keys = keys,
                     .window = window,
                     .score = info.shape(layer).score_rule()}));
  });
}

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
  if (options.store_pages) write_axis(run.output, "page", all_in(0, n_pages), "page", "page");
  QuestArrays arrays(run.output, info, n_steps, n_pages, options.store_pages);

  Totals sparse(arrays.columns);
  Totals all(arrays.columns);
  const auto n_windowed = std::ranges::count_if(
      info.layers, [&](Index layer) { return info.window_of(layer).has_value(); });
  const bool only_windows = n_windowed == std::ssize(info.layers);
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
    const bool is_left = layer < options.dense_layers || (info.window_of(layer) && !only_windows);
    if (!is_left) sparse.add(visible);
    entry["dense"] = is_left;
    entry.update(of_layer.to_json());
  };
  Json summary;
  summary["layers"] =
      measure_layers("quest", info.layers, arrays.columns.arrays, run.progress, measure, summarize);

  // the reduction of the whole model counts dense and windowed layers as loaded in full
  summary["totals"] = sparse.to_json();
  summary["totals"]["violations"] = all.sum_of("violations");
  summary["totals"]["steps"] = n_steps;
  summary["totals"]["windowed_layers"] = only_windows ? 0 : n_windowed;
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
