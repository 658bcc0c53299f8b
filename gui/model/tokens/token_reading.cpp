#include "gui/model/tokens/token_reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analysis/base/analysis.hpp"
#include "analysis/base/layer_arrays.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/number_text.hpp"
#include "core/sim/replay.hpp"

namespace kvscope::gui {

namespace {

constexpr float kTinyWeight = 1e-30f;  // weights that are 0 in f32 are still kept or dropped

std::size_t list_bytes(const kvscope::Selection& selection) {
  return selection.keys().size() * (sizeof(KeyPos) + 1) + selection.begins().size() * sizeof(Index);
}

/// A copy of the lists, or of those of one owner alone.
kvscope::Selection copied(const kvscope::Selection& selection, std::optional<Index> owner) {
  kvscope::Selection out(owner ? ListOwner::layer : selection.owner, selection.n_tok,
                         selection.rows_per_list);
  out.is_dense = selection.is_dense;
  if (out.is_dense) return out;
  const Index n = owner ? selection.n_row_blocks() : selection.n_lists();
  const Index first = owner ? *owner * n : 0;
  for (Index i = first; i < first + n; ++i) out.add(selection.at(i));
  return out;
}

/// What a method does with the weight of each key, summed over heads.
struct KeptWeights {
  std::vector<float> scored;
  std::vector<float> ruled;
  bool is_known = false;
  Mean lost;  // over the heads that choose

  explicit KeptWeights(std::size_t n) : scored(n), ruled(n) {}

  /// row: of one head, keys from 0 on.
  void add(const MethodSelections::Layer& layer, bool is_one_head, Index q_head, Index group,
           const AttentionRow& row) {
    const auto all = [&] {
      for (Index key = row.visible.begin; key < row.visible.end; ++key)
        scored[static_cast<std::size_t>(key)] += weight(row, key);
    };
    if (layer.calls.empty()) return all();
    const MethodSelections::Call* call = layer.call_of(row.query);
    if (call == nullptr) return;
    is_known = true;
    if (call->selection.is_dense) return all();
    const Index owner = is_one_head ? 0 : owner_of(call->selection.owner, q_head, group);
    const ListView list = call->selection.list(owner, row.query - call->tokens.begin);
    const double all_of_keys = std::accumulate(row.probs.begin(), row.probs.end(), 0.0);
    double lost_here = all_of_keys;
    for (std::size_t i = 0; i < list.keys.size(); ++i) {
      const Index key = list.keys[i];
      if (key < row.visible.begin || key >= row.visible.end) continue;
      (list.is_forced[i] != 0 ? ruled : scored)[static_cast<std::size_t>(key)] += weight(row, key);
      lost_here -= static_cast<double>(row.prob(key));
    }
    lost.add(std::max(0.0, lost_here) / all_of_keys);
  }

  static float weight(const AttentionRow& row, Index key) {
    return std::max(static_cast<float>(row.prob(key)), kTinyWeight);
  }

