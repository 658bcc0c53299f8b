#include "tests/core/selectors/sequence.hpp"

#include <numeric>

#include "core/attention/output_projection.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/key_rotation.hpp"
#include "core/selectors/registry.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test {

namespace {

Tensor<float> normal_tensor(const Shape& shape, std::uint64_t seed, std::uint64_t layer,
                            std::uint64_t what) {
  const CounterRng rng({seed, layer, what});
  Tensor<float> out(shape);
  std::uint64_t counter = 0;
  // Multiples of 2^-8: products and shifts of them are exact, so that tests of invariances see no
  // rounding.
  for (float& x : out.flat())
    x = static_cast<float>(std::round(rng.normal(counter++) * 256.0) / 256.0);
  return out;
}

void plant_ties(Tensor<float>& k, const CounterRng& rng) {
  const Index n = k.dim(1);
  for (Index i = 0; i < n / 6; ++i) {
    const auto draw = static_cast<std::uint64_t>(2 * i);
    const auto from = static_cast<Index>(rng.bits(draw) % static_cast<std::uint64_t>(n));
    const auto to = static_cast<Index>(rng.bits(draw + 1) % static_cast<std::uint64_t>(n));
    for (Index h = 0; h < k.dim(0); ++h) {
      for (Index c = 0; c < k.dim(2); ++c) k(h, to, c) = i % 3 == 0 ? 0.0f : k(h, from, c);
    }
  }
}

/// Gives a shape what only a model has: a rotary embedding, and an output projection of a few
/// signed sums of the value's channels.
void put_model_parts(AttentionShape& shape) {
  auto rotations = std::make_shared<std::vector<KeyRotation>>();
  for (Index layer = 0; layer < shape.n_layers; ++layer) {
    KeyRotation& rotation = rotations->emplace_back();
    for (Index i = 0; i < shape.d_head / 2; ++i)
      rotation.frequencies.push_back(std::pow(0.1, static_cast<double>(i + layer)));
  }
  shape.rotations = rotations;
  class SignedSums final : public OutputProjection {
    std::vector<double> lengths(Index layer, Index kv_head,
                                TensorView<const float> v) const override {
      std::vector<double> sums;
      for (Index row = 0; row < v.dim(0); ++row) {
        sums.push_back(0.0);
        for (Index out = 0; out < 3; ++out) {
          double sum = 0.0;
          for (Index c = 0; c < v.dim(1); ++c)
            sum += ((c + layer + kv_head) % (out + 2) == 0 ? -1.0 : 1.0) *
                   static_cast<double>(v(row, c));
          sums.back() += std::abs(sum);
        }
      }
      return sums;
    }
  };
  shape.projection = std::make_shared<SignedSums>();
}

}  // namespace

Sequence random_sequence(const SequenceOptions& options) {
  Sequence out{.shape = {.n_layers = options.n_layers,
                         .n_q = options.n_kv * options.group,
                         .n_kv = options.n_kv,
                         .d_head = options.d_head,
                         .max_tokens = options.n_tokens,
                         .score_scale = 1.0f / std::sqrt(static_cast<float>(options.d_head)),
                         .score_cap = options.score_cap}};
  put_model_parts(out.shape);
  for (Index layer = 0; layer < options.n_layers; ++layer) {
    const auto name = static_cast<std::uint64_t>(layer);
    out.q.push_back(
        normal_tensor({out.shape.n_q, options.n_tokens, options.d_head}, options.seed, name, 0));
    out.k.push_back(
        normal_tensor({options.n_kv, options.n_tokens, options.d_head}, options.seed, name, 1));
    out.v.push_back(
        normal_tensor({options.n_kv, options.n_tokens, options.d_head}, options.seed, name, 2));
    if (options.has_ties) plant_ties(out.k.back(), CounterRng({options.seed, name, 3}));
  }
  const Index n_decode = std::min(options.n_decode, options.n_tokens - 1);
  for (Index pos = 0; pos < options.n_tokens - n_decode; pos += options.chunk) {
    out.calls.emplace_back(Phase::prefill,
                           std::min(options.chunk, options.n_tokens - n_decode - pos));
  }
  for (Index i = 0; i < n_decode; ++i) out.calls.emplace_back(Phase::decode, 1);
  return out;
}

