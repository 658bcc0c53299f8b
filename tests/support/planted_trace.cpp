#include "tests/support/planted_trace.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/splitmix64.hpp"

namespace kvscope::test {

namespace {

void add(std::span<float> x, std::span<const float> direction, double length) {
  double norm = 0.0;
  for (float value : direction) norm += static_cast<double>(value) * static_cast<double>(value);
  norm = std::sqrt(norm);
  if (norm == 0.0) return;
  for (std::size_t c = 0; c < x.size(); ++c)
    x[c] += static_cast<float>(length / norm * static_cast<double>(direction[c]));
}

void plant_common(TensorView<float> k, const PlantOptions& options, Random& random) {
  std::vector<float> direction(static_cast<std::size_t>(options.d_head));
  for (float& x : direction) x = static_cast<float>(random.normal());
  for (Index t = 0; t < options.n_tokens; ++t) {
    const bool is_needle = std::any_of(options.needles.begin(), options.needles.end(),
                                       [&](const Needle& needle) { return needle.key == t; });
    add(k.row(t), direction, is_needle ? -options.common : options.common);
  }
}

}  // namespace

std::uint64_t Random::next() {
  state_ += kSplitMix64Step;
  return splitmix64_mix(state_);
}

double Random::uniform() {
  return static_cast<double>(next() >> 11) * 0x1.0p-53;
}

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

Index Random::below(Index n) {
  return static_cast<Index>(next() % static_cast<std::uint64_t>(n));
}

MemoryTrace planted_trace(const PlantOptions& options,
                          const std::function<void(TraceInfo&)>& change) {
  TraceInfo info = make_trace_info(options.n_layers, options.n_q, options.n_kv, options.d_head,
                                   options.n_tokens, options.chunk);
  for (Index i = 0; options.has_sink_logits && i < options.n_layers * options.n_q; ++i)
    info.sink_logits.push_back(0.4f * static_cast<float>(i) - 1.0f);
  info.score_cap = static_cast<float>(options.score_cap);
  if (change) change(info);
  MemoryTrace trace(info);
  Random random(options.seed);
  for (Index layer = 0; layer < options.n_layers; ++layer) {
    for (Index head = 0; head < trace.k(layer).dim(0); ++head) {
      auto k = trace.k(layer).sub(head);
      auto v = trace.v(layer).sub(head);
      for (Index t = 0; t < options.n_tokens; ++t) {
        for (float& x : k.row(t)) x = static_cast<float>(options.key_scale * random.normal());
        for (float& x : v.row(t)) x = static_cast<float>(random.normal());
      }
      if (options.common != 0.0) plant_common(k, options, random);
      for (const auto& [from, to] : options.duplicates)
        std::copy(k.row(from).begin(), k.row(from).end(), k.row(to).begin());
      for (Index t : options.zero_keys) std::fill(k.row(t).begin(), k.row(t).end(), 0.0f);
    }
    for (Index head = 0; head < options.n_q; ++head) {
      auto q = trace.q(layer).sub(head);
      const auto k = trace.k(layer).sub(head / info.group(layer));
      for (Index t = 0; t < options.n_tokens; ++t) {
        for (float& x : q.row(t)) x = static_cast<float>(options.query_scale * random.normal());
        if (options.sink != 0.0) add(q.row(t), k.row(0), options.sink);
        if (options.band != 0.0) add(q.row(t), k.row(t), options.band);
        for (const Needle& needle : options.needles) {
          if (t >= needle.first_query && t < needle.last_query)
            add(q.row(t), k.row(needle.key), options.aim);
        }
      }
    }
  }
  std::vector<TokenId> tokens(static_cast<std::size_t>(options.n_tokens));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  trace.set_tokens(std::move(tokens));
  return trace;
}

Index naive_first_visible(const TraceSource& trace, Index layer, Index pos) {
  const auto window = trace.info().window[layer];
  return window && pos + 1 > *window ? pos + 1 - *window : 0;
}

std::vector<double> naive_scores(const TraceSource& trace, Index layer, Index q_head, Index pos) {
  const TraceInfo& info = trace.info();
  const Tensor<float> q = trace.read_q(layer, q_head, {pos, pos + 1});
  const LayerShape shape = info.shape(layer);
  const Index kv_head = q_head / (info.n_q / shape.n_kv);
  const Index first = naive_first_visible(trace, layer, pos);
  const Tensor<float> k = trace.read_k(layer, kv_head, {first, pos + 1});
  std::vector<double> scores;
  for (Index t = 0; t < k.dim(0); ++t) {
    double dot = 0.0;
    for (Index c = 0; c < shape.d_head; ++c)
      dot += static_cast<double>(q(Index{0}, c)) * static_cast<double>(k(t, c));
    const double score = static_cast<double>(shape.score_scale) * dot;
    const auto cap = static_cast<double>(shape.score_cap);
    scores.push_back(cap > 0.0 ? cap * std::tanh(score / cap) : score);
  }
  return scores;
}

std::vector<double> naive_row(const TraceSource& trace, Index layer, Index q_head, Index pos) {
  std::vector<double> row = naive_scores(trace, layer, q_head, pos);
  double largest = row[0];
  for (double s : row) largest = std::max(largest, s);
  const auto sink_logit = trace.info().sink_logit(layer, q_head);
  double sum = sink_logit ? std::exp(*sink_logit - largest) : 0.0;
  for (double& s : row) {
    s = std::exp(s - largest);
    sum += s;
  }
  for (double& s : row) s /= sum;
  return row;
}

}  // namespace kvscope::test
