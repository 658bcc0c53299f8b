// A text that nobody recorded, in a model's shape: queries, keys and values made as they are read.
// Methods run over it to say how many keys their rules keep, what they read to choose, and how far
// that depends on what the queries ask for.
#pragma once

#include "core/trace/source.hpp"

namespace kvscope {

/// alike: every query of a KV head is the same vector, and keys come in runs of 64 on one topic, so
/// that lists of different rows and heads agree and hold adjacent keys. apart: queries and keys are
/// noise, so that lists agree by chance alone. Real texts lie between. uneven: each query asks for
/// one topic and for key 0, beside noise, so that scores are as uneven as a model's.
enum class MadeUp { alike, apart, uneven };

class MadeUpText final : public TraceSource {
 public:
  /// info: shapes of the model, its config.json, the layers that may be read.
  MadeUpText(TraceInfo info, MadeUp kind, std::uint64_t seed);
  const TraceInfo& info() const override { return info_; }
  std::string where() const override { return "a made-up text"; }
  std::span<const TokenId> tokens() const override { return {}; }
  std::vector<std::string> token_bytes() const override { return {}; }
  /// Throws ConfigError for lse: nobody attended.
  Tensor<float> read(TraceTensor what, Index layer, Index head, TokenRange range) const override;

 private:
  TraceInfo info_;
  MadeUp kind_;
  std::uint64_t seed_;
};

}  // namespace kvscope
