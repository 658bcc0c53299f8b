// kvscope explain of prompts: which dropped keys cost the answer, found by putting them back.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/frame/common_options.hpp"
#include "analysis/kinds/explain_answer.hpp"
#include "analysis/options/options.hpp"

namespace kvscope::cli {

/// One prompt that is explained.
struct AskedPrompt {
  std::string name;  // in tables: "depth 0.5, trial 1"
  nlohmann::ordered_json about;
  std::vector<TokenId> tokens;
  Index n_new = 1;
  std::vector<Index> fact;  // positions of what has to be found; empty: not known
};

/// Where the prompts come from: the grid of needles, or words.
struct AnswerSource {
  std::size_t n_prompts = 0;
  std::function<AskedPrompt(std::size_t index)> prompt;
};

/// The options of prompts.
struct ExplainAnswerOptions {
  double least = 0.2;
  bool all = false;
  std::optional<std::string> words;
  Index n_new = 8;
  std::optional<Index> token;
  bool dense_prompt = false;
  bool every_call = false;
  Index most_runs = 2000;
  std::optional<std::filesystem::path> out;
  bool overwrite = false;
  std::vector<std::string> put_back;  // "5:6:150"
  std::optional<Index> which;         // of several prompts, from 1

  void declare(OptionSet& options);
  /// Throws UsageError; an existing output is refused before anything runs.
  void check() const;

  /// Prints the answer. `config`: what decided the numbers, model and method included.
  int run(AnswerQuestion question, const Transformer& model, const Tokenizer& tokenizer,
          const AnswerSource& source, nlohmann::ordered_json config, bool json,
          const std::string& command_line, const WorkOptions& work) const;

 private:
  std::vector<PutBack> parsed_put_back() const;
};

}  // namespace kvscope::cli
