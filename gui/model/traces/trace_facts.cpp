#include "gui/model/traces/trace_facts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvscope::gui {

namespace {

constexpr std::string_view kEllipsis = "…";

std::string plural(Index n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

/// Byte offsets at which characters of UTF-8 text begin, and its end.
std::vector<std::size_t> character_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) starts.push_back(i);
  }
  starts.push_back(text.size());
  return starts;
}

}  // namespace

std::string status_words(const TraceInfo& info, const TraceInfo& planned) {
  std::string words(enum_name(info.status));
  if (info.calls.size() < planned.calls.size()) {
    words += fmt::format(": {} of {} chunks and steps", info.calls.size(), planned.calls.size());
  }
  return words;
}

std::string trace_summary(const Document& document) {
  const TraceInfo& info = document.info();
  if (const auto rate = document.tokens_per_second(); rate && document.is_being_recorded()) {
    return fmt::format("live · {} of {} tokens · {:.0f} / s", info.n_tokens,
                       document.file().planned().n_tokens, *rate);
  }
  return fmt::format("{} · {} · {}", info.model_name.empty() ? "model" : info.model_name,
                     plural(info.n_tokens, "token", "tokens"), enum_name(info.status));
}

std::string shortened_middle(std::string_view text,
                             const std::function<bool(std::string_view)>& fits) {
  if (fits(text)) return std::string(text);
  const auto starts = character_starts(text);
  const std::size_t n = starts.size() - 1;
  // The end says more than the beginning: "…-run-7.h5" tells files apart.
  const auto with = [&](std::size_t kept) {
    const std::size_t head = kept / 2;
    const std::size_t tail = kept - head;
    return fmt::format("{}{}{}", text.substr(0, starts[head]), kEllipsis,
                       text.substr(starts[n - tail]));
  };
  std::size_t low = 0;
  std::size_t high = n == 0 ? 0 : n - 1;
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (fits(with(middle))) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return with(low);
}

// ---- the grid ----

bool HeadGrid::is_recorded(Index layer, Index q_head) const {
  const auto l = static_cast<std::size_t>(layer);
  const auto h = static_cast<std::size_t>(q_head);
  return l < layers.size() && h < recorded_heads.size() && layers[l].is_recorded &&
         recorded_heads[h];
}

HeadGrid head_grid(const TraceInfo& info) {
  HeadGrid grid;
  const bool has_blocks = layers_by_heads(info).size() == 1;  // else each layer has its own
  grid.group = has_blocks ? std::max<Index>(1, info.group()) : 1;
  for (Index head = 0; head < info.n_q; ++head) {
    grid.recorded_heads.push_back(info.has_q_head(head));
  }
  bool any_window = false;
  bool any_experts = false;
  bool any_without_rope = false;
  for (Index i = 0; i < info.n_layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    GridLayer layer{.layer = i, .is_recorded = info.has_layer(i)};
    const auto window = info.window_of(i);
    layer.words.push_back(window ? fmt::format("sliding window of {} tokens", *window)
                                 : "full attention");
    if (!has_blocks) layer.words.push_back(fmt::format("{} KV heads", info.shape(i).n_kv));
    if (window) layer.marks += 'w';
    any_window |= window.has_value();
    if (at < info.layer_kinds.size()) {
      const LayerKind& kind = info.layer_kinds[at];
      layer.words.push_back(
          kind.n_experts > 0
              ? fmt::format("{} experts, {} per token", kind.n_experts, info.n_experts_per_token)
              : "dense MLP");
      if (kind.n_experts > 0) layer.marks += 'e';
      any_experts |= kind.n_experts > 0;
      if (!kind.has_rope) {
        layer.words.push_back("no rotary positions");
        layer.marks += 'n';
        any_without_rope = true;
      }
    }
    grid.layers.push_back(std::move(layer));
  }
  if (any_window) grid.legend.emplace_back("w", "sliding window");
  if (any_experts) grid.legend.emplace_back("e", "experts");
  if (any_without_rope) grid.legend.emplace_back("n", "no rotary positions");
  return grid;
}

}  // namespace kvscope::gui
