// Where analyses read recorded tensors from, whoever holds them (a file, memory).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.hpp"
#include "core/trace/info.hpp"

namespace kvscope {

/// What every recording of q, k and v holds of a layer.
enum class TraceTensor { q, k, v, lse };

/// True of q and lse: rows of query heads, for positions inside info().rows. k and v are of KV
/// heads and of every position.
constexpr bool is_of_queries(TraceTensor what) {
  return what == TraceTensor::q || what == TraceTensor::lse;
}

/// Read access to one trace. Layers and heads are true indices of the model. All reads return f32
/// rows, throw ConfigError if the slice was not recorded and FormatError if it holds NaN or Inf
/// (message: dataset, index). Safe to call from several threads.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  virtual const TraceInfo& info() const = 0;
  /// File name or other words for messages.
  virtual std::string where() const = 0;
  /// Token ids, [n_tokens].
  virtual std::span<const TokenId> tokens() const = 0;
  /// Bytes of each token; empty if the recording had no tokenizer.
  virtual std::vector<std::string> token_bytes() const = 0;

  /// [range.size(), d_head]; of lse [range.size()], the natural logarithm of the sum of exp of
  /// scaled visible scores.
  virtual Tensor<float> read(TraceTensor what, Index layer, Index head, TokenRange range) const = 0;
  Tensor<float> read_q(Index layer, Index q_head, TokenRange range) const {
    return read(TraceTensor::q, layer, q_head, range);
  }
  Tensor<float> read_k(Index layer, Index kv_head, TokenRange range) const {
    return read(TraceTensor::k, layer, kv_head, range);
  }
  Tensor<float> read_v(Index layer, Index kv_head, TokenRange range) const {
    return read(TraceTensor::v, layer, kv_head, range);
  }
  Tensor<float> read_lse(Index layer, Index q_head, TokenRange range) const {
    return read(TraceTensor::lse, layer, q_head, range);
  }
  /// Rows of a side tensor (core/trace/side.hpp) of one head (index head, index key head or KV
  /// head): [range.size(), width], of index_w [range.size()]. index_q and index_w only for
  /// positions inside info().rows. Throws ConfigError with what to record if it is not there.
  virtual Tensor<float> read_side(SideTensor what, Index layer, Index head, TokenRange range) const;
  /// The chosen blocks of one list: [range.size(), n_selected].
  virtual Tensor<std::int32_t> read_selected(Index layer, Index list, TokenRange range) const;
};

/// True if the recording has this side tensor of a layer.
bool has_side(const TraceInfo& info, SideTensor what, Index layer);

/// Throws ConfigError: the recording has no such side tensor of this layer or head, and how it is
/// recorded.
void require_side(const TraceSource& trace, SideTensor what, Index layer, Index head);
void require_selected(const TraceSource& trace, Index layer, Index list);

/// Throws ConfigError unless the trace holds q, k and v for every position (an analysis needs them
/// all).
void require_full_qkv(const TraceSource& trace, std::string_view analysis);

}  // namespace kvscope
