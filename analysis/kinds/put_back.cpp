#include "analysis/kinds/put_back.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

/// Every key up to the end of the call; the causal mask is the engine's.
KeyList all_keys(const SelectCall& call) {
  KeyList list;
  list.scored.resize(static_cast<std::size_t>(call.pos_begin + call.n_tok));
  std::iota(list.scored.begin(), list.scored.end(), KeyPos{0});
  return list;
}

KeyList with_key(const ListView& view, Index key) {
  KeyList list{view.scored(), view.forced(), {}};
  if (std::ranges::binary_search(view.keys, static_cast<KeyPos>(key))) return list;
  const auto at = std::ranges::lower_bound(list.scored, static_cast<KeyPos>(key));
  const auto place = at - list.scored.begin();
  list.scored.insert(at, static_cast<KeyPos>(key));
  if (view.log_weight.empty()) return list;
  for (std::size_t i = 0; i < view.keys.size(); ++i) {
    if (view.is_forced[i] == 0) list.log_weight.push_back(view.log_weight[i]);
  }
  list.log_weight.insert(list.log_weight.begin() + place, 0.0f);
  return list;
}

}  // namespace

std::string PutBack::text() const {
  if (layer < 0) return "all";
  std::string text = fmt::format("{}", layer);
  if (q_head >= 0) text += fmt::format(":{}", q_head);
  if (key >= 0) text += fmt::format(":{}", key);
  return text;
}

std::string PutBack::words() const {
  if (layer < 0) return "all layers";
  std::string words = fmt::format("layer {}", layer);
  if (q_head >= 0) words += fmt::format(", head {}", q_head);
  if (key >= 0) words += fmt::format(", key {}", key);
  return words;
}

PutBack PutBack::parse(const std::string& text) {
  PutBack what;
  if (text == "all") return what;
  const std::vector<std::string> parts = split_words(text, ':');
  Index* const places[] = {&what.layer, &what.q_head, &what.key};
  bool is_right = !parts.empty() && parts.size() <= std::size(places);
  for (std::size_t i = 0; is_right && i < parts.size(); ++i) {
    *places[i] = number_from<Index>(parts[i]).value_or(-1);
    is_right = *places[i] >= 0;
  }
  if (!is_right)
    throw ConfigError("--put-back: expected LAYER, LAYER:HEAD, LAYER:HEAD:KEY or all, found {}",
                      text);
  return what;
}

bool has_lists_of_heads(const Selection& selection) {
  return selection.summaries.empty() || selection.summaries.has_stated_share();
}

Selection with_put_back(Selection selection, const SelectCall& call, const PutBack& what) {
  const bool is_there = what.key < call.pos_begin + call.n_tok;
  if (selection.is_dense || !what.is_in(call.layer) || !is_there) return selection;
  if (what.q_head < 0) {
    Selection dense(ListOwner::layer, call.n_tok, call.n_tok);
    dense.is_dense = true;
    return dense;
  }
  const Index n_q = call.q.dim(0);
  const Index group = n_q / call.k.dim(0);
  Selection out(ListOwner::q_head, selection.n_tok, selection.rows_per_list);
  out.summaries = std::move(selection.summaries);
  for (Index head = 0; head < n_q; ++head) {
    const Index owner = owner_of(selection.owner, head, group);
    for (Index block = 0; block < selection.n_row_blocks(); ++block) {
      const ListView list = selection.at(owner * selection.n_row_blocks() + block);
      if (head != what.q_head) {
        out.add(list);
      } else {
        out.add(what.key < 0 ? all_keys(call) : with_key(list, what.key));
      }
    }
  }
  if (what.key < 0 && out.summaries.has_stated_share()) {
    for (Index row = 0; row < call.n_tok; ++row) out.summaries.list_share(what.q_head, row) = 1.0f;
  }
  return out;
}

std::string recovered_text(double share) {
  return std::isnan(share) ? "-" : share > 1.0005 ? "more than all" : percent_text(share);
}

}  // namespace kvscope
