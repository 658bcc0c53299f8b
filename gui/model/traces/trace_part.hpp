// A trace of which only some layers and heads are seen: analyses of the selected head take no
// longer than that head.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "analysis/base/trace_selection.hpp"
#include "core/trace/result.hpp"
#include "core/trace/source.hpp"

namespace kvscope::gui {

/// Reads go to the whole trace, which must outlive this one. What an analysis writes about the part
/// equals what it writes about these layers and heads of the whole.
class TracePart final : public TraceSource {
 public:
  /// Throws ConfigError for a layer or head that was not recorded.
  TracePart(const TraceSource& whole, const TraceSelection& selection)
      : whole_(whole), info_(selected_part(whole.info(), selection)) {}

  const TraceInfo& info() const override { return info_; }
  std::string where() const override { return whole_.where(); }
  std::span<const TokenId> tokens() const override { return whole_.tokens(); }
  std::vector<std::string> token_bytes() const override { return whole_.token_bytes(); }
  Tensor<float> read(TraceTensor what, Index layer, Index head, TokenRange range) const override {
    return whole_.read(what, layer, head, range);
  }
  Tensor<float> read_side(SideTensor what, Index layer, Index head,
                          TokenRange range) const override {
    return whole_.read_side(what, layer, head, range);
  }
  Tensor<std::int32_t> read_selected(Index layer, Index list, TokenRange range) const override {
    return whole_.read_selected(layer, list, range);
  }

 private:
  const TraceSource& whole_;
  TraceInfo info_;
};

/// The file name of a trace without folders, for titles and captions.
inline std::string file_name_of(const TraceSource& trace) {
  return std::filesystem::path(trace.where()).filename().string();
}

/// Positions from 0 on at which both traces hold the same tokens.
inline Index n_common_tokens(const TraceSource& a, const TraceSource& b) {
  const auto n = static_cast<std::size_t>(std::min(a.info().n_tokens, b.info().n_tokens));
  const auto x = a.tokens().first(std::min(n, a.tokens().size()));
  const auto y = b.tokens().first(std::min(n, b.tokens().size()));
  return std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin();
}

/// What its arrays cost to keep.
inline std::size_t bytes_of(const MemoryResult& result) {
  std::size_t bytes = 0;
  for (const ResultArray& array : result.arrays()) {
    bytes += static_cast<std::size_t>(array.shape.count()) * size_of(array.type);
  }
  return bytes;
}

/// The recorded query heads that share a KV head with this one, ascending.
inline std::vector<Index> recorded_group_of(const TraceInfo& info, Index q_head) {
  std::vector<Index> heads;
  for (Index head : info.q_heads) {
    if (head / info.group() == q_head / info.group()) heads.push_back(head);
  }
  return heads;
}

}  // namespace kvscope::gui
