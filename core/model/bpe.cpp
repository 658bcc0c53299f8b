#include "core/model/bpe.hpp"

#include <algorithm>
#include <utility>

#include "core/base/splitmix64.hpp"
#include "core/base/utf8.hpp"

namespace kvscope {

namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

// The standard library's own hash of an integer is that integer, whose low bits are those of the
// right token alone.
std::size_t Bpe::PairHash::operator()(std::uint64_t pair) const {
  return splitmix64_mix(pair);
}

Bpe::Bpe(BpeTables tables) : tables_(std::move(tables)) {
  rules_.reserve(tables_.merges.size());
  for (std::size_t i = 0; i < tables_.merges.size(); ++i) {
    const BpeTables::Merge& merge = tables_.merges[i];
    const auto rank = tables_.ranks.empty() ? static_cast<std::uint32_t>(i) : tables_.ranks[i];
    rules_.insert_or_assign(pair_key(merge.left, merge.right), Rule{rank, merge.merged});
  }
  tables_.merges = {};
  tables_.ranks = {};
}

std::optional<TokenId> Bpe::find(std::string_view bytes) const {
  const auto it = tables_.id_from_bytes.find(bytes);
  if (it == tables_.id_from_bytes.end()) return std::nullopt;
  return it->second;
}

const Bpe::Rule* Bpe::rule_for(TokenId left, TokenId right) const {
  const auto it = rules_.find(pair_key(left, right));
  return it == rules_.end() ? nullptr : &it->second;
}

// The symbols of a piece, linked in order.
void Bpe::start(std::string_view piece, std::vector<Symbol>& symbols) const {
  symbols.clear();
  if (tables_.symbols == BpeSymbols::bytes) {
    start_bytes(piece, symbols);
  } else {
    start_characters(piece, symbols);
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

void Bpe::start_characters(std::string_view piece, std::vector<Symbol>& symbols) const {
  const auto add = [&](TokenId id) {
    const auto i = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, i - 1, i + 1, /*is_alive=*/true});
  };
  // As in the tokenizers library, an unknown character waits for the next known one, so that a run
  // can be fused; bytes that a fallback gives do not end the run.
  bool unknown_waits = false;
  const auto flush = [&] {
    if (unknown_waits) add(*tables_.unknown_id);
    unknown_waits = false;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t size = utf8_char_at(piece, at).size;
    const std::string_view character = piece.substr(at, size);
    at += size;
    if (const auto id = find(character)) {
      flush();
      add(*id);
      continue;
    }
    const auto byte_id = [&](char c) {
      return tables_.id_from_byte[static_cast<unsigned char>(c)];
    };
    if (std::all_of(character.begin(), character.end(), byte_id)) {
      for (char c : character) add(*byte_id(c));
    } else if (tables_.unknown_id) {
      if (!tables_.fuse_unknown) flush();
      unknown_waits = true;
    }
  }
  flush();
}

void Bpe::start_bytes(std::string_view piece, std::vector<Symbol>& symbols) const {
  bool after_unknown = false;
  for (char c : piece) {
    const std::optional<TokenId> id = tables_.id_from_byte[static_cast<unsigned char>(c)];
    const bool is_unknown = !id;
    if (is_unknown && (!tables_.unknown_id || (tables_.fuse_unknown && after_unknown))) continue;
    const auto i = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({is_unknown ? *tables_.unknown_id : *id, i - 1, i + 1, /*is_alive=*/true});
    after_unknown = is_unknown;
  }
}

void Bpe::queue_pair(Scratch& scratch, std::int32_t left) const {
  const Symbol& symbol = scratch.symbols[static_cast<std::size_t>(left)];
  if (symbol.next < 0) return;
  const Rule* rule = rule_for(symbol.id, scratch.symbols[static_cast<std::size_t>(symbol.next)].id);
  if (rule == nullptr) return;
  const std::uint64_t order = std::uint64_t{rule->rank} << 32 | static_cast<std::uint32_t>(left);
  scratch.queue.push_back({order, rule->merged});
  std::push_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  if (tables_.ignore_merges) {
    if (const auto id = find(piece)) {
      out.push_back(*id);
      return;
    }
  }
  auto& symbols = scratch.symbols;
  start(piece, symbols);
  scratch.queue.clear();
  for (std::size_t i = 0; i < symbols.size(); ++i)
    queue_pair(scratch, static_cast<std::int32_t>(i));

  while (!scratch.queue.empty()) {
    std::pop_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
    const Candidate best = scratch.queue.back();
    scratch.queue.pop_back();
    const auto at = static_cast<std::int32_t>(best.order & 0xffffffffu);
    Symbol& left = symbols[static_cast<std::size_t>(at)];
    if (!left.is_alive || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    // The neighbours may have changed since. As in the tokenizers library, another pair that gives
    // the same token still counts.
    const Rule* rule = rule_for(left.id, right.id);
    if (rule == nullptr || rule->merged != best.merged) continue;

    left.id = best.merged;
    left.next = right.next;
    right.is_alive = false;
    if (right.next >= 0) symbols[static_cast<std::size_t>(right.next)].previous = at;
    if (left.previous >= 0) queue_pair(scratch, left.previous);
    queue_pair(scratch, at);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.is_alive) out.push_back(symbol.id);
  }
}

}  // namespace kvscope
