#include "gui/model/methods/kept_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <mutex>

#include "gui/model/session/methods.hpp"

namespace kvscope::gui {

namespace {
constexpr Index kAllRowsUpTo = 8192;
constexpr Index kMostDecodeSteps = 1024;
}  // namespace

std::size_t KeptRows::bytes() const {
  std::size_t bytes = sizeof *this;
  for (const KeptRow& row : rows) bytes += sizeof row + row.keys.size() * sizeof(KeyPos);
  return bytes;
}

const KeptRow* KeptRows::nearest(Index pos) const {
  const auto best = std::ranges::min_element(
      rows, {}, [&](const KeptRow& row) { return std::abs(row.pos - pos); });
  return best == rows.end() ? nullptr : &*best;
}

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

KeptRequest kept_request(const Session& session, const MethodSpec& method,
                         const Parameters& parameters) {
  const auto open = session.document();
  return {.layer = session.selection().layer,
          .q_head = session.selection().q_head,
          .phase = session.phase(),
          .chunk = parameters.chunk,
          .spec = spec_of(method, parameters),
          .budget = budget_of(method, parameters),
          .dense_layers = parameters.dense_layers,
          .rows_per_chunk = open ? rows_per_chunk_for(open->info().n_tokens) : std::nullopt};
}

KeptQuestion kept_question(const Session& session, const MethodSpec& method) {
  return kept_question(session, method, session.phase());
}

KeptQuestion kept_question(const Session& session, const MethodSpec& method, Phase phase) {
  KeptQuestion question;
  question.request = kept_request(session, method, session.parameters());
  question.request.phase = phase;
  question.trace = session.document();
  question.draft = session.draft_for(method);
  question.obstacle = obstacle(method, phase, session.second() != nullptr);
  if (!question.trace->info().capture.qkv) {
    question.obstacle = "This trace holds no q, k and v: record it with --capture qkv.";
  }
  question.key = documents_key(*question.trace, question.draft.get()) + question.request.key();
  return question;
}

KeptRows kept_rows(const TraceSource& trace, const TraceSource* draft, const KeptRequest& request,
                   JobContext& job) {
  KeptRows kept;
  std::mutex mutex;
  ReplayOptions options = request.replay(trace.info());
  options.q_heads = {request.q_head};
  options.on_row = [&](const MeasuredRow& measured) {
    if (measured.layer != request.layer || measured.q_head != request.q_head) return;
    KeptRow row{.pos = measured.pos, .visible = measured.visible};
    row.keys.assign(measured.kept[0].begin(), measured.kept[0].end());
    for (const KeyPos key : row.keys) {
      row.mass += measured.probs[static_cast<std::size_t>(key - measured.visible.begin)];
    }
    const std::lock_guard lock(mutex);
    kept.rows.push_back(std::move(row));
  };
  const auto layers = replay_layers(trace, draft, {request.layer}, {{request.spec, request.budget}},
                                    options, job.pool, job.progress, job.stop);
  std::ranges::sort(kept.rows, {}, &KeptRow::pos);
  kept.is_dense = layers.empty() || layers[0].has_window || layers[0].pairs[0].is_dense;
  return kept;
}

}  // namespace kvscope::gui
