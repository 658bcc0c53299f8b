#include "gui/model/bounds/quest_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analysis/figures/maps.hpp"
#include "analysis/quest_step.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

namespace {

QuestOptions options_of(const QuestRequest& request) {
  QuestOptions options;
  options.page_size = request.page_size;
  options.budget = request.budget;
  options.step_source = request.steps;
  options.dense_layers = 0;
  return options;
}

}  // namespace

std::string QuestRequest::key() const {
  return fmt::format("quest/{}/{}/{}/{}/{}", layer, q_head, page_size, budget, enum_name(steps));
}

Index QuestPages::n_kept(QuestSemantics semantics) const {
  const auto& kept = choice(semantics).kept;
  return std::accumulate(kept.begin(), kept.end(), Index{0});
}

TokenRange QuestPages::keys_of(std::size_t slot) const {
  const Index page = first_page + static_cast<Index>(slot);
  return {std::max(visible.begin, page * page_size), std::min(visible.end, (page + 1) * page_size)};
}

std::optional<std::size_t> QuestPages::slot_of(Index position) const {
  if (position < visible.begin || position >= visible.end) return std::nullopt;
  return static_cast<std::size_t>(position / page_size - first_page);
}

std::size_t QuestPages::best() const {
  return static_cast<std::size_t>(std::max_element(true_max.begin(), true_max.end()) -
                                  true_max.begin());
}

std::size_t QuestPages::bytes() const {
  return sizeof *this + n_pages() * (2 * sizeof(float) + 3);
}

std::size_t QuestSteps::n_points() const {
  std::size_t n = 0;
  for (const QuestPages& step : steps) n += step.n_pages();
  return n;
}

std::size_t QuestSteps::bytes() const {
  std::size_t bytes = sizeof *this;
  for (const QuestPages& step : steps) bytes += step.bytes();
  return bytes;
}

QuestSteps quest_steps(const TraceSource& trace, const QuestRequest& request, JobContext& job) {
  const TracePart part(trace, {{request.layer}, recorded_group_of(trace.info(), request.q_head)});
  const TraceInfo& info = part.info();
  const Index slot = info.q_slot(request.q_head);
  MemoryResult memory;
  analyze_quest(part, options_of(request), memory, job.pool, job.progress, job.stop);

  const MemoryResultView result(memory, trace.where());
  const figures::ArrayData bound(result, "bound");
  const figures::ArrayData true_max(result, "true_max");
  const figures::ArrayData violated(result, "violated");
  const auto per_head = [&](const std::string& name) { return figures::ArrayData(result, name); };
  const figures::ArrayData gap_mean = per_head("gap_mean");
  const figures::ArrayData gap_best = per_head("gap_best");
  const figures::ArrayData correlation = per_head("rank_correlation");
  const figures::ArrayData best_rank = per_head("best_rank");
  const figures::ArrayData violations = per_head("violations");

  QuestSteps out;
  out.trace = file_name_of(trace);
  out.request = request;
  out.scale = static_cast<double>(info.score_scale);
  const auto window = window_of(info, request.layer);
  const auto queries = memory.values<std::int64_t>("step_pos");
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto step = static_cast<Index>(i);
    QuestPages pages;
    pages.query = queries[i];
    pages.page_size = request.page_size;
    pages.visible = visible_keys(pages.query, window);
    pages.first_page = pages.visible.begin / pages.page_size;
    const Index end = (pages.visible.end - 1) / pages.page_size + 1;
    for (Index page = pages.first_page; page < end; ++page) {
      pages.bound.push_back(static_cast<float>(bound(0, slot, step, page)));
      pages.true_max.push_back(static_cast<float>(true_max(0, slot, step, page)));
      pages.violated.push_back(violated(0, slot, step, page) != 0.0 ? 1 : 0);
    }
    pages.gap_mean = gap_mean(0, slot, step);
    pages.gap_best = gap_best(0, slot, step);
    pages.rank_correlation = correlation(0, slot, step);
    pages.best_rank = static_cast<Index>(best_rank(0, slot, step));
    pages.violations = static_cast<Index>(violations(0, slot, step));
    out.violations += pages.violations;
    out.steps.push_back(std::move(pages));
  }
  for (std::size_t s = 0; s < kQuestSemantics.size(); ++s) {
    const std::string name(kQuestSemanticsNames[s]);
    const figures::ArrayData selected = per_head(name + "/selected");
    const figures::ArrayData mass = per_head(name + "/mass");
    const figures::ArrayData recall = per_head(name + "/recall");
    for (std::size_t i = 0; i < out.steps.size(); ++i) {
      QuestPages& pages = out.steps[i];
      QuestChoice& choice = pages.choices[s];
      const auto step = static_cast<Index>(i);
      choice.mass = mass(0, slot, step);
      choice.recall = recall(0, slot, step);
      for (std::size_t p = 0; p < pages.n_pages(); ++p) {
        const Index page = pages.first_page + static_cast<Index>(p);
        choice.kept.push_back(selected(0, slot, step, page) != 0.0 ? 1 : 0);
      }
    }
  }
  out.decoded = !out.steps.empty() && out.steps.front().query >= info.n_prompt;
  return out;
}

QuestQuery quest_query(const TraceSource& trace, const QuestRequest& request, Index query) {
  const TraceInfo& info = trace.info();
  info.layer_slot(request.layer);
  info.q_slot(request.q_head);
  if (query < info.rows.begin || query >= info.rows.end) {
    throw ConfigError(fmt::format(
        "{}: the query at position {} was not recorded, expected {} to {}; choose one of those",
        trace.where(), query, info.rows.begin, info.rows.end - 1));
  }
  const QuestOptions options = options_of(request);
  check_fields(options);
  const TokenRange visible = visible_keys(query, window_of(info, request.layer));
  // Pages are counted from position 0, so the keys before a window are read as well.
  const Tensor<float> k =
      trace.read_k(request.layer, request.q_head / info.group(), {0, visible.end});
  const Tensor<float> q = trace.read_q(request.layer, request.q_head, {query, query + 1});
  const KeyTable keys(k.view());
  QuestQuery out;
  out.trace = file_name_of(trace);
  out.request = request;
  out.scale = static_cast<double>(info.score_scale);
  const QuestGroupStep group =
      QuestStepper(options).measure({.layer = request.layer,
                                     .pos = query,
                                     .q = {q.data(), {1, 1, q.dim(1)}},
                                     .k = k.view(),
                                     .keys = keys,
                                     .window = window_of(info, request.layer),
                                     .score = info.score_rule()});
  const QuestHeadStep& head = group.heads[0];

  QuestPages& pages = out.pages;
  pages.query = query;
  pages.first_page = head.first_page;
  pages.page_size = options.page_size;
  pages.visible = visible;
  pages.bound.assign(head.bound.begin(), head.bound.end());
  pages.true_max.assign(head.true_max.begin(), head.true_max.end());
  pages.violated = head.violated;
  pages.gap_mean = head.gap_mean;
  pages.gap_best = head.gap_best;
  pages.rank_correlation = head.rank_correlation;
  pages.best_rank = head.best_rank;
  pages.violations = head.violations;
  for (std::size_t s = 0; s < kQuestSemantics.size(); ++s) {
    QuestChoice& choice = pages.choices[s];
    choice.mass = head.kept[s].mass;
    choice.recall = head.kept[s].recall;
    choice.kept.assign(pages.n_pages(), 0);
    for (const Index page : head.kept[s].pages) {
      choice.kept[static_cast<std::size_t>(page - head.first_page)] = 1;
    }
  }
  return out;
}

}  // namespace kvscope::gui
