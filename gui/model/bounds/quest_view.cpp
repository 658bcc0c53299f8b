#include "gui/model/bounds/quest_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/kinds/quest_step.hpp"
#include "core/attention/visible.hpp"
#include "core/base/error.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

namespace {

QuestOptions options_of(const QuestRequest& request) {
  return {.page_size = request.page_size,
          .budget = request.budget,
          .step_source = request.steps,
          .dense_layers = 0};
}

QuestPages pages_of(const QuestHeadStep& head, Index query, Index page_size, TokenRange visible) {
  QuestPages pages{
      .query = query, .first_page = head.first_page, .page_size = page_size, .visible = visible};
  pages.bound.assign(head.bound.begin(), head.bound.end());
  pages.true_max.assign(head.true_max.begin(), head.true_max.end());
  pages.violated = head.violated;
  pages.gap_mean = head.gap_mean;
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
  return pages;
}

void measure_steps(const TraceSource& trace, const QuestOptions& options, JobContext& job,
                   QuestSteps& out) {
  const auto [layer, q_head] = std::pair{out.request.layer, out.request.q_head};
  const TracePart part(trace, {{layer}, recorded_group_of(trace.info(), q_head)});
  const TraceInfo& info = part.info();
  require_full_qkv(part, "quest");
  require_whole_groups(info, "quest");
  const auto slot = static_cast<std::size_t>(info.q_slot(q_head));
  const auto window = window_of(info, layer);
  const std::vector<Index> positions = quest_step_positions(part, options);
  out.decoded = positions.front() >= info.n_prompt;
  out.steps.resize(positions.size());
  for_each_quest_step(part, options, layer, /*kv_slot=*/0, positions, job.pool, job.stop,
                      [&](Index step, const QuestGroupStep& group) {
                        const auto i = static_cast<std::size_t>(step);
                        out.steps[i] = pages_of(group.heads[slot], positions[i], options.page_size,
                                                visible_keys(positions[i], window));
                      });
}

QuestPages query_pages(const TraceSource& trace, const QuestRequest& request,
                       const QuestOptions& options, Index query) {
  const TraceInfo& info = trace.info();
  info.layer_slot(request.layer);
  info.q_slot(request.q_head);
  if (query < info.rows.begin || query >= info.rows.end) {
    throw ConfigError(
        "{}: the query at position {} was not recorded, expected {} to {}; choose one of those",
        trace.where(), query, info.rows.begin, info.rows.end - 1);
  }
  const auto window = window_of(info, request.layer);
  const TokenRange visible = visible_keys(query, window);
  // Pages are counted from position 0, so the keys before a window are read as well.
  const Tensor<float> k =
      trace.read_k(request.layer, request.q_head / info.group(), {0, visible.end});
  const Tensor<float> q = trace.read_q(request.layer, request.q_head, {query, query + 1});
  const KeyTable keys(k.view());
  const QuestGroupStep group = QuestStepper(options).measure({.layer = request.layer,
                                                              .pos = query,
                                                              .q = {q.data(), {1, 1, q.dim(1)}},
                                                              .k = k.view(),
                                                              .keys = keys,
                                                              .window = window,
                                                              .score = info.score_rule()});
  return pages_of(group.heads[0], query, options.page_size, visible);
}

}  // namespace

std::string QuestRequest::key() const {
  return fmt::format("quest/{}/{}/{}/{}/{}", layer, q_head, page_size, budget,
                     query ? fmt::format("query{}", *query) : std::string(enum_name(steps)));
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
  return static_cast<std::size_t>(std::ranges::max_element(true_max) - true_max.begin());
}

std::size_t QuestSteps::n_points() const {
  std::size_t n = 0;
  for (const QuestPages& step : steps) n += step.n_pages();
  return n;
}

std::pair<const QuestPages*, std::size_t> QuestSteps::page(std::size_t n) const {
  for (const QuestPages& step : steps) {
    if (n < step.n_pages()) return {&step, n};
    n -= step.n_pages();
  }
  return {};
}

std::size_t QuestSteps::bytes() const {
  return sizeof *this + steps.size() * sizeof(QuestPages) + n_points() * (2 * sizeof(float) + 3);
}

QuestSteps quest_steps(const TraceSource& trace, const QuestRequest& request, JobContext& job) {
  const QuestOptions options = options_of(request);
  check_fields(options);
  QuestSteps out{.trace = file_name_of(trace),
                 .request = request,
                 .scale = static_cast<double>(trace.info().score_scale)};
  if (request.query) {
    out.steps = {query_pages(trace, request, options, *request.query)};
  } else {
    measure_steps(trace, options, job, out);
  }
  for (const QuestPages& pages : out.steps) out.violations += pages.violations;
  return out;
}

}  // namespace kvscope::gui
