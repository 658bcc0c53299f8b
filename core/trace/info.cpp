#include "core/trace/info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr std::array<std::string_view, 4> kStatusNames = {"recording", "complete", "interrupted",
                                                          "recovered"};
constexpr Index kMaxCount = Index{1} << 31;

bool contains(const std::vector<Index>& sorted, Index value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

Index slot_of(const std::vector<Index>& sorted, Index value, std::string_view what) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), value);
  if (found == sorted.end() || *found != value) {
    throw ConfigError("{} {} was not recorded: the trace holds {}", what, value,
                      fmt::join(sorted, ", "));
  }
  return found - sorted.begin();
}

void require(bool ok, std::string_view what, std::string_view expected, Index found) {
  if (!ok) throw ConfigError("{}: expected {}, found {}", what, expected, found);
}

void check_ascending(const std::vector<Index>& values, Index limit, std::string_view what) {
  require(!values.empty(), what, "at least one", 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    require(values[i] >= 0 && values[i] < limit, what, fmt::format("indices below {}", limit),
            values[i]);
    require(i == 0 || values[i - 1] < values[i], what, "ascending indices", values[i]);
  }
}

}  // namespace

std::string_view name_of(TraceStatus status) {
  return kStatusNames[static_cast<std::size_t>(status)];
}

std::optional<TraceStatus> trace_status_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kStatusNames.size(); ++i) {
    if (kStatusNames[i] == name) return static_cast<TraceStatus>(i);
  }
  return std::nullopt;
}

bool TraceInfo::has_layer(Index layer) const {
  return contains(layers, layer);
}
bool TraceInfo::has_q_head(Index q_head) const {
  return contains(q_heads, q_head);
}
bool TraceInfo::has_kv_head(Index kv_head) const {
  return contains(kv_heads, kv_head);
}

Index TraceInfo::layer_slot(Index layer) const {
  return slot_of(layers, layer, "layer");
}
Index TraceInfo::q_slot(Index q_head) const {
  return slot_of(q_heads, q_head, "query head");
}
Index TraceInfo::kv_slot(Index kv_head) const {
  return slot_of(kv_heads, kv_head, "KV head");
}

std::span<const float> TraceInfo::layer_sink_logits(Index layer) const {
  if (sink_logits.empty()) return {};
  return std::span(sink_logits)
      .subspan(static_cast<std::size_t>(layer * n_q), static_cast<std::size_t>(n_q));
}

std::optional<double> TraceInfo::sink_logit(Index layer, Index q_head) const {
  if (sink_logits.empty()) return std::nullopt;
  return static_cast<double>(layer_sink_logits(layer)[static_cast<std::size_t>(q_head)]);
}

std::span<const float> TraceInfo::frequencies_of(Index layer) const {
  const std::size_t n_pairs = rope_frequencies.size() / static_cast<std::size_t>(n_layers);
  return std::span(rope_frequencies).subspan(static_cast<std::size_t>(layer) * n_pairs, n_pairs);
}

bool TraceInfo::has_experts(Index layer) const {
  const auto at = static_cast<std::size_t>(layer);
  return at < layer_kinds.size() && layer_kinds[at].n_experts > 0;
}

TraceInfo cut_to_calls(const TraceInfo& info, Index n_calls) {
  TraceInfo cut = info;
  cut.calls.resize(static_cast<std::size_t>(n_calls));
  cut.planned_tokens =
      n_calls < static_cast<Index>(info.calls.size()) ? info.n_planned() : info.planned_tokens;
  cut.n_tokens = cut.calls.empty() ? 0 : cut.calls.back().tokens.end;
  cut.n_prompt = std::min(cut.n_prompt, cut.n_tokens);
  cut.rows.end = std::min(cut.rows.end, cut.n_tokens);
  cut.rows.begin = std::min(cut.rows.begin, cut.rows.end);
  return cut;
}

