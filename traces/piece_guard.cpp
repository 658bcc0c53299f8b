#include "traces/piece_guard.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr Index kMostExtraBytes = Index{64} << 20;  // that are read only to compare them

[[noreturn]] void fail_damaged(const TraceLayout& layout, const std::string& problem) {
  throw FormatError("{}: {}: the file is damaged; 'kvscope verify {}' lists all damage",
                    layout.file.name(), problem, layout.file.name());
}

}  // namespace

PieceGuard::PieceGuard(const TraceLayout& layout, Index n_calls, bool is_sealed)
    : n_calls_(n_calls),
      is_sealed_(is_sealed && !layout.info.content_hash.empty()),
      arrays_(std::make_unique<ArrayState[]>(layout.arrays.size())) {}

void PieceGuard::check_opening(const TraceLayout& layout, std::span<const TokenId> tokens) const {
  const auto table = layout.checksum_list.open(layout.file, 0).read_all<std::uint64_t>();
  Checksum checksum;
  for (Index call = 0; call < n_calls_; ++call) {
    const TokenRange range = layout.info.calls[static_cast<std::size_t>(call)].tokens;
    checksum.reset();
    checksum.add(tokens.data() + range.begin,
                 static_cast<std::size_t>(range.size()) * sizeof(TokenId));
    if (checksum.value() != table[static_cast<std::size_t>(call)]) {
      fail_damaged(layout,
                   fmt::format("/tokens: call {} (tokens {} to {}): the data do not have the "
                               "recorded checksum",
                               call, range.begin, range.end));
    }
  }
  if (!layout.file.has(schema::kModelChecksum)) return;  // an older file, or another writer's
  const auto model = layout.file.open_dataset(schema::kModelChecksum).read_all<std::uint64_t>();
  if (model.size() == 1 && model[0] == model_checksum(layout.info)) return;
  fail_damaged(layout, fmt::format("{} and {}: do not have the recorded checksum",
                                   schema::kConfigJson, schema::kLayerKinds));
}

void PieceGuard::check_text(const TraceLayout& layout, std::span<const std::int64_t> offsets,
                            std::span<const char> text) const {
  if (!layout.text_checksums) return;
  const auto table = layout.text_checksums->read_all<std::uint64_t>();
  Checksum checksum;
  for (Index call = 0; call < n_calls_; ++call) {
    const TokenRange range = layout.info.calls[static_cast<std::size_t>(call)].tokens;
    const auto index = offsets.subspan(static_cast<std::size_t>(range.begin),
                                       static_cast<std::size_t>(range.size()) + 1);
    checksum.reset();
    checksum.add(index.data(), index.size_bytes());
    checksum.add(text.data() + index.front(),
                 static_cast<std::size_t>(index.back() - index.front()));
    if (checksum.value() != table[static_cast<std::size_t>(call)]) {
      fail_damaged(layout, fmt::format("token text of call {} (tokens {} to {}): does not have the "
                                       "recorded checksum",
                                       call, range.begin, range.end));
    }
  }
}

void PieceGuard::check_content_hash(const TraceLayout& layout,
                                    std::span<const TokenId> tokens) const {
  if (!is_sealed_) return;
  std::vector<std::uint64_t> text;
  if (layout.text_checksums) text = layout.text_checksums->read_all<std::uint64_t>();
  const std::string found = hash_contents(
      layout.info, tokens, layout.checksum_list.size(),
      [&](std::size_t i) {
        return layout.checksum_list.open(layout.file, i).read_all<std::uint64_t>();
      },
      text);
  if (found == layout.info.content_hash) return;
  fail_damaged(layout,
               fmt::format("header and checksums give the content hash '{}', recorded is '{}'",
                           found, layout.info.content_hash));
}

