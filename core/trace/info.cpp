#include "core/trace/info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

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

bool TraceInfo::has_layer(Index layer) const {
  return contains(layers, layer);
}
bool TraceInfo::has_q_head(Index q_head) const {
  return contains(q_heads, q_head);
}

std::vector<std::string> CaptureSet::words() const {
  std::vector<std::string> words;
  for (const auto& [word, member] : kCaptureWords) {
    if (this->*member) words.emplace_back(word);
    if (word == "attn" && attn_topk > 0) words.push_back(fmt::format("attn-topk={}", attn_topk));
  }
  return words;
}

LayerShape TraceInfo::shape(Index layer) const {
  if (layer_shapes.empty()) return main_shape();
  return layer_shapes[static_cast<std::size_t>(layer)];
}

std::optional<Index> TraceInfo::window_of(Index layer) const {
  const auto at = static_cast<std::size_t>(layer);
  return at < window.size() ? window[at] : std::nullopt;
}

std::vector<Index> TraceInfo::kv_heads_of(Index layer) const {
  if (layer_shapes.empty()) return kv_heads;
  const Index n = group(layer);
  std::vector<Index> heads;
  for (const Index q_head : q_heads) {
    if (heads.empty() || heads.back() != q_head / n) heads.push_back(q_head / n);
  }
  return heads;
}

Index TraceInfo::layer_slot(Index layer) const {
  return slot_of(layers, layer, "layer");
}
Index TraceInfo::q_slot(Index q_head) const {
  return slot_of(q_heads, q_head, "query head");
}
Index TraceInfo::kv_slot(Index layer, Index kv_head) const {
  return slot_of(kv_heads_of(layer), kv_head, "KV head");
}

std::span<const float> TraceInfo::layer_sink_logits(Index layer) const {
  if (sink_logits.empty()) return {};
  const auto of_layer =
      std::span(sink_logits)
          .subspan(static_cast<std::size_t>(layer * n_q), static_cast<std::size_t>(n_q));
  return std::isfinite(of_layer.front()) ? of_layer : std::span<const float>();
}

std::optional<double> TraceInfo::sink_logit(Index layer, Index q_head) const {
  const std::span<const float> of_layer = layer_sink_logits(layer);
  if (of_layer.empty()) return std::nullopt;
  return static_cast<double>(of_layer[static_cast<std::size_t>(q_head)]);
}

std::span<const float> TraceInfo::frequencies_of(Index layer) const {
  const std::size_t n_pairs = rope_frequencies.size() / static_cast<std::size_t>(n_layers);
  const auto has_room = static_cast<std::size_t>(shape(layer).d_head / 2);
  return std::span(rope_frequencies)
      .subspan(static_cast<std::size_t>(layer) * n_pairs, std::min(n_pairs, has_room));
}

bool TraceInfo::has_experts(Index layer) const {
  const auto at = static_cast<std::size_t>(layer);
  return at < layer_kinds.size() && layer_kinds[at].n_experts > 0;
}

namespace {

template <class AreAlike>
std::vector<std::vector<Index>> alike_layers(const TraceInfo& info, const AreAlike& are_alike) {
  std::vector<std::vector<Index>> groups;
  for (const Index layer : info.layers) {
    const auto found = std::ranges::find_if(groups, [&](const std::vector<Index>& group) {
      return are_alike(info.shape(group.front()), info.shape(layer));
    });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(layer);
  }
  return groups;
}

/// The recorded layer that n_kv and what follows it speak of.
Index main_layer(const TraceInfo& info) {
  const auto full =
      std::ranges::find_if(info.layers, [&](Index layer) { return !info.window_of(layer); });
  return full != info.layers.end() ? *full : info.layers.front();
}

/// Leaves each layer as many pairs as heads of d_head channels have.
void cut_frequencies(TraceInfo& info) {
  const auto n_layers = static_cast<std::size_t>(info.n_layers);
  std::vector<float>& numbers = info.rope_frequencies;
  const std::size_t n_pairs = numbers.size() / n_layers;
  const std::size_t n_kept = std::min(n_pairs, static_cast<std::size_t>(info.d_head / 2));
  for (std::size_t i = 0; i < n_layers * n_kept; ++i)
    numbers[i] = numbers[i / n_kept * n_pairs + i % n_kept];
  numbers.resize(n_layers * n_kept);
}

}  // namespace

TraceInfo with_layers(const TraceInfo& info, std::vector<Index> layers) {
  for (const Index layer : layers) info.layer_slot(layer);
  TraceInfo part = info;
  part.layers = std::move(layers);
  if (!info.moved_scores.empty()) {
    part.moved_scores.clear();
    for (const Index layer : part.layers)
      part.moved_scores.push_back(
          info.moved_scores[static_cast<std::size_t>(info.layer_slot(layer))]);
  }
  std::erase_if(part.index.layers, [&](Index layer) { return !part.has_layer(layer); });
  if (part.index.empty()) part.index = {};
  if (info.layer_shapes.empty() || part.layers.empty()) return part;
  const Index first = main_layer(part);
  const LayerShape shape = info.shape(first);
  part.n_kv = shape.n_kv;
  part.d_head = shape.d_head;
  part.score_scale = shape.score_scale;
  part.score_cap = shape.score_cap;
  part.kv_heads = info.kv_heads_of(first);
  if (layers_by_shape(part).size() > 1) return part;
  part.layer_shapes.clear();
  cut_frequencies(part);
  return part;
}