Sequence random_shape_sequence(std::uint64_t seed) {
  const CounterRng rng({seed, 77});
  auto draw = [&, counter = std::uint64_t{0}](Index low, Index high) mutable {
    return low +
           static_cast<Index>(rng.bits(counter++) % static_cast<std::uint64_t>(high - low + 1));
  };
  SequenceOptions options{.group = draw(1, 8)};
  options.n_kv = draw(1, 16 / options.group > 3 ? 3 : std::max<Index>(1, 16 / options.group));
  constexpr Index kWidths[] = {8, 12, 16, 40, 64, 128};
  options.d_head = kWidths[draw(0, 5)];
  options.n_tokens = draw(0, 4) == 0 ? draw(80, 300) : draw(1, 60);
  options.chunk = options.n_tokens > 60 ? draw(16, 100) : draw(1, 16);
  options.n_decode = draw(0, 4);
  options.n_layers = draw(1, 4);
  options.seed = seed;
  return random_sequence(options);
}

PlainSelection selection_of(const Selection& selection) {
  PlainSelection out{selection.owner, selection.is_dense, {}, {}};
  for (Index i = 0; i < selection.n_lists(); ++i) {
    out.scored.push_back(selection.at(i).scored());
    out.forced.push_back(selection.at(i).forced());
  }
  return out;
}

void check_past_keys(const std::string& spec, Index budget,
                     const std::function<bool(Index j, Index begin)>& keeps) {
  const Sequence sequence = random_sequence({.n_tokens = 60, .n_decode = 6});
  SelectorRun run(make_selector(spec, sequence), sequence.shape,
                  {{Budget::Kind::tokens, static_cast<double>(budget)}});
  for (const auto& [phase, n_tok] : sequence.calls) {
    const Index begin = run.n_keys();
    std::vector<KeyPos> expected;
    for (Index j = 0; j < begin; ++j) {
      if (begin <= budget || keeps(j, begin)) expected.push_back(static_cast<KeyPos>(j));
    }
    std::vector<KeyPos> own(static_cast<std::size_t>(n_tok));
    std::iota(own.begin(), own.end(), static_cast<KeyPos>(begin));
    for (const auto& layer : run_call(run, sequence, phase, n_tok)) {
      for (std::size_t kv_head = 0; kv_head < 2; ++kv_head) {
        INFO(spec << ", call at " << begin);
        CHECK(layer[0].scored[kv_head] == expected);
        CHECK(layer[0].forced[kv_head] == own);
      }
    }
  }
}

std::vector<Tensor<float>> draft_rows(const Sequence& sequence, Index pos_begin, Index n_tok) {
  std::vector<Tensor<float>> layers;
  for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
    const CounterRng rng(
        {static_cast<std::uint64_t>(layer), static_cast<std::uint64_t>(pos_begin), 5});
    Tensor<float> rows(Shape{n_tok, pos_begin + n_tok});
    for (Index r = 0; r < n_tok; ++r) {
      double sum = 0.0;
      for (Index j = 0; j <= pos_begin + r; ++j) {
        const double weight =
            std::exp(3.0 * rng.normal(static_cast<std::uint64_t>(r * 100000 + j)));
        rows(r, j) = static_cast<float>(weight);
        sum += weight;
      }
      for (Index j = 0; j <= pos_begin + r; ++j) rows(r, j) = static_cast<float>(rows(r, j) / sum);
    }
    layers.push_back(std::move(rows));
  }
  return layers;
}

std::vector<Tensor<float>> drafts_for(const SelectorRun& run, const Sequence& sequence, Phase phase,
                                      Index n_tok) {
  if (!run.caps().needs_draft || phase == Phase::prefill) return {};
  return draft_rows(sequence, run.n_keys(), n_tok);
}

std::vector<std::vector<PlainSelection>> run_call(SelectorRun& run, const Sequence& sequence,
                                                  Phase phase, Index n_tok) {
  const Index begin = run.n_keys();
  const Index end = begin + n_tok;
  const auto drafts = drafts_for(run, sequence, phase, n_tok);
  run.begin_call(phase, n_tok, drafts);
  std::vector<std::vector<PlainSelection>> by_layer;
  for (Index layer = 0; layer < sequence.shape.n_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    const auto selections = run.layer_call({.layer = layer,
                                            .q = sequence.q[at].view().range(1, begin, end),
                                            .k = sequence.k[at].view().range(1, 0, end),
                                            .v = sequence.v[at].view().range(1, 0, end),
                                            .window = std::nullopt});
    by_layer.emplace_back();
    for (const Selection& selection : selections)
      by_layer.back().push_back(selection_of(selection));
  }
  return by_layer;
}

