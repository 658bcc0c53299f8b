#include "analysis/cost/made_up_text.hpp"

#include "core/base/error.hpp"
#include "core/base/rng.hpp"

namespace kvscope {

namespace {

/// Streams of random numbers.
enum MadeUpStream : std::uint64_t {
  kQueryStream,
  kKeyStream,
  kValueStream,
  kDirectionStream,
  kTopicStream
};

constexpr Index kTopicRun = 64;       // neighbouring keys of one topic
constexpr std::uint64_t kTopic = 16;  // topics: queries of `alike` ask for the first

std::uint64_t stream_word(Index number) {
  return static_cast<std::uint64_t>(number);
}

/// Adds a row of uniform noise of variance 1, times `scale`.
void add_noise(const CounterRng& rng, Index row, std::span<float> out, float scale = 1.0f) {
  const std::uint64_t first = stream_word(row) * out.size();
  for (std::size_t c = 0; c < out.size(); ++c) {
    const auto bits = static_cast<float>(rng.bits(first + c) >> 40);  // 24 of them
    out[c] += scale * 3.4641016f * (bits / 16777216.0f - 0.5f);
  }
}

}  // namespace

MadeUpText::MadeUpText(TraceInfo info, MadeUp kind, std::uint64_t seed)
    : info_(std::move(info)), kind_(kind), seed_(seed) {}

Tensor<float> MadeUpText::read_q(Index layer, Index q_head, TokenRange range) const {
  Tensor<float> out({range.size(), info_.d_head});
  const Index kv_head = q_head / info_.group();
  const CounterRng noise({seed_, kQueryStream, stream_word(layer), stream_word(q_head)});
  const CounterRng directions({seed_, kDirectionStream, stream_word(layer), stream_word(kv_head)});
  for (Index t = 0; t < range.size(); ++t) {
    if (kind_ == MadeUp::alike) {
      add_noise(directions, 0, out.view().row(t));
    } else {
      add_noise(noise, range.begin + t, out.view().row(t));
    }
  }
  return out;
}

Tensor<float> MadeUpText::read_k(Index layer, Index kv_head, TokenRange range) const {
  Tensor<float> out({range.size(), info_.d_head});
  const CounterRng noise({seed_, kKeyStream, stream_word(layer), stream_word(kv_head)});
  const CounterRng directions({seed_, kDirectionStream, stream_word(layer), stream_word(kv_head)});
  const CounterRng topics({seed_, kTopicStream, stream_word(layer)});
  for (Index t = 0; t < range.size(); ++t) {
    const Index pos = range.begin + t;
    add_noise(noise, pos, out.view().row(t));
    if (kind_ == MadeUp::alike)
      add_noise(directions, static_cast<Index>(topics.bits(stream_word(pos / kTopicRun)) % kTopic),
                out.view().row(t), 0.5f);
  }
  return out;
}

Tensor<float> MadeUpText::read_v(Index layer, Index kv_head, TokenRange range) const {
  Tensor<float> out({range.size(), info_.d_head});
  const CounterRng noise({seed_, kValueStream, stream_word(layer), stream_word(kv_head)});
  for (Index t = 0; t < range.size(); ++t) add_noise(noise, range.begin + t, out.view().row(t));
  return out;
}

Tensor<float> MadeUpText::read_lse(Index layer, Index q_head, TokenRange range) const {
  (void)layer, (void)q_head, (void)range;
  throw ConfigError("a made-up text has no log-sum-exp");
}

}  // namespace kvscope
