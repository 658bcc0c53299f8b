#include "gui/model/methods/kept_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "gui/model/session/methods.hpp"

namespace kvscope::gui {

namespace {
constexpr Index kAllRowsUpTo = 8192;
constexpr Index kMostDecodeSteps = 1024;
}  // namespace

std::string KeptRequest::key() const {
  return fmt::format("kept/{}/{}/{}/{}/{}/{}/{}/{}", layer, q_head, name_of(phase), chunk, spec,
                     budget ? budget->to_string() : "", dense_layers,
                     rows_per_chunk ? *rows_per_chunk : 0);
}

ReplayOptions KeptRequest::replay(const TraceInfo& info) const {
  ReplayOptions options{.rows_per_chunk = rows_per_chunk, .dense_layers = dense_layers};
  options.calls.phase = phase;
  options.calls.chunk = chunk;
  options.calls.steps = std::clamp<Index>(info.n_tokens - info.n_prompt, 1, kMostDecodeSteps);
  return options;
}

std::optional<Index> rows_per_chunk_for(Index n_tokens) {
  if (n_tokens <= kAllRowsUpTo) return std::nullopt;
  return std::max<Index>(1, 64 * kAllRowsUpTo / n_tokens);
}

KeptQuestion kept_question(const Session& session, const MethodSpec& method, Phase phase) {
  const Parameters& parameters = session.parameters();
  KeptQuestion question{.trace = session.document(),
                        .draft = session.draft_for(method),
                        .obstacle = obstacle(method, phase, session.second() != nullptr)};
  const TraceInfo& info = question.trace->info();
  question.request = {.layer = session.selection().layer,
                      .q_head = session.selection().q_head,
                      .phase = phase,
                      .chunk = parameters.chunk,
                      .spec = spec_of(method, parameters),
                      .budget = budget_of(method, parameters),
                      .dense_layers = parameters.dense_layers,
                      .rows_per_chunk = rows_per_chunk_for(info.n_tokens)};
  if (!info.capture.qkv) {
    question.obstacle = "This trace holds no q, k and v: record it with --capture qkv.";
  }
  return question;
}

}  // namespace kvscope::gui