  /// weights: summed over the heads, keys from 0 on.
  KeyUses outcomes(TokenRange visible, const std::vector<float>& weights) const {
    KeyUses out;
    if (!is_known) return out;
    out.begin = visible.begin;
    out.lost = lost.n() > 0 ? lost.value() : 0.0;
    for (Index key = visible.begin; key < visible.end; ++key) {
      const auto i = static_cast<std::size_t>(key);
      const float kept = scored[i] + ruled[i];
      out.of.push_back(2.0f * kept < weights[i] || kept == 0.0f ? KeyUse::dropped
                       : ruled[i] > scored[i]                   ? KeyUse::by_rule
                                                                : KeyUse::by_score);
    }
    return out;
  }
};

}  // namespace

// ---- a method's lists ----

const MethodSelections::Call* MethodSelections::Layer::call_of(Index query) const {
  const auto after = std::ranges::upper_bound(calls, query, {},
                                              [](const Call& call) { return call.tokens.begin; });
  if (after == calls.begin()) return nullptr;
  const Call& call = *(after - 1);
  return query < call.tokens.end ? &call : nullptr;
}

bool MethodSelections::Layer::is_dense() const {
  return std::ranges::all_of(calls, [](const Call& call) { return call.selection.is_dense; });
}

const MethodSelections::Layer* MethodSelections::layer(Index number) const {
  const auto found = std::ranges::find(layers, number, &Layer::layer);
  return found == layers.end() ? nullptr : &*found;
}

std::size_t MethodSelections::bytes() const {
  std::size_t bytes = sizeof *this;
  for (const Layer& layer : layers) {
    for (const Call& call : layer.calls) bytes += sizeof call + list_bytes(call.selection);
  }
  return bytes;
}

MethodSelections method_selections(const TraceSource& trace, const TraceSource* draft,
                                   const LossRequest& request, JobContext& job) {
  const TraceInfo& info = trace.info();
  MethodSelections out;
  out.is_one_head = request.heads == LossHeads::head;
  std::size_t bytes = 0;
  ReplayOptions options = request.replay(info);
  options.rows_per_chunk = 1;
  options.only_costs = true;
  options.on_selection = [&](const SelectedCall& selected) {
    MethodSelections::Layer& layer =
        *std::ranges::find(out.layers, selected.layer, &MethodSelections::Layer::layer);
    MethodSelections::Call& call = layer.calls.emplace_back();
    call.tokens = selected.tokens;
    const std::optional<Index> owner =
        out.is_one_head ? std::optional(owner_of(selected.selection.owner, request.q_head,
                                                 info.group(selected.layer)))
                        : std::nullopt;
    call.selection = copied(selected.selection, owner);
    bytes += list_bytes(call.selection);
    if (bytes > kMostSelections) {
      throw ConfigError(
          "the lists of {} take more than {} MiB here: choose fewer heads (this head, this layer), "
          "or a smaller budget",
          request.spec, kMostSelections >> 20);
    }
  };
  const std::vector<Index> layers =
      request.heads == LossHeads::all ? info.layers : std::vector<Index>{request.layer};
  for (const Index layer : layers) out.layers.push_back({layer, {}});
  const auto replay = [&](const std::vector<Index>& some) {
    replay_layers(trace, draft, some, {{request.spec, request.budget}}, options, job.pool,
                  job.progress, job.stop);
  };
  // Layers one by one hold less; what passes between layers needs all at once.
  if (request.spec.caps().cross_layer) {
    replay(layers);
  } else {
    for (const Index layer : layers) replay({layer});
  }
  return out;
}

// ---- one token's reading ----

std::string ReadingRequest::key() const {
  return fmt::format("reading/{}/{}/{}/{}", heads == LossHeads::all ? -1 : layer,
                     heads == LossHeads::head ? q_head : -1, query, enum_name(heads));
}

Reading reading_of(const TraceSource& trace, const ReadingRequest& request,
                   const MethodSelections* selections, const MethodSelections* other,
                   JobContext& job) {
  const TraceInfo& info = trace.info();
  const bool is_head = request.heads == LossHeads::head;
  const std::vector<Index> layers =
      request.heads == LossHeads::all ? info.layers : std::vector<Index>{request.layer};
  const std::vector<Index> heads = is_head ? std::vector<Index>{request.q_head} : info.q_heads;
  const auto n = static_cast<std::size_t>(request.query + 1);
  std::vector<float> weights(n);
  std::array<KeptWeights, 2> kept{KeptWeights(n), KeptWeights(n)};
  const std::array<const MethodSelections*, 2> said{selections, other};
  Index begin = request.query;  // the first key that any head sees
  AttentionRow mean;
  std::vector<AttentionRow> rows(heads.size());
  for (const Index layer : layers) {
    check_stop(job.stop, "reading");
    job.pool.parallel_for(n_of(heads), [&](Index i, int) {
      const auto slot = static_cast<std::size_t>(i);
      rows[slot] = attention_row(trace, layer, heads[slot], request.query);
    });
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const AttentionRow& row = rows[i];
      begin = std::min(begin, row.visible.begin);
      for (Index key = row.visible.begin; key < row.visible.end; ++key)
        weights[static_cast<std::size_t>(key)] += KeptWeights::weight(row, key);
      for (std::size_t m = 0; m < said.size(); ++m) {
        if (said[m] == nullptr) continue;
        if (const auto* known = said[m]->layer(layer))
          kept[m].add(*known, said[m]->is_one_head, heads[i], info.group(layer), row);
      }
    }
  }
  const auto n_heads = static_cast<double>(layers.size() * heads.size());
  if (is_head) {
    mean = std::move(rows[0]);
  } else {
    mean.query = request.query;
    mean.visible = {begin, request.query + 1};
    for (Index key = begin; key <= request.query; ++key) {
      const float weight = weights[static_cast<std::size_t>(key)];
      mean.probs.push_back(static_cast<float>(static_cast<double>(weight) / n_heads));
    }
  }
  const TokenRange visible = mean.visible;
  return {.heads = request.heads,
          .row = rank_keys(request.layer, request.q_head, std::move(mean)),
          .outcomes = kept[0].outcomes(visible, weights),
          .other_outcomes = kept[1].outcomes(visible, weights)};
}

std::vector<Index> heaviest_keys(const Reading& reading, std::size_t n) {
  const TokenRange visible = reading.row.row.visible;
  std::vector<Index> keys(std::min(n, reading.row.rank.size()));
  for (Index key = visible.begin; key < visible.end; ++key) {
    const auto place = static_cast<std::size_t>(reading.row.rank_of(key)) - 1;
    if (place < keys.size()) keys[place] = key;
  }
  return keys;
}

// ---- in words ----

std::string_view outcome_words(KeyUse outcome) {
  constexpr std::array<std::string_view, 4> kWords = {"not asked", "kept by score", "kept by rule",
                                                      "dropped"};
  return kWords[static_cast<std::size_t>(outcome)];
}

std::string reading_words(const Reading& reading, const Document& document, std::size_t n) {
  std::string words;
  for (const Index key : heaviest_keys(reading, n)) {
    if (!words.empty()) words += ", ";
    words +=
        fmt::format("“{}” {}", document.token_text(key), percent_text(reading.row.row.prob(key)));
    if (!reading.outcomes.of.empty())
      words += fmt::format(" ({})", outcome_words(reading.outcomes.at(key)));
  }
  return words;
}

std::string difference_words(const Reading& reading, const std::string& method,
                             const std::string& other) {
  if (reading.outcomes.of.empty() || reading.other_outcomes.of.empty()) return {};
  std::array<int, 4> n{};  // neither, only the one, only the other, both
  const auto keys = heaviest_keys(reading, static_cast<std::size_t>(kHeavyKeys));
  for (const Index key : keys) {
    const int place =
        (reading.outcomes.keeps(key) ? 1 : 0) + (reading.other_outcomes.keeps(key) ? 2 : 0);
    ++n[static_cast<std::size_t>(place)];
  }
  return fmt::format(
      "of its {} heaviest: both keep {}, only {} {}, only {} {}, neither {}; lost {} against {}",
      keys.size(), n[3], method, n[1], other, n[2], n[0], percent_text(reading.outcomes.lost),
      percent_text(reading.other_outcomes.lost));
}

}  // namespace kvscope::gui
