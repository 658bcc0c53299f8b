#include "gui/model/compare/compare_sides.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/analysis.hpp"
#include "gui/model/session/methods.hpp"
#include "gui/model/traces/trace_part.hpp"

namespace kvscope::gui {

namespace {

std::string label_of(const MethodSpec& spec, const std::optional<Budget>& budget) {
  return budget ? fmt::format("{}, {}", spec, budget->to_string()) : spec.text();
}

CompareSide make_side(const Session& session, std::shared_ptr<const Document> document,
                      std::shared_ptr<const Document> draft, const MethodSpec& method,
                      const Parameters& parameters) {
  CompareSide side{.document = std::move(document),
                   .draft = std::move(draft),
                   .request = kept_request(session, method, parameters)};
  side.label = label_of(side.request.spec, side.request.budget);
  return side;
}

/// Why a side cannot answer; empty if it can.
std::string problem_of(const CompareSide& side) {
  const TraceInfo& info = side.document->info();
  if (!info.capture.qkv) {
    return fmt::format("{} holds no q, k and v: record it again with them (--capture qkv).",
                       side.document->name());
  }
  if (!info.has_layer(side.request.layer) || !info.has_q_head(side.request.q_head)) {
    return fmt::format("{} holds no layer {}, query head {}: choose another one.",
                       side.document->name(), side.request.layer, side.request.q_head);
  }
  const std::string why = obstacle(side.request.spec, side.request.phase, side.draft != nullptr);
  if (!why.empty()) return why;
  if (side.window()) {
    return fmt::format(
        "Layer {} of {} attends to a sliding window, which every method leaves as it is: choose a "
        "layer with full attention.",
        side.request.layer, side.document->name());
  }
  return {};
}

std::string different_tokens(const CompareSides& sides, Index n_common) {
  return fmt::format(
      "The traces hold the same tokens up to position {} only: choose a query before it, or "
      "record {} with the text of {}.",
      n_common - 1, sides.b.document->name(), sides.a.document->name());
}

void place_in_second(CompareSides& sides, const CompareOptions& options) {
  const TraceInfo& a = sides.a.document->info();
  const TraceInfo& b = sides.b.document->info();
  sides.b.request.layer =
      options.own_head ? options.other_layer
                       : matching_index(sides.a.request.layer, a.n_layers, b.n_layers, b.layers);
  sides.b.request.q_head = options.own_head
                               ? options.other_head
                               : matching_index(sides.a.request.q_head, a.n_q, b.n_q, b.q_heads);
  // The same queries on both sides.
  sides.a.request.rows_per_chunk = sides.b.request.rows_per_chunk =
      rows_per_chunk_for(std::max(a.n_tokens, b.n_tokens));
  const auto label = [&](const CompareSide& side) {
    return fmt::format("{}, layer {}, head {}", side.document->name(), side.request.layer,
                       side.request.q_head);
  };
  sides.a.label = label(sides.a);
  sides.b.label = label(sides.b);
}

}  // namespace

std::string CompareSide::key() const {
  return documents_key(*document, draft.get()) + request.key();
}

std::optional<Index> CompareSide::window() const {
  return window_of(document->info(), request.layer);
}

Index matching_index(Index of_a, Index n_a, Index n_b, const std::vector<Index>& recorded_b) {
  const double depth = n_a > 1 ? static_cast<double>(of_a) / static_cast<double>(n_a - 1) : 0.0;
  const Index wanted = n_a == n_b ? of_a : std::lround(depth * static_cast<double>(n_b - 1));
  return nearest(recorded_b, wanted);
}

CompareSides compare_sides(const Session& session, const CompareOptions& options) {
  const Selection& s = session.selection();
  const Parameters& parameters = session.parameters();
  CompareSides sides;
  sides.query = s.query;
  const auto of_selected = [&](const MethodSpec& method, const Parameters& with) {
    return make_side(session, session.document(), session.draft_for(method), method, with);
  };
  sides.a = of_selected(s.selector, parameters);
  switch (options.what) {
    case CompareWhat::methods:
      sides.b = of_selected(s.other, parameters);
      break;
    case CompareWhat::budgets: {
      Parameters other = parameters;
      other.budget = options.other_budget;
      other.nucleus = options.other_nucleus;
      sides.b = of_selected(s.selector, other);
      break;
    }
    case CompareWhat::traces: {
      sides.b = make_side(session, session.second(), nullptr, s.selector, parameters);
      place_in_second(sides, options);
      const Index n_common =
          n_common_tokens(sides.a.document->source(), sides.b.document->source());
      if (n_common <= s.query) {
        sides.problem = n_common == 0
                            ? "The traces hold different tokens from the first position on: only "
                              "traces of the same text can be compared."
                            : different_tokens(sides, n_common);
        return sides;
      }
      break;
    }
  }
  const bool has_row_b = s.query < sides.b.document->info().n_tokens;
  sides.problem = problem_of(sides.a);
  if (sides.problem.empty()) sides.problem = problem_of(sides.b);
  sides.rows_only = options.what == CompareWhat::traces && !sides.problem.empty() && has_row_b &&
                    sides.a.document->info().capture.qkv && sides.b.document->info().capture.qkv &&
                    sides.b.document->info().has_layer(sides.b.request.layer) &&
                    sides.b.document->info().has_q_head(sides.b.request.q_head);
  if (sides.problem.empty() && options.what == CompareWhat::budgets && !sides.a.request.budget) {
    sides.problem = fmt::format(
        "{} takes no budget: choose another method, or compare it with one.", s.selector);
  }
  return sides;
}

}  // namespace kvscope::gui