namespace {

// One entry per layer, or none; experts where there is something to pick.
void check_layers(const TraceInfo& info) {
  require(info.planned_tokens == 0 || info.planned_tokens >= info.n_tokens, "planned_tokens",
          "at least n_tokens", info.planned_tokens);
  const auto n_layers = static_cast<std::size_t>(info.n_layers);
  const std::size_t n_frequencies = info.rope_frequencies.size();
  require(info.rope_amplitudes.size() == (n_frequencies == 0 ? 0 : n_layers) &&
              n_frequencies % n_layers == 0 &&
              2 * n_frequencies <= n_layers * static_cast<std::size_t>(info.d_head),
          "number of RoPE frequencies", "n_layers times at most d_head / 2",
          static_cast<Index>(n_frequencies));
  for (const auto* numbers : {&info.rope_frequencies, &info.rope_amplitudes}) {
    for (const float x : *numbers) {
      if (!std::isfinite(x))
        throw ConfigError("RoPE frequencies and amplitudes: expected finite numbers, found {}", x);
    }
  }
  require(info.layer_kinds.empty() || info.layer_kinds.size() == n_layers, "number of layer kinds",
          fmt::format("one per layer ({})", info.n_layers),
          static_cast<Index>(info.layer_kinds.size()));
  for (const LayerKind& kind : info.layer_kinds) {
    require(kind.n_experts >= 0 && kind.n_experts < kMaxCount, "n_experts", "0 or more",
            kind.n_experts);
    require(kind.n_experts == 0 || info.n_experts_per_token <= kind.n_experts,
            "n_experts_per_token", fmt::format("at most the {} experts of a layer", kind.n_experts),
            info.n_experts_per_token);
  }
  const Index least = info.capture.routing ? 1 : 0;
  require(info.n_experts_per_token >= least && info.n_experts_per_token < kMaxCount,
          "n_experts_per_token", fmt::format("{} or more", least), info.n_experts_per_token);
  require(info.sink_logits.empty() ||
              info.sink_logits.size() == n_layers * static_cast<std::size_t>(info.n_q),
          "number of attention sinks",
          fmt::format("one per layer and query head ({} x {})", info.n_layers, info.n_q),
          static_cast<Index>(info.sink_logits.size()));
  for (std::size_t i = 0; i < info.sink_logits.size(); ++i) {
    if (std::isfinite(info.sink_logits[i])) continue;
    throw ConfigError(
        "attention sink of layer {}, query head {}: expected a finite number, found {}",
        i / static_cast<std::size_t>(info.n_q), i % static_cast<std::size_t>(info.n_q),
        info.sink_logits[i]);
  }
}

}  // namespace

void check_trace_info(const TraceInfo& info) {
  const auto positive = [](Index value, std::string_view what) {
    require(value >= 1 && value < kMaxCount, what, "1 or more", value);
  };
  positive(info.n_layers, "n_layers");
  positive(info.n_q, "n_q");
  positive(info.n_kv, "n_kv");
  positive(info.d_head, "d_head");
  positive(info.n_vocab, "n_vocab");
  positive(info.n_tokens, "n_tokens");
  positive(info.chunk, "chunk");
  positive(info.capture.page_size, "page_size");
  require(info.n_q % info.n_kv == 0, "n_q", fmt::format("a multiple of n_kv = {}", info.n_kv),
          info.n_q);
  require(info.capture.attn_topk >= 0 && info.capture.attn_topk < kMaxCount, "attn_topk",
          "0 or more", info.capture.attn_topk);
  require(info.n_prompt >= 1 && info.n_prompt <= info.n_tokens, "n_prompt",
          fmt::format("1 to n_tokens = {}", info.n_tokens), info.n_prompt);
  require(info.token_text_capacity >= 0, "token_text_capacity", "0 or more",
          info.token_text_capacity);
  require(info.window.empty() || static_cast<Index>(info.window.size()) == info.n_layers,
          "number of attention windows", fmt::format("one per layer ({})", info.n_layers),
          static_cast<Index>(info.window.size()));
  for (const auto& window : info.window) {
    require(!window || *window >= 1, "attention window", "1 or more", window.value_or(0));
  }

  check_layers(info);
  check_ascending(info.layers, info.n_layers, "recorded layers");
  check_index_shape(info.index, info.layers);
  check_ascending(info.q_heads, info.n_q, "recorded query heads");
  check_ascending(info.kv_heads, info.n_kv, "recorded KV heads");
  for (Index q_head : info.q_heads) {
    require(info.has_kv_head(q_head / info.group()), "recorded KV heads",
            fmt::format("the one of query head {}", q_head), q_head / info.group());
  }
  require(
      info.rows.begin >= 0 && info.rows.begin <= info.rows.end && info.rows.end <= info.n_tokens,
      "recorded rows", fmt::format("a range inside {} tokens", info.n_tokens), info.rows.end);

  Index next = 0;
  for (const ForwardCall& call : info.calls) {
    require(call.tokens.begin == next && call.tokens.end > next, "calls",
            fmt::format("one that starts at token {} and is not empty", next), call.tokens.begin);
    next = call.tokens.end;
  }
  require(next == info.n_tokens, "calls", fmt::format("to cover {} tokens", info.n_tokens), next);
}

}  // namespace kvscope
