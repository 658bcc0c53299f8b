// The answer to a question of cost.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/cost/shape_cost.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"

namespace kvscope {

namespace {

std::string answer_budget(const std::optional<Budget>& budget) {
  if (!budget) return "";
  using Kind = Budget::Kind;
  const bool is_number = budget->kind == Kind::tokens || budget->kind == Kind::pages;
  return fmt::format(" with {} {}",
                     is_number ? number_text(budget->value, 9) : percent_text(budget->value),
                     budget->kind == Kind::tokens  ? "keys"
                     : budget->kind == Kind::pages ? "pages"
                     : budget->kind == Kind::ratio ? "of the keys"
                                                   : "of the attention");
}

std::string format_words(const ShapeOptions& options, const HardwareProfile& hardware) {
  const double kv_bytes = options.kv_bytes.value_or(usual_kv_bytes(hardware));
  const std::string keys = kv_bytes == 1.0 ? "fp8" : kv_bytes == 2.0 ? "bf16" : "f32";
  if (options.weight_bits == 8.0 * kv_bytes) return keys;
  return fmt::format("{} with weights of {} bits", keys, number_text(options.weight_bits, 3));
}

std::string phase_words(const ShapeOptions& options, const Json& row) {
  const std::string queries = number_text(row.at("queries").get<double>(), 7);
  if (options.phase == Phase::decode) return "decode";
  if (options.phase == Phase::verify) return fmt::format("verifying {} drafts", queries);
  return fmt::format("prefill in chunks of {}", queries);
}

double field_of(const Json& row, const std::string& name) {
  return row.at(name).get<double>();
}

std::string factor_text(double factor) {
  return number_text(factor, factor < 10.0 ? 2 : 3);
}

/// "2.1 x (1.6 to 3.5)"
std::string factor_with_ends(const Json& row, const std::string& name) {
  return fmt::format("{} x ({} to {})", factor_text(field_of(row, name)),
                     factor_text(field_of(row, name + "_low")),
                     factor_text(field_of(row, name + "_high")));
}

std::string when_it_pays(const Json& row, const Json& at) {
  const auto even = [&](const char* name) { return row.at(name); };
  const Json low = even("break_even_low");
  const Json high = even("break_even_high");
  const auto tokens = [](const Json& n) { return tokens_text(n.get<double>()); };
  const std::string gain = fmt::format("{} x at {}", factor_text(field_of(at, "predicted_speedup")),
                                       context_text(field_of(at, "context")));
  if (even("break_even").is_null()) {
    return low.is_null() ? fmt::format(
                               "is at no context faster than dense attention, nor by the "
                               "ledger's error ({})",
                               gain)
                         : fmt::format(
                               "is at no context faster than dense attention (perhaps from "
                               "{} tokens by the ledger's error), {}",
                               tokens(low), gain);
  }
  return fmt::format(
      "is faster than dense attention from {} tokens ({} {} by the ledger's error), {}",
      tokens(even("break_even")), low.is_null() ? "-" : tokens(low),
      high.is_null() ? std::string("to perhaps never") : "to " + tokens(high), gain);
}

}  // namespace

std::string tokens_text(double n) {
  constexpr double kK = 1024.0;
  if (n < 10.0 * kK) return number_text(std::round(n), 5);
  if (n < kK * kK) return number_text(n / kK, n < 100.0 * kK ? 3 : 4).append("k");
  return number_text(n / (kK * kK), 3) + "M";
}

std::string context_text(double n) {
  return std::fmod(n, 1024.0) == 0.0 ? tokens_text(n) : number_text(n, 12);
}

std::string pair_words(const ReplayPair& pair) {
  return pair.selector.text() + answer_budget(pair.budget);
}

std::string answer_sentence(const CostModel& model, const HardwareProfile& hardware,
                            const ReplayPair& pair, const ShapeOptions& options,
                            const std::vector<Json>& rows) {
  const auto has_room = [](const Json& row) {
    return row.at("fits") == 1 && row.at("beyond_limit") == 0;
  };
  const auto last = std::find_if(rows.rbegin(), rows.rend(), has_room);
  const Json& row = last == rows.rend() ? rows.front() : *last;
  const std::string context = context_text(field_of(row, "context"));
  std::string text = fmt::format("For {} on {} in {}, batch {}, {} ", model.name, hardware.title,
                                 format_words(options, hardware),
                                 number_text(field_of(row, "batch"), 7), pair_words(pair));
  const std::string where = phase_words(options, row);
  switch (options.question) {
    case CostQuestion::pays_off:
      text += fmt::format("in {} {}", where, when_it_pays(row, row));
      break;
    case CostQuestion::speedup:
      text += fmt::format(
          "in {} makes attention{} {} as fast as dense attention at {} tokens by the "
          "ledger's error, and the whole call {}",
          where,
          model.n_full() == model.n_layers
              ? ""
              : fmt::format(" in the {} of {} layers that see everything", model.n_full(),
                            model.n_layers),
          factor_with_ends(row, "predicted_speedup"), context,
          factor_with_ends(row, "call_speedup"));
      break;
    case CostQuestion::first_token:
      text += fmt::format(
          "gives the first token of a prompt of {} tokens after {} ({} to {} by "
          "the ledger's error) in {}, dense attention after {}: {}",
          context, seconds_text(field_of(row, "first_token_s")),
          seconds_text(field_of(row, "first_token_s_low")),
          seconds_text(field_of(row, "first_token_s_high")), where,
          seconds_text(field_of(row, "dense_first_token_s")),
          factor_with_ends(row, "first_token_speedup"));
      break;
    case CostQuestion::tokens_per_second:
      text += fmt::format(
          "decodes {} tokens a second ({} to {} by the ledger's error) behind {} "
          "tokens, dense attention {}: {}",
          number_text(field_of(row, "tokens_per_s"), 3),
          number_text(field_of(row, "tokens_per_s_low"), 3),
          number_text(field_of(row, "tokens_per_s_high"), 3), context,
          number_text(field_of(row, "dense_tokens_per_s"), 3),
          factor_with_ends(row, "call_speedup"));
      break;
  }
  if (row.at("fits") == 0) {
    text += fmt::format("; but weights and cache take {} x the card's memory",
                        factor_text(field_of(row, "memory_share")));
  }
  return text + ".";
}

}  // namespace kvscope
