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
constexpr Index kSink = kTopic;       // the direction of key 0 in `uneven`

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

Tensor<float> MadeUpText::read(TraceTensor what, Index layer, Index head, TokenRange range) const {
  if (what == TraceTensor::lse) throw ConfigError("a made-up text has no log-sum-exp");
  constexpr MadeUpStream kStreams[] = {kQueryStream, kKeyStream, kValueStream};
  const Index kv_head = what == TraceTensor::q ? head / info_.group() : head;
  const CounterRng noise(
      {seed_, kStreams[static_cast<std::size_t>(what)], stream_word(layer), stream_word(head)});
  const CounterRng directions({seed_, kDirectionStream, stream_word(layer), stream_word(kv_head)});
  const CounterRng topics({seed_, kTopicStream, stream_word(layer)});
  const auto topic = [&](Index of) {
    return static_cast<Index>(topics.bits(stream_word(of)) % kTopic);
  };
  const bool is_uneven = kind_ == MadeUp::uneven;
  Tensor<float> out({range.size(), info_.d_head});
  for (Index t = 0; t < range.size(); ++t) {
    const Index pos = range.begin + t;
    const std::span<float> row = out.view().row(t);
    if (what == TraceTensor::q && kind_ == MadeUp::alike) {
      add_noise(directions, 0, row);
      continue;
    }
    add_noise(noise, pos, row);
    if (what == TraceTensor::k && kind_ != MadeUp::apart) {
      add_noise(directions, is_uneven && pos == 0 ? kSink : topic(pos / kTopicRun), row, 0.5f);
    } else if (what == TraceTensor::q && is_uneven) {
      add_noise(directions, kSink, row, 0.5f);
      add_noise(directions, topic(-1 - head - info_.n_q * pos), row, 0.5f);  // below those of runs
    }
  }
  return out;
}

}  // namespace kvscope
