// Whether prompts are asked in plain words or in the model's chat template.
//
// "auto" gives a kind a second try: the model, attending to everything, answers kTriedPrompts
// prompts of the shortest length, at depths from 0 to 1, in plain words. If it answers less than
// half of them (kDenseSolves), it answers the same prompts in its template, and the kind is asked
// in the wording that was answered more often; plain, if that is as good. The prompts are not
// among those that are measured, but for the examples of a file, whose first ones are taken.
#pragma once

#include <array>
#include <optional>
#include <stop_token>
#include <string_view>
#include <vector>

#include "analysis/simulate/retrieval.hpp"
#include "core/base/fields.hpp"

namespace kvscope {

enum class ChatUse { never, always, automatic };
template <>
struct EnumNames<ChatUse> {
  static constexpr std::array<std::string_view, 3> value = {"never", "always", "auto"};
};

inline constexpr Index kTriedPrompts = 5;

/// What was found for one kind.
struct WordingTrial {
  PromptKind kind = PromptKind::passkey;
  double plain = 0.0;          // mean score in plain words
  std::optional<double> chat;  // in the template, if it was tried
  bool in_chat = false;        // what was chosen
};

/// Tries the kinds of `options`, which has the template's words. Throws Interrupted on a stop.
std::vector<WordingTrial> try_wordings(const SimulationSetup& setup,
                                       const RetrievalOptions& options, ThreadPool& pool,
                                       const std::stop_token& stop);

}  // namespace kvscope
