#include "analysis/kinds/quest_step.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "analysis/base/analysis.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/attention/exact_rows.hpp"
#include "core/attention/topk.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

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

}  // namespace

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
  SelectCall call{.layer = question.layer,
                  .phase = Phase::decode,
                  .pos_begin = question.pos,
                  .n_tok = 1,
                  .score_scale = static_cast<float>(scale),
                  .score_cap = static_cast<float>(cap),
                  .window = question.window,
                  .q = question.q,
                  .k = k,
                  .budget = budget_,
                  .engine = &engine_,
                  .trace = &trace};
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
  const PageTable& table = engine_.pages(question.layer, 0, k.sub(0), page_size_, kExactBoxes);
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

}  // namespace kvscope
