// Reads a trace file: slices by layer, head and position, as f32, whatever the storage type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/trace/source.hpp"

namespace kvscope {

struct OpenOptions {
  /// Also open a file that is still being recorded, or was when its writer was killed.
  bool allow_partial = false;
  /// Compare what is read with its checksums; false for who compares them all.
  bool check_data = true;
};

/// The N most probable keys of each row, by falling probability; pos -1 and prob 0 where a row sees
/// fewer.
struct TopkRows {
  Tensor<std::int32_t> pos;  // [n, N]
  Tensor<float> prob;        // [n, N]
};

/// The experts of each row's token, by falling weight.
struct RoutedRows {
  Tensor<std::int32_t> expert;  // [n, n_experts_per_token]
  Tensor<float> weight;         // [n, n_experts_per_token]
};

/// An open trace file. Opening reads metadata only. Of a file that is being recorded it shows the
/// calls that were committed when it was opened, with status "recording".
class TraceFile final : public TraceSource {
 public:
  /// Throws IoError (missing, unreadable, locked) or FormatError (damaged, not a trace, a newer
  /// version, a shape that contradicts the header; a recording that did not end, unless allowed).
  /// So do all reads of data that do not have their recorded checksum, with array, call and head.
  static TraceFile open(const std::filesystem::path& path, OpenOptions options = {});
  /// The same from the bytes of a file; `name` stands for it in messages.
  static TraceFile open_image(std::span<const std::byte> bytes, const std::string& name,
                              OpenOptions options = {});
  TraceFile(TraceFile&&) noexcept;
  TraceFile& operator=(TraceFile&&) noexcept;
  ~TraceFile() override;

  const TraceInfo& info() const override;
  std::string where() const override;
  std::span<const TokenId> tokens() const override;
  std::vector<std::string> token_bytes() const override;
  Tensor<float> read(TraceTensor what, Index layer, Index head, TokenRange range) const override;
  Tensor<float> read_side(SideTensor what, Index layer, Index head,
                          TokenRange range) const override;
  /// Throws FormatError for blocks that a row cannot see, twice, or not ascending.
  Tensor<std::int32_t> read_selected(Index layer, Index list, TokenRange range) const override;

  // Captures that not every trace has: see info().capture. All throw ConfigError if it was not
  // recorded.
  /// [range.size(), n_tokens] probabilities.
  Tensor<float> read_attn(Index layer, Index q_head, TokenRange range) const;
  TopkRows read_topk(Index layer, Index q_head, TokenRange range) const;
  /// [range.size(), n_vocab].
  Tensor<float> read_logits(TokenRange range) const;
  /// Throws ConfigError also for a layer without experts, FormatError for an expert that it has
  /// not.
  RoutedRows read_routing(Index layer, TokenRange range) const;
  /// "q_norm", "k_norm": [range.size()] Euclidean norms. "page_min", "page_max": [n_full_pages,
  /// d_head] smallest and largest key per channel, whatever the range.
  Tensor<float> read_stat(std::string_view name, Index layer, Index head,
                          TokenRange range = {}) const;

  /// Oddities that do not keep the file from being read (newer minor version, no checksums).
  std::vector<std::string> warnings() const;
  /// The planned run: differs from info() only for a partial file.
  const TraceInfo& planned() const;
  std::int64_t file_bytes() const;

 private:
  struct State;
  explicit TraceFile(std::unique_ptr<State> trace);
  std::unique_ptr<State> trace_;
};

}  // namespace kvscope
