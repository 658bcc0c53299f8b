// Questions to the cost model about a shape: from which context a method pays off, how much faster
// it is, when the first token comes, how many tokens a second; each with an interval and the memory
// that it needs.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cost/shape_lists.hpp"
#include "analysis/cost/trace_cost.hpp"
#include "core/base/enum_names.hpp"

namespace kvscope {

enum class CostQuestion { pays_off, speedup, first_token, tokens_per_second };

template <>
struct EnumNames<CostQuestion> {
  static constexpr std::array<std::string_view, 4> value = {"pays-off", "speedup", "first-token",
                                                            "tokens-per-second"};
};

/// `contexts`: all of them, ascending.
struct ShapeOptions : CostOptions {
  Phase phase = Phase::prefill;
  CostQuestion question = CostQuestion::pays_off;
  double max_context = 0.0;  // that config.json allows
};

/// {"kind": "cost-shape", "question", "layers", "answers", "errors", "methods", ..., "rows"}. Rows
/// by card, method, batch, context: the columns of every cost report (of lists between alike and
/// apart), `fits` and `beyond_limit` (1 or 0), and numbers with their ends (_low, _high), which
/// take the ledger's error and what differs between alike and apart together: predicted_speedup,
/// call_speedup, break_even (high null: perhaps never), first_token_s (prefill; else null),
/// tokens_per_s (decode; else null). `answers`: a sentence per card and method, of the first batch.
nlohmann::ordered_json shape_cost_report(const CostModel& model,
                                         const std::vector<ShapeLists>& methods,
                                         const ShapeOptions& options);

/// The answer to the question as one sentence. rows: of one card, method and batch, by context (as
/// above). Numbers are of the longest context that the card and the model's config.json have room
/// for.
std::string answer_sentence(const CostModel& model, const HardwareProfile& hardware,
                            const ReplayPair& pair, const ShapeOptions& options,
                            const std::vector<nlohmann::ordered_json>& rows);

/// "quest with 1024 keys".
std::string pair_words(const ReplayPair& pair);

/// "18.2k", "3426", "1M" (k = 1024): about so many tokens, as an answer says it.
std::string tokens_text(double n);

/// The same of a context that was asked for, exactly: "128k", "50000".
std::string context_text(double n);

}  // namespace kvscope
