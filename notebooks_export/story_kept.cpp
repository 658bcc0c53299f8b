#include "notebooks_export/story_kept.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/attention/visible.hpp"
#include "core/base/nan.hpp"
#include "core/sim/replay.hpp"

namespace kvscope {

namespace {

void replay(const KeptQuery& query, const StoryMethod& method, const CallPlan& calls,
            TokenRange queries, ThreadPool& pool, const ProgressFn& progress,
            const std::stop_token& stop, const std::function<void(const KeptQueryRow&)>& visit) {
  ReplayOptions options;
  options.calls = calls;
  options.rows_per_chunk = std::nullopt;
  options.dense_layers = query.dense_layers;
  options.q_heads = {query.head};
  // By query: keys kept whatever their score. All of a call's are there before its rows are shown.
  std::vector<std::vector<KeyPos>> ruled(static_cast<std::size_t>(queries.size()));
  options.on_answer = [&](const AnsweredCall& answer) {
    if (answer.layer != query.layer || answer.selection.is_dense) return;
    const Index owner = owner_of(answer.selection.owner, query.head, query.trace.info().group());
    const TokenRange own{std::max(answer.tokens.begin, queries.begin),
                         std::min(answer.tokens.end, queries.end)};
    for (Index pos = own.begin; pos < own.end; ++pos) {
      const ListView list = answer.selection.list(owner, pos - answer.tokens.begin);
      auto& keys = ruled[static_cast<std::size_t>(pos - queries.begin)];
      for (std::size_t i = 0; i < list.keys.size(); ++i)
        if (list.is_forced[i] != 0) keys.push_back(list.keys[i]);
      std::ranges::sort(keys);
    }
  };
  options.on_row = [&](const MeasuredRow& row) {
    const bool is_ours = row.layer == query.layer && row.q_head == query.head &&
                         row.pos >= queries.begin && row.pos < queries.end;
    if (!is_ours) return;
    KeptQueryRow out{row.pos, row.kept[0], ruled[static_cast<std::size_t>(row.pos - queries.begin)],
                     0.0};
    for (const KeyPos key : out.keys)
      out.mass += row.probs[static_cast<std::size_t>(key - row.visible.begin)];
    visit(out);
  };
  replay_layers(query.trace, query.draft, {query.layer}, {{method.method, method.budget}}, options,
                pool, progress, stop);
}

}  // namespace

std::string visit_kept(const KeptQuery& query, const StoryMethod& method, TokenRange queries,
                       ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop,
                       const std::function<void(const KeptQueryRow&)>& visit) {
  const TraceInfo& info = query.trace.info();
  const SelectorCaps& caps = method.method.caps();
  const auto window = info.window.at(static_cast<std::size_t>(query.layer));
  if (window) {
    return fmt::format("{} leaves layer {} dense: it sees the last {} keys only",
                       method.method.text(), query.layer, *window);
  }
  if (caps.needs_draft && query.draft == nullptr) {
    return fmt::format(
        "{} needs the draft model's trace of the same tokens: name it as \"draft\" in the story",
        method.method.text());
  }
  const TokenRange prompt{queries.begin, std::min(queries.end, info.n_prompt)};
  const TokenRange decoded{std::max(queries.begin, info.n_prompt), queries.end};
  std::string words;
  CallPlan plan;
  plan.chunk = query.chunk;
  if (prompt.size() > 0 && caps.prefill) {
    plan.phase = Phase::prefill;
    replay(query, method, plan, prompt, pool, progress, stop, visit);
  } else if (prompt.size() > 0 && caps.decode) {
    plan.phase = Phase::decode;
    for (Index pos = std::max<Index>(prompt.begin, 1); pos < prompt.end; ++pos)
      plan.at.push_back({pos, pos + 1});
    if (!plan.at.empty()) replay(query, method, plan, prompt, pool, progress, stop, visit);
    words = fmt::format("{} knows no prefill: each query of the prompt is asked as a decode step",
                        method.method.text());
  } else if (prompt.size() > 0) {
    words = fmt::format("{} answers in neither prefill nor decode steps", method.method.text());
  }
  if (decoded.size() > 0 && caps.decode) {
    plan.at.clear();
    plan.phase = Phase::decode;
    plan.steps = info.n_tokens - info.n_prompt;
    replay(query, method, plan, decoded, pool, progress, stop, visit);
  } else if (decoded.size() > 0) {
    words = fmt::format(
        "{} is not defined for decode steps: of the queries from {} on nothing is known",
        method.method.text(), info.n_prompt);
  }
  return words;
}

KeptCells::KeptCells(const CellGrid& grid)
    : grid_(grid),
      kept_(static_cast<std::size_t>(grid.queries.size() * grid.cols()), 0),
      masses_(static_cast<std::size_t>(grid.queries.size()), kNan),
      n_keys_(masses_.size(), 0) {}

void KeptCells::put(const KeptQueryRow& row) {
  if (row.pos < grid_.queries.begin || row.pos >= grid_.queries.end) return;
  const auto at = static_cast<std::size_t>(row.pos - grid_.queries.begin);
  masses_[at] = row.mass;
  n_keys_[at] = static_cast<Index>(row.keys.size());
  const std::size_t first = at * static_cast<std::size_t>(grid_.cols());
  for (const KeyPos key : row.keys) {
    if (key < grid_.keys.begin || key >= grid_.keys.end) continue;
    ++kept_[first + static_cast<std::size_t>((key - grid_.keys.begin) / grid_.block)];
  }
}

double KeptCells::share(Index row, Index col) const {
  const TokenRange own = grid_.row_queries(row);
  const Index key_begin = grid_.keys.begin + col * grid_.block;
  const Index key_end = std::min(grid_.keys.end, key_begin + grid_.block);
  Index n_kept = 0;
  Index n_seen = 0;
  for (Index pos = own.begin; pos < own.end; ++pos) {
    const TokenRange visible = visible_keys(pos, grid_.window);
    const Index n = std::min(visible.end, key_end) - std::max(visible.begin, key_begin);
    if (n <= 0) continue;
    const auto at = static_cast<std::size_t>(pos - grid_.queries.begin);
    if (std::isnan(masses_[at])) return kNan;
    n_seen += n;
    n_kept += kept_[at * static_cast<std::size_t>(grid_.cols()) + static_cast<std::size_t>(col)];
  }
  return n_seen > 0 ? static_cast<double>(n_kept) / static_cast<double>(n_seen) : kNan;
}

double KeptCells::mass(Index row) const {
  const TokenRange own = grid_.row_queries(row);
  double sum = 0.0;
  for (Index pos = own.begin; pos < own.end; ++pos)
    sum += masses_[static_cast<std::size_t>(pos - grid_.queries.begin)];
  return sum / static_cast<double>(own.size());
}

double KeptCells::mean_mass() const {
  double sum = 0.0;
  double n = 0.0;
  for (const double mass : masses_) {
    if (std::isnan(mass)) continue;
    sum += mass;
    n += 1.0;
  }
  return n > 0.0 ? sum / n : kNan;
}

double KeptCells::mean_keys() const {
  double sum = 0.0;
  double n = 0.0;
  for (std::size_t i = 0; i < masses_.size(); ++i) {
    if (std::isnan(masses_[i])) continue;
    sum += static_cast<double>(n_keys_[i]);
    n += 1.0;
  }
  return n > 0.0 ? sum / n : kNan;
}

std::string KeptCells::encode() const {
  PageBytes bytes;
  unsigned four = 0;
  unsigned n_bits = 0;
  for (Index row = 0; row < grid_.rows(); ++row) {
    const TokenRange seen = grid_.seen_cols(row);
    for (Index col = seen.begin; col < seen.end; ++col) {
      const double kept = share(row, col);
      if (grid_.block > 1) {
        bytes.put8(std::isnan(kept) ? 0U : 1U + static_cast<unsigned>(std::lround(254.0 * kept)));
        continue;
      }
      four |= (std::isnan(kept) ? 0U : kept > 0.0 ? 2U : 1U) << n_bits;
      n_bits += 2;
      if (n_bits < 8) continue;
      bytes.put8(four);
      four = n_bits = 0;
    }
  }
  if (n_bits > 0) bytes.put8(four);
  return bytes.base64();
}

std::string KeptCells::encode_masses() const {
  PageBytes bytes;
  for (Index row = 0; row < grid_.rows(); ++row) bytes.put16(share_code(mass(row)));
  return bytes.base64();
}

std::size_t KeptCells::encoded_bytes(const CellGrid& grid) {
  const std::size_t n = grid.n_seen();
  return (grid.block == 1 ? (n + 3) / 4 : n) + 2 * static_cast<std::size_t>(grid.rows());
}

}  // namespace kvscope
