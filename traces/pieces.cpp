#include "traces/pieces.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

constexpr Index kBlockBytes = Index{4} << 20;

}  // namespace

void for_each_block(const schema::ArraySpec& array, const h5::Dataset& data, Index head,
                    TokenRange range, const BlockFn& visit) {
  const Index row_bytes = array.row_size() * static_cast<Index>(h5::size_of(array.type));
  const Index most = std::max<Index>(kBlockBytes / std::max<Index>(row_bytes, 1), 1);
  std::vector<std::byte> block;
  for (Index first = range.begin; first < range.end; first += most) {
    const Index n = std::min(most, range.end - first);
    h5::Dims offset(array.dims.size(), 0);
    h5::Dims size = array.dims;
    if (array.has_heads) {
      offset[0] = head;
      size[0] = 1;
    }
    offset[array.growing_axis()] = first;
    size[array.growing_axis()] = n;
    block.resize(static_cast<std::size_t>(n * row_bytes));
    data.read(offset, size, block.data());
    visit(first, n, block);
  }
}

std::uint64_t recorded_checksum(const TraceLayout& layout, std::size_t array, Index call,
                                Index head) {
  std::uint64_t value = 0;
  if (layout.arrays[array].has_heads) {
    layout.checksums(array).read({call, head}, {1, 1}, &value);
  } else {
    layout.checksums(array).read({call}, {1}, &value);
  }
  return value;
}

PieceCheck::PieceCheck(const TraceLayout& layout, std::size_t array, Index head)
    : layout_(&layout), array_(array), head_(head) {}

void PieceCheck::begin(Index call) {
  const auto& spec = layout_->arrays[array_];
  const std::size_t element = h5::size_of(spec.type);
  call_ = call;
  row_bytes_ = static_cast<std::size_t>(spec.row_size()) * element;
  const Index end = layout_->info.calls[static_cast<std::size_t>(call)].tokens.end;
  filled_bytes_ = static_cast<std::size_t>(spec.filled_row_size(end)) * element;
  checksum_.reset();
  bad_row_ = -1;
}

void PieceCheck::add(Index first, Index n, std::span<const std::byte> rows) {
  if (filled_bytes_ == row_bytes_) {
    checksum_.add(rows.data(), rows.size());
    return;
  }
  for (Index i = 0; i < n; ++i) {
    const auto row = rows.subspan(static_cast<std::size_t>(i) * row_bytes_, row_bytes_);
    checksum_.add(row.data(), filled_bytes_);
    const auto rest = row.subspan(filled_bytes_);
    if (std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; })) {
      bad_row_ = first + i;
    }
  }
}

std::string PieceCheck::problem(std::uint64_t recorded) const {
  const auto& spec = layout_->arrays[array_];
  if (bad_row_ >= 0) {
    return fmt::format("{}: head slot {}, row {}: keys after the call's last token are not zero",
                       spec.path, head_, bad_row_);
  }
  if (checksum_.value() == recorded) return {};
  const TokenRange tokens = layout_->info.calls[static_cast<std::size_t>(call_)].tokens;
  return fmt::format(
      "{}: call {} (tokens {} to {}), head slot {}: the data do not have the recorded checksum",
      spec.path, call_, tokens.begin, tokens.end, head_);
}

std::string check_piece(const TraceLayout& layout, std::size_t array, Index call, Index head,
                        const BlockFn& visit, std::optional<std::uint64_t> recorded) {
  const auto& spec = layout.arrays[array];
  const ForwardCall& range = layout.info.calls[static_cast<std::size_t>(call)];
  PieceCheck check(layout, array, head);
  check.begin(call);
  for_each_block(spec, layout.data(array), head, schema::positions_of(spec, layout.info, range),
                 [&](Index first, Index n, std::span<const std::byte> rows) {
                   check.add(first, n, rows);
                   if (visit) visit(first, n, rows);
                 });
  return check.problem(recorded ? *recorded : recorded_checksum(layout, array, call, head));
}

std::uint64_t text_checksum(const TraceLayout& layout, Index call) {
  const TokenRange range = layout.info.calls[static_cast<std::size_t>(call)].tokens;
  std::vector<std::int64_t> index(static_cast<std::size_t>(range.size()) + 1);
  layout.token_offsets->read({range.begin}, {range.size() + 1}, index.data());
  if (!std::is_sorted(index.begin(), index.end()) || index.front() < 0 ||
      index.back() > layout.token_bytes->dims()[0]) {
    throw FormatError("{}: offsets of tokens {} to {} go backwards or leave the text of {} bytes",
                      layout.token_offsets->where(), range.begin, range.end,
                      layout.token_bytes->dims()[0]);
  }
  std::vector<std::uint8_t> text(static_cast<std::size_t>(index.back() - index.front()));
  layout.token_bytes->read({index.front()}, {static_cast<Index>(text.size())}, text.data());
  Checksum checksum;
  checksum.add(index.data(), index.size() * sizeof index[0]);
  checksum.add(text.data(), text.size());
  return checksum.value();
}

std::string check_text(const TraceLayout& layout, Index call) {
  if (!layout.token_bytes) return {};
  std::uint64_t recorded = 0;
  layout.text_checksums->read({call}, {1}, &recorded);
  if (recorded == text_checksum(layout, call)) return {};
  return fmt::format("token text of call {}: does not have the recorded checksum", call);
}

std::string check_call(const TraceLayout& layout, Index call) try {
  for (std::size_t array = 0; array < layout.arrays.size(); ++array) {
    for (Index head = 0; head < layout.arrays[array].n_heads(); ++head) {
      std::string problem = check_piece(layout, array, call, head, {});
      if (!problem.empty()) return problem;
    }
  }
  return check_text(layout, call);
} catch (const FormatError& error) {
  return error.what();
}

}  // namespace kvscope
