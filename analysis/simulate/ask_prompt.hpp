// Asks one retrieval prompt under one method and protocol, in one turn or several.
#pragma once

#include <array>
#include <stop_token>
#include <vector>

#include "analysis/simulate/dense_prefix.hpp"
#include "analysis/simulate/prompts.hpp"
#include "analysis/simulate/protocol.hpp"
#include "analysis/simulate/simulation.hpp"

namespace kvscope {

/// How a prompt is asked.
struct AskOptions {
  Protocol protocol;
  Index n_fed = 100;  // protocol decode: tokens fed one by one
  /// Every turn starts from the context again; else all turns lie in one cache, and what the model
  /// answered with them.
  bool shared_prefix = false;
};

/// What came of one turn.
struct AskedTurn {
  double score = 0.0;
  std::vector<double> kept;  // kept_values of this turn's calls
  /// Generated; inside: the likeliest token at each place of the answer.
  std::vector<TokenId> answer;
};

/// Tokens of the prompt that every method without a history finds in a dense cache.
Index n_dense_tokens(const Prompt& prompt, const AskOptions& options);

/// Positions that the turns may take.
Index positions_of(const Prompt& prompt, const Tokenizer& tokenizer);

/// The expected answers as the model would write them, token by token; the first token of each in
/// `begins`, which has one entry more.
std::vector<TokenId> answer_tokens(const std::vector<std::string>& answers,
                                   const Tokenizer& tokenizer, std::vector<std::size_t>& begins);

/// One entry per turn. `dense`: the first n_dense_tokens of the prompt.
std::vector<AskedTurn> ask_prompt(const SimulationSetup& setup, const LivePair& pair,
                                  PromptKind kind, const Prompt& prompt, const AskOptions& options,
                                  const DensePrefix& dense, ThreadPool& pool,
                                  const std::stop_token& stop);

}  // namespace kvscope