MemoryTrace calibration_text(const AttentionShape& shape) {
  constexpr Index kTokens = 400;  // more than DuoAttention's window
  const Index n_tokens = std::max(kTokens, 4 * shape.d_head);
  TraceInfo info =
      make_trace_info(shape.n_layers, shape.n_q, shape.n_kv, shape.d_head, n_tokens, n_tokens);
  info.capture.k_pre_rope = true;  // the same keys: nothing turns
  MemoryTrace text(info);
  for (Index layer = 0; layer < shape.n_layers; ++layer) {
    const auto name = static_cast<std::uint64_t>(layer);
    std::uint64_t what = 0;
    for (const TensorView<float>& tensor : {text.q(layer), text.k(layer), text.v(layer)}) {
      const Tensor<float> numbers = normal_tensor(tensor.shape(), /*seed=*/99, name, what++);
      std::copy_n(numbers.data(), numbers.count(), tensor.data());
    }
    const TensorView<float> keys = text.k(layer);
    std::copy_n(keys.data(), keys.shape().count(), text.side(SideTensor::k_pre_rope, layer).data());
  }
  return text;
}

std::unique_ptr<Selector> make_selector(const std::string& spec, const Sequence& sequence) {
  auto selector = selector_registry().make(spec);
  if (!selector->caps().needs_calibration) return selector;
  const MemoryTrace text = calibration_text(sequence.shape);
  ThreadPool pool(1);
  selector->calibrate(text, text.info().layers, pool);
  return selector;
}

std::vector<PlainSelection> run_all(const std::string& spec, const Sequence& sequence,
                                    const Budget& budget) {
  SelectorRun run(make_selector(spec, sequence), sequence.shape, {budget});
  std::vector<PlainSelection> selections;
  for (const auto& [phase, n_tok] : sequence.calls) {
    for (auto& layer : run_call(run, sequence, phase, n_tok))
      selections.push_back(std::move(layer.front()));
  }
  return selections;
}

std::vector<double> naive_weights(const Sequence& sequence, Index layer, Index q_head, Index pos,
                                  const std::set<KeyPos>& allowed) {
  const auto at = static_cast<std::size_t>(layer);
  const Index kv_head = q_head / sequence.shape.group();
  std::vector<double> weights(static_cast<std::size_t>(pos + 1), 0.0);
  double sum = 0.0;
  for (const KeyPos j : allowed) {
    if (j > pos) continue;
    double dot = 0.0;
    for (Index c = 0; c < sequence.shape.d_head; ++c) {
      dot += static_cast<double>(sequence.q[at](q_head, pos, c)) *
             static_cast<double>(sequence.k[at](kv_head, Index{j}, c));
    }
    sum += weights[j] =
        std::exp(ScoreRule{sequence.shape.score_scale, sequence.shape.score_cap}.of(dot));
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::set<KeyPos> first_keys(Index n) {
  std::set<KeyPos> keys;
  for (Index j = 0; j < n; ++j) keys.insert(static_cast<KeyPos>(j));
  return keys;
}

std::set<KeyPos> naive_best(const std::vector<double>& scores, const std::set<KeyPos>& allowed,
                            Index n) {
  std::set<KeyPos> kept;
  for (const KeyPos j : allowed) {
    Index n_better = 0;
    for (const KeyPos i : allowed) {
      const double x = scores[i];
      const double y = scores[j];
      n_better += x > y || (x == y && i < j) ? 1 : 0;
    }
    if (n_better < n) kept.insert(j);
  }
  return kept;
}

std::set<KeyPos> alive_keys(const AliveMask& alive, Index kv_head) {
  std::set<KeyPos> keys;
  for (Index j = 0; j < alive.n_keys(); ++j) {
    if (alive.is_alive(kv_head, static_cast<KeyPos>(j))) keys.insert(static_cast<KeyPos>(j));
  }
  return keys;
}

}  // namespace kvscope::test
