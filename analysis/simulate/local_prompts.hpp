// Retrieval prompts of a local file: JSON Lines in the schema that LongBench and others have on the
// hub: context, question, answer_prefix, answer (or answers: a text or a list), max_new_tokens.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "analysis/simulate/prompts.hpp"

namespace kvscope {

/// One example of such a file.
struct LocalExample {
  std::string context;
  std::string question;
  std::string answer_prefix;
  std::vector<std::string> answers;
  Index max_new_tokens = 32;
};

/// Reads a file of at most 256 MiB. Throws IoError, FormatError naming the line and the field.
std::vector<LocalExample> read_local_examples(const std::filesystem::path& file);

/// All of them in one text, for a checksum.
std::string text_of(const std::vector<LocalExample>& examples);

/// context, question and answer prefix as they stand, in chat with the template's words around the
/// first two. A prompt longer than spec.length loses the middle of its context, as LongBench cuts;
/// a shorter one stays. Throws ConfigError if question and prefix alone are longer.
Prompt make_local_prompt(const LocalExample& example, const PromptSpec& spec,
                         const Tokenizer& tokenizer);

}  // namespace kvscope
