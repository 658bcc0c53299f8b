// Compiled alone: std::complex, which the neighbours do not need.
#include "core/selectors/key_rotation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/selectors/learned.hpp"

namespace kvscope {

namespace {

using Complex = std::complex<double>;

constexpr double kLargestMiss = 1e-3;  // squared, of the keys' squared length: bf16 misses by 1e-5

/// Keys of one layer before and after rotation, [kv_heads] each [n_tokens, d_head].
struct KeyPairs {
  std::vector<Tensor<float>> before, after;
  Index n_tokens = 0;
  Index d_head = 0;
};

/// The angle per step of a series whose neighbours turn by it: z[t] about |z[t]| exp(i t angle).
double angle_of(std::span<const Complex> z) {
  double angle = 0.0;
  for (std::size_t lag = 1; lag < z.size(); lag *= 2) {
    Complex sum = 0.0;
    for (std::size_t t = 0; t + lag < z.size(); ++t) sum += z[t + lag] * std::conj(z[t]);
    const auto steps = static_cast<double>(lag);
    if (std::abs(sum) > 0.0) angle += std::arg(sum * std::polar(1.0, -angle * steps)) / steps;
  }
  return angle;
}

KeyRotation fitted(const KeyPairs& keys, bool is_interleaved, Index width) {
  const auto n_pairs = static_cast<std::size_t>(width / 2);
  KeyRotation out{.is_interleaved = is_interleaved, .frequencies = std::vector<double>(n_pairs)};
  double before = 0.0;
  double after = 0.0;
  std::vector<Complex> z(static_cast<std::size_t>(keys.n_tokens));
  for (std::size_t i = 0; i < n_pairs; ++i) {
    const auto [x, y] = out.pair(i);
    const auto at = [x = static_cast<Index>(x), y = static_cast<Index>(y)](const Tensor<float>& k,
                                                                           Index t) {
      return Complex(static_cast<double>(k(t, x)), static_cast<double>(k(t, y)));
    };
    std::fill(z.begin(), z.end(), Complex{});
    for (std::size_t head = 0; head < keys.before.size(); ++head) {
      for (Index t = 0; t < keys.n_tokens; ++t) {
        const Complex from = at(keys.before[head], t);
        const Complex to = at(keys.after[head], t);
        before += std::norm(from);
        after += std::norm(to);
        z[static_cast<std::size_t>(t)] += to * std::conj(from);
      }
    }
    out.frequencies[i] = angle_of(z);
  }
  out.amplitude = before > 0.0 && after > 0.0 ? std::sqrt(after / before) : 1.0;
  return out;
}

/// Squared distance of the rotated keys from those recorded, as a share of their squared length.
double miss_of(const KeyPairs& keys, const KeyRotation& rotation) {
  double miss = 0.0;
  double length = 0.0;
  std::vector<double> key(static_cast<std::size_t>(keys.d_head));
  for (std::size_t head = 0; head < keys.before.size(); ++head) {
    for (Index t = 0; t < keys.n_tokens; ++t) {
      const auto from = keys.before[head].view().row(t);
      const auto to = keys.after[head].view().row(t);
      std::copy(from.begin(), from.end(), key.begin());
      rotation.turn(t, key);
      for (std::size_t c = 0; c < key.size(); ++c) {
        const double error = key[c] - static_cast<double>(to[c]);
        miss += error * error;
        length += static_cast<double>(to[c]) * static_cast<double>(to[c]);
      }
    }
  }
  return length > 0.0 ? miss / length : 0.0;
}

/// Channels up to the last one that some key changes in, as whole pairs.
Index moved_channels(const KeyPairs& keys) {
  Index last = -1;
  for (std::size_t head = 0; head < keys.before.size(); ++head) {
    for (Index t = 0; t < keys.n_tokens; ++t) {
      for (Index c = keys.d_head - 1; c > last; --c) {
        if (keys.before[head](t, c) != keys.after[head](t, c)) last = c;
      }
    }
  }
  return (last + 2) / 2 * 2;
}

}  // namespace

void KeyRotation::apply(Index pos, std::span<double> key, bool back) const {
  const std::size_t n_pairs = frequencies.size();
  const double factor = n_pairs == 0 ? 1.0 : back ? 1.0 / amplitude : amplitude;
  for (std::size_t i = 0; i < n_pairs; ++i) {
    const auto [x, y] = pair(i);
    const double angle = (back ? -1.0 : 1.0) * static_cast<double>(pos) * frequencies[i];
    const Complex turned = Complex(key[x], key[y]) * std::polar(factor, angle);
    key[x] = turned.real();
    key[y] = turned.imag();
  }
}

KeyRotation fit_rotation(const TraceSource& text, Index layer) {
  const TraceInfo& info = text.info();
  KeyPairs keys{.n_tokens = info.n_tokens, .d_head = info.d_head};
  for (const Index head : info.kv_heads) {
    require_side(text, SideTensor::k_pre_rope, layer, head);
    const TokenRange all{0, info.n_tokens};
    keys.before.push_back(text.read_side(SideTensor::k_pre_rope, layer, head, all));
    keys.after.push_back(text.read_k(layer, head, all));
  }
  KeyRotation best;  // none
  double least = miss_of(keys, best);
  const Index moved = moved_channels(keys);
  for (const Index width : {moved, info.d_head}) {
    if (width == 0 || least == 0.0) continue;
    for (const bool is_interleaved : {false, true}) {
      KeyRotation one = fitted(keys, is_interleaved, width);
      const double miss = miss_of(keys, one);
      if (miss < least) {
        least = miss;
        best = std::move(one);
      }
    }
  }
  if (!(least <= kLargestMiss)) {
    throw ConfigError(
        "{}: keys of layer {}: expected those before rotation (k_pre_rope) turned by their "
        "positions, in pairs of channels; the closest rotation misses by {:.2g} of their length",
        text.where(), layer, std::sqrt(least));
  }
  return best;
}

Learned rotations_to_file(const std::map<Index, KeyRotation>& rotations) {
  Json layers = Json::array();
  Json frequencies = Json::array();
  Json interleaved = Json::array();
  Json amplitudes = Json::array();
  std::size_t n_rotated = 0;
  for (const auto& [layer, rotation] : rotations) {
    layers.push_back(layer);
    frequencies.push_back(rotation.frequencies);
    interleaved.push_back(rotation.is_interleaved ? 1 : 0);
    amplitudes.push_back(rotation.amplitude);
    n_rotated += rotation.frequencies.empty() ? 0 : 1;
  }
  Learned out;
  out.values = {{"layers", layers},
                {"frequencies", frequencies},
                {"interleaved", interleaved},
                {"amplitude", amplitudes}};
  out.options = Json::object();
  out.summary = fmt::format("how keys turn with their positions in {} layers ({} of them do)",
                            rotations.size(), n_rotated);
  return out;
}

std::map<Index, KeyRotation> load_rotations(const ArtifactFile& file, const AttentionShape& shape) {
  check_shape(file.get(), shape);
  const std::vector<Index> layers = file.layers();
  const auto& frequencies = file.list("frequencies", layers.size());
  const std::vector<Index> interleaved =
      file.indices(file.list("interleaved", layers.size()), layers.size(), 0, 1, "interleaved");
  const std::vector<double> amplitudes =
      file.numbers(file.list("amplitude", layers.size()), layers.size(), "amplitude");
  std::map<Index, KeyRotation> rotations;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto most = static_cast<std::size_t>(shape.d_head / 2);
    const std::size_t n = frequencies[i].is_array() ? std::min(frequencies[i].size(), most) : most;
    KeyRotation& one = rotations[layers[i]];
    one.frequencies = file.numbers(frequencies[i], n, "frequencies");
    one.is_interleaved = interleaved[i] == 1;
    one.amplitude = amplitudes[i];
    if (!(one.amplitude > 0.0)) {
      throw FormatError("{}: amplitude of layer {}: expected more than 0, found {}",
                        file.get().origin.file, layers[i], one.amplitude);
    }
  }
  return rotations;
}

}  // namespace kvscope
