// The cases of tests/golden/conformance: what kvpress 0.5.5 keeps of a few prompts.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/core/selectors/press_scores.hpp"

namespace kvscope::test {

/// The cases of a file in tests/golden/conformance.
nlohmann::json published_cases(const std::string& file);

/// A tensor of an input in inputs.h5.
Tensor<float> published_tensor(const std::string& input, const std::string& name);
Prompt published_prompt(const std::string& input);

/// Calls look(prompt, case, run, budget) for every case and compression ratio of a file; the
/// budget: keys per KV head that the program holds on the average.
void for_each_run(const std::string& file,
                  const std::function<void(const Prompt&, const nlohmann::json&,
                                           const nlohmann::json&, Index)>& look);

}  // namespace kvscope::test
