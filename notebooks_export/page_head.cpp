#include "notebooks_export/page_head.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>

#include "analysis/base/analysis.hpp"
#include "analysis/base/base64.hpp"
#include "analysis/kinds/attention_map.hpp"
#include "core/attention/topk.hpp"
#include "core/attention/visible.hpp"
#include "core/base/escape.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/sim/replay.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

/// A weight in 16 bits: 0 for NaN (not visible), 1 below the floor, else its logarithm in 65533
/// equal steps; the relative error is below 2e-4.
std::uint16_t page_code(double weight) {
  if (std::isnan(weight)) return 0;
  if (weight < kPageFloor) return 1;
  const double share = 1.0 - std::log(std::min(weight, 1.0)) / std::log(kPageFloor);
  return static_cast<std::uint16_t>(2.0 + std::round(share * 65533.0));
}

/// A share in [0, 1] in 16 bits: 0 for NaN, else 1 + 65534 times the share; error below 8e-6.
std::uint16_t share_code(double share) {
  if (std::isnan(share)) return 0;
  return static_cast<std::uint16_t>(1.0 + std::round(std::clamp(share, 0.0, 1.0) * 65534.0));
}

/// Bytes, the low one of a number first.
class PageBytes {
 public:
  void put8(unsigned value) { bytes_.push_back(static_cast<std::byte>(value)); }
  void put16(unsigned value) {
    put8(value & 0xffU);
    put8(value >> 8 & 0xffU);
  }
  void put32(std::uint32_t value) {
    put16(value & 0xffffU);
    put16(value >> 16);
  }
  /// base64, filled up with zero bytes.
  std::string text() const { return text_from_bytes(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

std::string script(const std::string& id, const PageBytes& bytes) {
  return fmt::format("<script type=\"text/plain\" id=\"{}\">{}</script>\n", id, bytes.text());
}

/// One query's answer under one method. Comes from several threads.
struct KeptRow {
  Index pos = 0;
  std::span<const KeyPos> keys;  // ascending
  double mass = 0.0;             // dense attention on them
};

/// Calls visit once for each query that the method answers: those of the prompt in its prefill
/// chunks (as decode steps of their own if the method knows no prefill), those behind it as decode
/// steps. Returns a sentence where it answers otherwise than that, or not at all, else "".
std::string visit_kept(const PageHead& head, const PageMethod& asked, const TraceSource& trace,
                       const PageReplay& how, ThreadPool& pool, const std::stop_token& stop,
                       const std::function<void(const KeptRow&)>& visit) {
  const TraceInfo& info = trace.info();
  const std::string& name = asked.method.text();
  const SelectorCaps& caps = asked.method.caps();
  if (head.grid.window) {
    return fmt::format("{} leaves layer {} dense: it sees the last {} keys only", name, head.layer,
                       *head.grid.window);
  }
  if (caps.needs_draft) {
    return fmt::format("{} needs a draft model's trace, which pages do not take: not asked", name);
  }
  const auto replay = [&](const CallPlan& calls) {
    ReplayOptions options;
    options.calls = calls;
    options.rows_per_chunk = std::nullopt;
    options.dense_layers = how.dense_layers;
    options.q_heads = {head.q_head};
    options.on_row = [&](const MeasuredRow& row) {
      KeptRow out{row.pos, row.kept[0], 0.0};
      for (const KeyPos key : out.keys)
        out.mass += row.probs[static_cast<std::size_t>(key - row.visible.begin)];
      visit(out);
    };
    replay_layers(trace, nullptr, {head.layer}, {{asked.method, asked.budget}}, options, pool, {},
                  stop);
  };
  std::string words;
  CallPlan calls{.phase = Phase::prefill, .chunk = how.chunk};
  if (caps.prefill && info.n_prompt > 0) {
    replay(calls);
  } else if (caps.decode) {
    calls.phase = Phase::decode;
    for (Index pos = 1; pos < info.n_prompt; ++pos) calls.at.push_back({pos, pos + 1});
    if (!calls.at.empty()) {
      replay(calls);
      words = fmt::format("{} knows no prefill: each query of the prompt is asked as a decode step",
                          name);
    }
  } else {
    words = fmt::format("{} answers in neither prefill nor decode steps", name);
  }
  const Index n_decoded = info.n_tokens - info.n_prompt;
  if (n_decoded > 0 && caps.decode) {
    replay({.phase = Phase::decode, .chunk = how.chunk, .steps = n_decoded});
  } else if (n_decoded > 0) {
    words = fmt::format(
        "{} is not defined for decode steps: of the queries from {} on nothing is known", name,
        info.n_prompt);
  }
  return words;
}

/// What a method keeps of a map's cells.
class KeptCells {
 public:
  explicit KeptCells(const CellGrid& grid)
      : grid_(grid),
        kept_(static_cast<std::size_t>(grid.n_tokens * grid.side()), 0),
        masses_(static_cast<std::size_t>(grid.n_tokens), kNan),
        n_keys_(masses_.size(), kNan) {}

  void put(const KeptRow& row) {
    const auto at = static_cast<std::size_t>(row.pos);
    masses_[at] = row.mass;
    n_keys_[at] = static_cast<double>(row.keys.size());
    const std::size_t first = at * static_cast<std::size_t>(grid_.side());
    for (const KeyPos key : row.keys) ++kept_[first + static_cast<std::size_t>(key / grid_.block)];
  }

  /// Share of the cell's visible pairs that are kept; NaN where a query of the cell was not
  /// answered.
  double share(Index row, Index col) const {
    const TokenRange keys = grid_.tokens(col);
    Index n_kept = 0;
    Index n_seen = 0;
    for (Index pos = grid_.tokens(row).begin; pos < grid_.tokens(row).end; ++pos) {
      const TokenRange visible = visible_keys(pos, grid_.window);
      const Index n = std::min(visible.end, keys.end) - std::max(visible.begin, keys.begin);
      if (n <= 0) continue;
      if (std::isnan(masses_[static_cast<std::size_t>(pos)])) return kNan;
      n_seen += n;
      n_kept += kept_[static_cast<std::size_t>(pos * grid_.side() + col)];
    }
    return static_cast<double>(n_kept) / static_cast<double>(n_seen);
  }

  /// A byte for each seen cell: 0 not known, else 1 + 254 times the share.
  PageBytes cells() const {
    PageBytes bytes;
    for (Index row = 0; row < grid_.side(); ++row) {
      const TokenRange seen = grid_.seen_cols(row);
      for (Index col = seen.begin; col < seen.end; ++col) {
        const double kept = share(row, col);
        bytes.put8(std::isnan(kept) ? 0U : 1U + static_cast<unsigned>(std::lround(254.0 * kept)));
      }
    }
    return bytes;
  }

  /// share_code of the attention that each query keeps.
  PageBytes masses() const {
    PageBytes bytes;
    for (const double mass : masses_) bytes.put16(share_code(mass));
    return bytes;
  }

  /// Kept keys per answered query; null if none was answered.
  Json mean_keys() const {
    double sum = 0.0;
    double n = 0.0;
    for (const double keys : n_keys_) {
      if (std::isnan(keys)) continue;
      sum += keys;
      n += 1.0;
    }
    return n > 0.0 ? Json(sum / n) : Json(nullptr);
  }

 private:
  CellGrid grid_;
  std::vector<std::uint16_t> kept_;  // [queries, cols] pairs
  std::vector<double> masses_;       // [queries]; NaN: not answered
  std::vector<double> n_keys_;       // [queries]; NaN: not answered
};

/// The heaviest keys of each query, the heaviest first, of equal ones the first position.
class HeaviestKeys {
 public:
  HeaviestKeys(const PageHead& head, const TraceSource& trace, ThreadPool& pool,
               const std::stop_token& stop)
      : most_(static_cast<std::size_t>(head.n_heaviest)),
        keys_(static_cast<std::size_t>(head.grid.n_tokens) * most_, -1),
        weights_(keys_.size(), kNan),
        kept_(keys_.size(), 0) {
    const TraceInfo& info = trace.info();
    const TokenRange all{0, info.n_tokens};
    const Tensor<float> k = trace.read_k(head.layer, head.q_head / info.group(head.layer), all);
    std::vector<Index> positions(static_cast<std::size_t>(info.n_tokens));
    std::iota(positions.begin(), positions.end(), 0);
    ScoreRowLoop(pool, stop, "export")
        .run(trace, head.layer, head.q_head, positions, KeyTable(k.view()),
             [&](Index pos, std::span<double> scores, TokenRange visible) {
               softmax_in_place(scores, info.sink_logit(head.layer, head.q_head));
               put(pos, scores, visible.begin);
             });
  }

  /// Notes which of them a method keeps.
  void mark(std::size_t method, const KeptRow& row) {
    const std::size_t first = static_cast<std::size_t>(row.pos) * most_;
    for (std::size_t at = first; at < first + most_; ++at) {
      if (keys_[at] >= 0 && std::ranges::binary_search(row.keys, keys_[at]))
        kept_[at] |= static_cast<std::uint8_t>(1U << method);
    }
  }

  /// The key in 32 bits (-1: none), its page_code, and a byte in which bit m says that method m
  /// keeps it.
  PageBytes bytes() const {
    PageBytes bytes;
    for (std::size_t at = 0; at < keys_.size(); ++at) {
      bytes.put32(static_cast<std::uint32_t>(keys_[at]));
      bytes.put16(page_code(weights_[at]));
      bytes.put8(kept_[at]);
    }
    return bytes;
  }

 private:
  void put(Index pos, std::span<const double> weights, Index first_key) {
    std::size_t to = static_cast<std::size_t>(pos) * most_;
    for (const Index key : top_k(weights, static_cast<Index>(most_))) {
      keys_[to] = static_cast<std::int32_t>(first_key + key);
      weights_[to++] = weights[static_cast<std::size_t>(key)];
    }
  }

  std::size_t most_;
  std::vector<std::int32_t> keys_;  // [queries, most]; -1 where a query sees fewer
  std::vector<double> weights_;     // [queries, most]
  std::vector<std::uint8_t> kept_;  // [queries, most]
};

}  // namespace

TokenRange CellGrid::tokens(Index cell) const {
  return {cell * block, std::min(n_tokens, (cell + 1) * block)};
}

TokenRange CellGrid::seen_cols(Index row) const {
  const Index first_key = window ? std::max<Index>(0, tokens(row).begin - *window + 1) : 0;
  return {first_key / block, row + 1};
}

std::size_t CellGrid::n_seen() const {
  std::size_t n = 0;
  for (Index row = 0; row < side(); ++row) n += static_cast<std::size_t>(seen_cols(row).size());
  return n;
}

std::string PageMethod::words() const {
  return budget ? fmt::format("{} at {}", method.text(), budget->to_string()) : method.text();
}

double PageHead::bytes() const {
  const auto n = static_cast<double>(grid.n_tokens);
  const auto n_methods = static_cast<double>(methods.size());
  const double cells = static_cast<double>(grid.n_seen()) * (2.0 + n_methods);
  return 4.0 / 3.0 * (cells + n * (7.0 * static_cast<double>(n_heaviest) + 2.0 * n_methods));
}

HeadNumbers head_numbers(const PageHead& head, std::size_t id, const TraceSource& trace,
                         MapPooling pooling, const PageReplay& replay, ThreadPool& pool,
                         const std::stop_token& stop) {
  const CellGrid& grid = head.grid;
  HeadNumbers out;
  MemoryResult map;
  analyze_attention_map(trace, {head.layer, head.q_head, std::max<Index>(2, grid.side()), pooling},
                        {map, pool, {}, stop});
  const auto weights = map.values<float>("map");
  PageBytes cells;
  for (Index row = 0; row < grid.side(); ++row) {
    const TokenRange seen = grid.seen_cols(row);
    for (Index col = seen.begin; col < seen.end; ++col)
      cells.put16(page_code(weights[static_cast<std::size_t>(row * grid.side() + col)]));
  }
  out.scripts = script(fmt::format("map-{}", id), cells);
  out.json = {{"trace", head.trace},     {"layer", head.layer},
              {"head", head.q_head},     {"window", or_null(grid.window)},
              {"block", grid.block},     {"heaviest", head.n_heaviest},
              {"methods", Json::array()}};
  if (head.n_heaviest == 0) return out;
  HeaviestKeys heaviest(head, trace, pool, stop);
  for (std::size_t m = 0; m < head.methods.size(); ++m) {
    KeptCells kept(grid);
    const std::string note =
        visit_kept(head, head.methods[m], trace, replay, pool, stop, [&](const KeptRow& row) {
          kept.put(row);
          heaviest.mark(m, row);
        });
    out.json["methods"].push_back({{"words", head.methods[m].words()},
                                   {"note", clean_text(note)},
                                   {"keys", kept.mean_keys()}});
    out.scripts += script(fmt::format("kept-{}-{}", id, m), kept.cells());
    out.scripts += script(fmt::format("mass-{}-{}", id, m), kept.masses());
  }
  out.scripts += script(fmt::format("heaviest-{}", id), heaviest.bytes());
  return out;
}

}  // namespace kvscope