PieceGuard::ArrayState& PieceGuard::state_of(const TraceLayout& layout, std::size_t array,
                                             std::span<const TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  if (!is_header_checked_) check_content_hash(layout, tokens);
  is_header_checked_ = true;
  ArrayState& state = arrays_[array];
  if (state.is_good == nullptr) {
    state.table = layout.checksum_list.open(layout.file, array).read_all<std::uint64_t>();
    state.is_good = std::make_unique<std::atomic<bool>[]>(state.table.size());
  }
  return state;
}

GuardedRead::GuardedRead(PieceGuard* guard, const TraceLayout& layout,
                         std::span<const TokenId> tokens, std::size_t array, Index head,
                         TokenRange range)
    : layout_(layout), array_(array), head_(head), range_(range) {
  if (guard == nullptr || range.size() == 0) return;
  state_ = &guard->state_of(layout, array, tokens);
  n_calls_ = guard->n_calls_;
  // The first call of which positions lie behind the range's begin.
  const auto& calls = layout.info.calls;
  const auto found =
      std::partition_point(calls.begin(), calls.begin() + n_calls_, [&](const ForwardCall& call) {
        return schema::positions_of(layout.arrays[array], layout.info, call).end <= range.begin;
      });
  first_call_ = call_ = found - calls.begin();
}

TokenRange GuardedRead::positions(Index call) const {
  return schema::positions_of(layout_.arrays[array_], layout_.info,
                              layout_.info.calls[static_cast<std::size_t>(call)]);
}

bool GuardedRead::is_good(Index call) const {
  const Index n_heads = layout_.arrays[array_].n_heads();
  return state_->is_good[static_cast<std::size_t>(call * n_heads + head_)].load(
      std::memory_order_relaxed);
}

std::uint64_t GuardedRead::recorded(Index call) const {
  const Index n_heads = layout_.arrays[array_].n_heads();
  return state_->table[static_cast<std::size_t>(call * n_heads + head_)];
}

void GuardedRead::settle(Index call, const std::string& problem) {
  if (!problem.empty()) fail_damaged(layout_, problem);
  const Index n_heads = layout_.arrays[array_].n_heads();
  state_->is_good[static_cast<std::size_t>(call * n_heads + head_)].store(
      true, std::memory_order_relaxed);
}

void GuardedRead::add(Index first, Index n, std::span<const std::byte> rows) {
  if (state_ == nullptr || n == 0) return;
  const std::size_t row_bytes = rows.size() / static_cast<std::size_t>(n);
  for (Index at = first; at < first + n && call_ < n_calls_;) {
    const TokenRange piece = positions(call_);
    if (piece.end <= at) {
      ++call_;
      continue;
    }
    const Index stop = std::min(first + n, piece.end);
    const bool is_whole = piece.begin >= range_.begin && piece.end <= range_.end;
    if (is_whole && !is_good(call_)) {
      if (hashed_call_ != call_) {
        if (!check_) check_.emplace(layout_, array_, head_);
        check_->begin(call_);
        hashed_call_ = call_;
      }
      check_->add(at, stop - at,
                  rows.subspan(static_cast<std::size_t>(at - first) * row_bytes,
                               static_cast<std::size_t>(stop - at) * row_bytes));
      if (stop == piece.end) settle(call_, check_->problem(recorded(call_)));
    }
    at = stop;
  }
}

void GuardedRead::finish() {
  if (state_ == nullptr) return;
  const auto& spec = layout_.arrays[array_];
  const Index row_bytes = spec.row_size() * static_cast<Index>(h5::size_of(spec.type));
  for (const Index call : {first_call_, call_}) {
    if (call >= n_calls_ || is_good(call)) continue;
    const TokenRange piece = positions(call);
    const bool was_read = piece.begin < range_.end && piece.end > range_.begin;
    if (!was_read || piece.size() * row_bytes > kMostExtraBytes) continue;
    settle(call, check_piece(layout_, array_, call, head_, {}, recorded(call)));
  }
}

}  // namespace kvscope
