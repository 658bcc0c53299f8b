// The keys and values of all tokens so far, wherever a backend keeps them.
#pragma once

#include "core/tensor/dtype.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// What a chunk or a decode step attends to, with room for capacity() tokens. Made by the backend
/// that fills it, in the format and memory of its choice; others see it through the host rows.
class KvStore {
 public:
  virtual ~KvStore() = default;

  virtual Index capacity() const = 0;
  virtual Index n_tokens() const = 0;
  virtual Index n_layers() const = 0;
  /// How keys and values are stored; host rows are floats in any case.
  virtual DType dtype() const = 0;

  /// Counts `n` more tokens as stored (the transformer calls it after the last layer).
  virtual void advance(Index n) = 0;
  /// Forgets all tokens from position n_tokens on. Throws ConfigError for more than there are.
  virtual void truncate(Index n_tokens) = 0;

  /// Takes over all tokens of another store of the same model, in place of its own. Throws
  /// ConfigError if there is no room.
  virtual void copy_from(const KvStore& other) = 0;

  /// Keys and values of positions [begin, end) as they enter the dot product. [n_kv, end - begin,
  /// d_head], each row contiguous; valid until the layer is written to or asked for other rows.
  /// For one thread at a time: a store of another dtype widens rows when they are first asked for,
  /// and keeps them.
  virtual TensorView<const float> host_k(Index layer, Index begin, Index end) const = 0;
  virtual TensorView<const float> host_v(Index layer, Index begin, Index end) const = 0;
};

}  // namespace kvscope
