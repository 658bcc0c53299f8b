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

PieceGuard::PieceGuard(const TraceLayout& layout, Index n_units, bool is_sealed)
    : n_units_(n_units),
      is_sealed_(is_sealed && !layout.info.content_hash.empty()),
      arrays_(std::make_unique<ArrayState[]>(layout.arrays.size())) {}

void PieceGuard::check_opening(const TraceLayout& layout, std::span<const TokenId> tokens) const {
  const auto table = layout.checksum_list.open(layout.file, 0).read_all<std::uint64_t>();
  Checksum checksum;
  for (Index unit = 0; unit < n_units_; ++unit) {
    const TokenRange range = layout.info.units[static_cast<std::size_t>(unit)].tokens;
    checksum.reset();
    checksum.add(tokens.data() + range.begin,
                 static_cast<std::size_t>(range.size()) * sizeof(TokenId));
    if (checksum.value() != table[static_cast<std::size_t>(unit)]) {
      fail_damaged(layout,
                   fmt::format("/tokens: unit {} (tokens {} to {}): the data do not have the "
                               "recorded checksum",
                               unit, range.begin, range.end));
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
  for (Index unit = 0; unit < n_units_; ++unit) {
    const TokenRange range = layout.info.units[static_cast<std::size_t>(unit)].tokens;
    const auto index = offsets.subspan(static_cast<std::size_t>(range.begin),
                                       static_cast<std::size_t>(range.size()) + 1);
    checksum.reset();
    checksum.add(index.data(), index.size_bytes());
    checksum.add(text.data() + index.front(),
                 static_cast<std::size_t>(index.back() - index.front()));
    if (checksum.value() != table[static_cast<std::size_t>(unit)]) {
      fail_damaged(layout, fmt::format("token text of unit {} (tokens {} to {}): does not have the "
                                       "recorded checksum",
                                       unit, range.begin, range.end));
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
  n_units_ = guard->n_units_;
  // The first unit of which positions lie behind the range's begin.
  const auto& units = layout.info.units;
  const auto found =
      std::partition_point(units.begin(), units.begin() + n_units_, [&](const TraceUnit& unit) {
        return schema::positions_of(layout.arrays[array], layout.info, unit).end <= range.begin;
      });
  first_unit_ = unit_ = found - units.begin();
}

TokenRange GuardedRead::positions(Index unit) const {
  return schema::positions_of(layout_.arrays[array_], layout_.info,
                              layout_.info.units[static_cast<std::size_t>(unit)]);
}

bool GuardedRead::is_good(Index unit) const {
  const Index n_heads = layout_.arrays[array_].n_heads();
  return state_->is_good[static_cast<std::size_t>(unit * n_heads + head_)].load(
      std::memory_order_relaxed);
}

std::uint64_t GuardedRead::recorded(Index unit) const {
  const Index n_heads = layout_.arrays[array_].n_heads();
  return state_->table[static_cast<std::size_t>(unit * n_heads + head_)];
}

void GuardedRead::settle(Index unit, const std::string& problem) {
  if (!problem.empty()) fail_damaged(layout_, problem);
  const Index n_heads = layout_.arrays[array_].n_heads();
  state_->is_good[static_cast<std::size_t>(unit * n_heads + head_)].store(
      true, std::memory_order_relaxed);
}

void GuardedRead::add(Index first, Index n, std::span<const std::byte> rows) {
  if (state_ == nullptr || n == 0) return;
  const std::size_t row_bytes = rows.size() / static_cast<std::size_t>(n);
  for (Index at = first; at < first + n && unit_ < n_units_;) {
    const TokenRange piece = positions(unit_);
    if (piece.end <= at) {
      ++unit_;
      continue;
    }
    const Index stop = std::min(first + n, piece.end);
    const bool is_whole = piece.begin >= range_.begin && piece.end <= range_.end;
    if (is_whole && !is_good(unit_)) {
      if (hashed_unit_ != unit_) {
        if (!check_) check_.emplace(layout_, array_, head_);
        check_->begin(unit_);
        hashed_unit_ = unit_;
      }
      check_->add(at, stop - at,
                  rows.subspan(static_cast<std::size_t>(at - first) * row_bytes,
                               static_cast<std::size_t>(stop - at) * row_bytes));
      if (stop == piece.end) settle(unit_, check_->problem(recorded(unit_)));
    }
    at = stop;
  }
}

void GuardedRead::finish() {
  if (state_ == nullptr) return;
  const auto& spec = layout_.arrays[array_];
  const Index row_bytes = spec.row_size() * static_cast<Index>(h5::size_of(spec.type));
  for (const Index unit : {first_unit_, unit_}) {
    if (unit >= n_units_ || is_good(unit)) continue;
    const TokenRange piece = positions(unit);
    const bool was_read = piece.begin < range_.end && piece.end > range_.begin;
    if (!was_read || piece.size() * row_bytes > kMostExtraBytes) continue;
    settle(unit, check_piece(layout_, array_, unit, head_, {}, recorded(unit)));
  }
}

}  // namespace kvscope