std::vector<std::vector<Index>> layers_by_shape(const TraceInfo& info) {
  return alike_layers(info, [](const LayerShape& a, const LayerShape& b) { return a.is_like(b); });
}

std::vector<std::vector<Index>> layers_by_heads(const TraceInfo& info) {
  return alike_layers(info,
                      [](const LayerShape& a, const LayerShape& b) { return a.has_same_heads(b); });
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
  Index widest = info.d_head;
  for (const LayerShape& shape : info.layer_shapes) widest = std::max(widest, shape.d_head);
  const std::size_t n_frequencies = info.rope_frequencies.size();
  require(info.rope_amplitudes.size() == (n_frequencies == 0 ? 0 : n_layers) &&
              n_frequencies % n_layers == 0 &&
              2 * n_frequencies <= n_layers * static_cast<std::size_t>(widest),
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
  const float none = -std::numeric_limits<float>::infinity();
  const auto n_q = static_cast<std::size_t>(info.n_q);
  for (std::size_t i = 0; i < info.sink_logits.size(); ++i) {
    const bool has_none = info.sink_logits[i / n_q * n_q] == none;
    if (has_none ? info.sink_logits[i] == none : std::isfinite(info.sink_logits[i])) continue;
    throw ConfigError(
        "attention sink of layer {}, query head {}: expected a finite number (or -inf for all "
        "heads of a layer without sinks), found {}",
        i / n_q, i % n_q, info.sink_logits[i]);
  }
}

void check_shape(const TraceInfo& info, const LayerShape& shape, std::string_view where) {
  const auto at = [&](std::string_view what) { return fmt::format("{}{}", what, where); };
  require(shape.n_kv >= 1 && shape.n_kv < kMaxCount, at("n_kv"), "1 or more", shape.n_kv);
  require(shape.d_head >= 1 && shape.d_head < kMaxCount, at("d_head"), "1 or more", shape.d_head);
  require(info.n_q % shape.n_kv == 0, at("n_q"), fmt::format("a multiple of n_kv = {}", shape.n_kv),
          info.n_q);
}

void check_shapes(const TraceInfo& info) {
  check_shape(info, {info.n_kv, info.d_head}, "");
  require(info.layer_shapes.empty() || std::ssize(info.layer_shapes) == info.n_layers,
          "number of layer shapes", fmt::format("one per layer ({})", info.n_layers),
          std::ssize(info.layer_shapes));
  for (Index layer = 0; layer < std::ssize(info.layer_shapes); ++layer) {
    const LayerShape& shape = info.layer_shapes[static_cast<std::size_t>(layer)];
    const std::string where = fmt::format(" of layer {}", layer);
    check_shape(info, shape, where);
    if (!std::isfinite(shape.score_scale) || shape.score_scale <= 0.0f ||
        !std::isfinite(shape.score_cap) || shape.score_cap < 0.0f) {
      throw ConfigError(
          "score scale and cap{}: expected a positive number and 0 or more, found {} "
          "and {}",
          where, shape.score_scale, shape.score_cap);
    }
    const bool is_own = shape.keys_of == -1;
    require(is_own || (shape.keys_of >= 0 && shape.keys_of < layer), "keys_of" + where,
            "an earlier one, or -1", shape.keys_of);
    if (is_own) continue;
    const LayerShape owner = info.shape(shape.keys_of);
    require(owner.keys_of == -1 && owner.has_same_heads(shape), "keys_of" + where,
            "one with keys of its own in as many heads and channels", shape.keys_of);
  }
}

void check_main_shape(const TraceInfo& info) {
  const Index layer = main_layer(info);
  if (info.shape(layer).is_like(info.main_shape())) return;
  throw ConfigError(
      "n_kv, d_head, score_scale and score_cap: expected those of layer {} ({}, {}, {}, {}), found "
      "{}, {}, {}, {}",
      layer, info.shape(layer).n_kv, info.shape(layer).d_head, info.shape(layer).score_scale,
      info.shape(layer).score_cap, info.n_kv, info.d_head, info.score_scale, info.score_cap);
}

}  // namespace

void check_trace_info(const TraceInfo& info) {
  const auto positive = [](Index value, std::string_view what) {
    require(value >= 1 && value < kMaxCount, what, "1 or more", value);
  };
  positive(info.n_layers, "n_layers");
  positive(info.n_q, "n_q");
  positive(info.n_vocab, "n_vocab");
  positive(info.n_tokens, "n_tokens");
  positive(info.chunk, "chunk");
  positive(info.capture.page_size, "page_size");
  check_shapes(info);
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
  check_main_shape(info);
  check_index_shape(info.index, info.layers);
  check_ascending(info.q_heads, info.n_q, "recorded query heads");
  check_ascending(info.kv_heads, info.n_kv, "recorded KV heads");
  for (Index q_head : info.q_heads) {
    require(contains(info.kv_heads, q_head / info.group()), "recorded KV heads",
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
