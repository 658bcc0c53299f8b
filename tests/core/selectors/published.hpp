// The cases of tests/golden/conformance: what kvpress 0.5.5 keeps of a few prompts.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/attention/selection.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope::test {

/// What one layer sees of a prompt of T tokens; keys and queries are rotated.
struct Prompt {
  Tensor<float> w_o;  // [width, n_q * d]
  Tensor<float> q;    // [n_q, T, d]
  Tensor<float> k;    // [n_kv, T, d]
  Tensor<float> v;    // [n_kv, T, d]
  double rope_theta = 10000.0;
  Index n_tok() const { return k.dim(1); }
  Index group() const { return q.dim(0) / k.dim(0); }
};

using KeptKeys = std::vector<std::vector<KeyPos>>;  // [n_kv], ascending

/// The cases of a file in tests/golden/conformance.
nlohmann::json published_cases(const std::string& file);

/// An input of inputs.h5.
Prompt published_prompt(const std::string& input);

/// Calls look(prompt, case, run, budget) for every case and compression ratio of a file; the
/// budget: keys per KV head that the program holds on the average.
void for_each_run(const std::string& file,
                  const std::function<void(const Prompt&, const nlohmann::json&,
                                           const nlohmann::json&, Index)>& look);

}  // namespace kvscope::test
