#include "analysis/cli/runs/papers_examples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/options/exit_code.hpp"
#include "core/base/suggest.hpp"
#include "core/base/version.hpp"
#include "traces/hash.hpp"
#include "traces/writer.hpp"

namespace kvscope::cli {

namespace {

constexpr Index kConstructedWidth = 2;  // channels of a head

/// One head per layer: every query is (1, 0), and a key lies along it.
struct Constructed {
  Index n_layers = 1;
  Index n_prompt = 1;
  Index n_decode = 0;
  using Vector = std::array<float, kConstructedWidth>;
  std::function<float(Index layer, Index pos)> k;
  std::function<Vector(Index pos)> v;
};

Constructed b1_example() {
  // ||q|| = 1 and logits are q . k. Layer 0: k = (-1, 0), k* = (-.001, 0), M just above 1.
  // Layer 1: k = (-.1, 0), k* = (.1, 0), M = .01: logits are bounded by the norm, which is larger
  // than its square there.
  const auto k = [](Index layer, Index pos) {
    constexpr float kKeys[2][2] = {{-1.0F, -0.001F}, {-0.1F, 0.1F}};
    return kKeys[layer][pos];
  };
  const auto v = [](Index) { return Constructed::Vector{1.0F, 0.0F}; };
  return {.n_layers = 2, .n_prompt = 2, .n_decode = 0, .k = k, .v = v};
}

Constructed error_bound_example() {
  // The older half of the keys is a little heavier and has the value u = (0, 1), the newer half -u.
  // With half of the keys an oracle keeps u alone: renormalised it answers u, the truth is (2m - 1)
  // u with m = the kept mass.
  constexpr Index kKeys = 64;
  const auto k = [](Index, Index pos) { return pos < kKeys / 2 ? 0.25F : 0.0F; };
  const auto v = [](Index pos) {
    return Constructed::Vector{0.0F, pos < kKeys / 2 ? 1.0F : -1.0F};
  };
  return {.n_layers = 1, .n_prompt = kKeys - 1, .n_decode = 1, .k = k, .v = v};
}

TraceInfo info_of(const Constructed& example, const std::string& name) {
  TraceInfo info;
  info.model_name = "constructed-" + name;
  info.model_family = "llama";
  info.model_config = "{\"model_type\": \"llama\"}";
  info.n_layers = example.n_layers;
  info.n_q = info.n_kv = 1;
  info.d_head = info.d_model = kConstructedWidth;
  info.n_vocab = 1;
  info.score_scale = 1.0F;
  info.window.assign(static_cast<std::size_t>(example.n_layers), std::nullopt);
  info.rope_kind = "default";
  info.rope_theta = 10000.0;
  for (Index layer = 0; layer < example.n_layers; ++layer) info.layers.push_back(layer);
  info.q_heads = info.kv_heads = {0};
  info.n_tokens = example.n_prompt + example.n_decode;
  info.n_prompt = info.chunk = example.n_prompt;
  info.rows = {0, info.n_tokens};
  info.calls.push_back({{0, example.n_prompt}, false});
  for (Index t = example.n_prompt; t < info.n_tokens; ++t) info.calls.push_back({{t, t + 1}, true});
  info.created = timestamp();
  info.writer = writer_name();
  info.command_line = "kvscope papers --example " + name;
  info.text_source = "constructed numbers, no text";
  return info;
}

/// [1, n, width] of vectors over a call's positions.
Tensor<float> call_rows(const std::function<Constructed::Vector(Index pos)>& vector,
                        TokenRange range) {
  Tensor<float> out(Shape{1, range.size(), kConstructedWidth});
  for (Index i = 0; i < range.size(); ++i) {
    const Constructed::Vector x = vector(range.begin + i);
    std::copy(x.begin(), x.end(), out.view().sub(0).row(i).begin());
  }
  return out;
}

Tensor<float> lse_of(const Constructed& example, Index layer, TokenRange range) {
  Tensor<float> out(Shape{1, range.size()});
  for (Index i = 0; i < range.size(); ++i) {
    double sum = 0.0;
    for (Index j = 0; j <= range.begin + i; ++j)
      sum += std::exp(static_cast<double>(example.k(layer, j)));
    out(0, i) = static_cast<float>(std::log(sum));
  }
  return out;
}

void write_calls(const Constructed& example, const std::string& name, TraceReceiver& receiver) {
  const TraceInfo info = info_of(example, name);
  receiver.begin(info);
  for (const ForwardCall& call : info.calls) {
    const TokenRange range = call.tokens;
    for (Index layer = 0; layer < example.n_layers; ++layer) {
      using Vector = Constructed::Vector;
      const auto q = call_rows([](Index) { return Vector{1.0F, 0.0F}; }, range);
      const auto k = call_rows(
          [&](Index pos) {
            return Vector{example.k(layer, pos), 0.0F};
          },
          range);
      const auto v = call_rows(example.v, range);
      const Tensor<float> lse = lse_of(example, layer, range);
      receiver.write({.arrays = {{layer, "q", q.view()},
                                 {layer, "k", k.view()},
                                 {layer, "v", v.view()},
                                 {layer, "lse", lse.view()}}});
    }
    const std::vector<TokenId> ids(static_cast<std::size_t>(range.size()), 0);
    receiver.write_tokens(ids, {});
    receiver.commit_call();
  }
  receiver.finish(TraceStatus::complete);
}

}  // namespace

void write_example(const std::string& name, const std::filesystem::path& out, bool overwrite) {
  const std::vector<std::string> names = {"theorem-b1", "error-bound"};
  if (std::ranges::find(names, name) == names.end()) {
    throw UsageError("--example: expected one of {}, found {}{}", fmt::join(names, ", "), name,
                     did_you_mean(name, names));
  }
  WriterOptions options{.overwrite = overwrite};
  const auto receiver = create_trace(out, options);
  write_calls(name == "theorem-b1" ? b1_example() : error_bound_example(), name, *receiver);
}

}  // namespace kvscope::cli
