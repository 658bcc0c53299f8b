#include "traces/python/native/kept_lists.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/list_owner.hpp"

namespace kvscope::python {

namespace {

std::string list_words(ListOwner owner, Index index) {
  return owner == ListOwner::layer ? "the layer's list"
                                   : fmt::format("the list of {} {}", words_for(owner), index);
}

/// The KV heads whose keys an owner's list is about.
TokenRange kv_heads_of(const SelectCall& call, ListOwner owner, Index index) {
  const Index n_kv = call.k.dim(0);
  if (owner == ListOwner::layer) return {0, n_kv};
  const Index head = owner == ListOwner::kv_head ? index : index / (call.q.dim(0) / n_kv);
  return {head, head + 1};
}

bool counts(const SelectCall& call, TokenRange kv_heads, Index pos) {
  for (Index head = kv_heads.begin; head < kv_heads.end; ++head) {
    if (is_alive(call, head, pos)) return true;
  }
  return false;
}

/// The past keys that may be in an owner's list: alive for one of its KV heads.
std::vector<KeyPos> past_keys(const SelectCall& call, ListOwner owner, Index index) {
  const TokenRange heads = kv_heads_of(call, owner, index);
  if (heads.size() == 1) return candidates(call, heads.begin, past_range(call));
  std::vector<KeyPos> keys;
  const TokenRange past = past_range(call);
  for (Index pos = past.begin; pos < past.end; ++pos) {
    if (counts(call, heads, pos)) keys.push_back(static_cast<KeyPos>(pos));
  }
  return keys;
}

/// Scored past keys and, forced, the call's own ones.
Selection selection_of(const SelectCall& call, ListOwner owner, std::vector<KeyList> lists) {
  Selection selection(owner, call.n_tok, call.n_tok);
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const TokenRange heads = kv_heads_of(call, owner, static_cast<Index>(i));
    for (Index pos = call.pos_begin; pos < call.pos_begin + call.n_tok; ++pos) {
      if (counts(call, heads, pos)) lists[i].forced.push_back(static_cast<KeyPos>(pos));
    }
    selection.add(lists[i]);
  }
  return owner == ListOwner::layer ? without_dead_keys(std::move(selection), call)
                                   : std::move(selection);
}

}  // namespace

Index n_owners(const SelectCall& call, ListOwner owner) {
  return kvscope::n_owners(owner, call.q.dim(0), call.k.dim(0));
}

std::string words_of(const SelectCall& call) {
  return fmt::format("layer {}, {} call {}, positions {} to {}, {} keys, budget {}", call.layer,
                     enum_name(call.phase), call.step, call.pos_begin,
                     call.pos_begin + call.n_tok - 1, call.k.dim(1), call.budget.to_string());
}

Index n_keep(const SelectCall& call, ListOwner owner, Index index, Index page_size) {
  const auto n_past = static_cast<Index>(past_keys(call, owner, index).size());
  return std::min(call.budget.tokens(n_past, page_size), n_past);
}

Selection best_keys(const std::string& method, const SelectCall& call, ListOwner owner,
                    Index page_size, std::span<const double> scores, Index n_rows, Index width) {
  const Index n_lists = n_owners(call, owner);
  if (n_rows != n_lists || (width != call.pos_begin && width != call.k.dim(1))) {
    throw ConfigError(
        "selector {}: its scores have shape [{}, {}], expected [{}, {}] (one row per {}, one score "
        "per key before the call) or [{}, {}] (the call's own keys too); {}",
        method, n_rows, width, n_lists, call.pos_begin, words_for(owner), n_lists, call.k.dim(1),
        words_of(call));
  }
  if (call.budget.kind == Budget::Kind::mass) {
    throw ConfigError(
        "selector {}: a budget of kind p says how much weight to keep, not how many keys: expected "
        "the keys themselves, found scores; {}",
        method, words_of(call));
  }
  std::vector<KeyList> lists;
  std::vector<double> of_candidates;
  for (Index i = 0; i < n_lists; ++i) {
    const std::vector<KeyPos> past = past_keys(call, owner, i);
    const auto row =
        scores.subspan(static_cast<std::size_t>(i * width), static_cast<std::size_t>(width));
    of_candidates.clear();
    for (const KeyPos pos : past) {
      const double score = row[static_cast<std::size_t>(pos)];
      if (std::isnan(score)) {
        throw ConfigError(
            "selector {}: the score of position {} in {} is NaN, expected a number; {}", method,
            pos, list_words(owner, i), words_of(call));
      }
      of_candidates.push_back(score);
    }
    lists.push_back(top_k_list(of_candidates, past,
                               call.budget.tokens(static_cast<Index>(past.size()), page_size)));
  }
  return selection_of(call, owner, std::move(lists));
}

Selection stated_keys(const std::string& method, const SelectCall& call, ListOwner owner,
                      Index page_size, std::vector<std::vector<Index>> lists) {
  const auto broken = [&](Index index, const std::string& what) {
    return ConfigError("selector {}: {} {}; {}", method, list_words(owner, index), what,
                       words_of(call));
  };
  const Index n_lists = n_owners(call, owner);
  if (static_cast<Index>(lists.size()) != n_lists) {
    throw ConfigError("selector {}: it returned {} lists of keys, expected {}, one per {}; {}",
                      method, lists.size(), n_lists, words_for(owner), words_of(call));
  }
  const Index n_ctx = call.k.dim(1);
  std::vector<KeyList> checked;
  for (Index i = 0; i < n_lists; ++i) {
    std::vector<Index>& keys = lists[static_cast<std::size_t>(i)];
    const TokenRange heads = kv_heads_of(call, owner, i);
    std::sort(keys.begin(), keys.end());
    KeyList list;
    for (std::size_t at = 0; at < keys.size(); ++at) {
      const Index pos = keys[at];
      if (pos < 0) throw broken(i, fmt::format("holds position {}, expected 0 or more", pos));
      if (pos >= n_ctx) {
        throw broken(
            i, fmt::format("holds position {}, which lies in the future: expected less than {}",
                           pos, n_ctx));
      }
      if (at > 0 && keys[at - 1] == pos)
        throw broken(i, fmt::format("holds position {} twice", pos));
      if (!counts(call, heads, pos)) {
        throw broken(
            i,
            fmt::format(
                "holds position {}, whose key is dead: another method evicted it (call.alive says "
                "which are left)",
                pos));
      }
      // The call's own are forced anyway.
      if (pos < call.pos_begin) list.scored.push_back(static_cast<KeyPos>(pos));
    }
    if (call.budget.kind != Budget::Kind::mass) {
      const auto n_past = static_cast<Index>(past_keys(call, owner, i).size());
      const Index most = std::min(call.budget.tokens(n_past, page_size), n_past);
      if (static_cast<Index>(list.scored.size()) > most) {
        throw broken(i, fmt::format("holds {} keys before the call, over the budget of {}",
                                    list.scored.size(), most));
      }
    }
    checked.push_back(std::move(list));
  }
  return selection_of(call, owner, std::move(checked));
}

}  // namespace kvscope::python
