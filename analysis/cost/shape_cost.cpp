#include "analysis/cost/shape_cost.hpp"

#include <algorithm>
#include <array>

#include "analysis/cost/prediction_error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

/// A number of the middle way that lists may lie, and its ends: the smallest and the largest over
/// all three, times the ends of the ledger's error.
struct NumberEnds {
  double value = 0.0, low = 0.0, high = 0.0;
};

template <class Way, class Number>
NumberEnds ends_of(const std::array<Way, 3>& ways, ErrorOf what, const Number& number) {
  const std::array numbers = {number(ways[0]), number(ways[1]), number(ways[2])};
  const PredictionError& error = prediction_error(what);
  return {numbers[0], std::ranges::min(numbers) * error.low,
          std::ranges::max(numbers) * error.high};
}

void put(Json& row, const std::string& name, const NumberEnds& of) {
  row[name] = of.value;
  row[name + "_low"] = of.low;
  row[name + "_high"] = of.high;
}

void put_nothing(Json& row, const std::string& name) {
  for (const char* end : {"", "_low", "_high"}) row[name + end] = nullptr;
}

double attention_speedup(const CallCost& cost) {
  return cost.layer.dense / cost.layer.stages.total();
}

/// The ends of the context from which a method pays off.
void put_break_even(Json& row, const ShapeLists& lists, const HardwareProfile& hardware,
                    const CostSetting& setting) {
  const PredictionError& error = prediction_error(ErrorOf::attention);
  std::optional<double> least;
  std::optional<double> most = 0.0;
  for (const MethodWork* way : {&lists.middle, &lists.alike, &lists.apart}) {
    const auto early = break_even_of(*way, hardware, setting, error.high);
    const auto late = break_even_of(*way, hardware, setting, error.low);
    if (early && (!least || *early < *least)) least = early;
    most = most && late ? std::optional(std::max(*most, *late)) : std::nullopt;
  }
  row["break_even_low"] = or_null(least);
  row["break_even_high"] = or_null(most);
}

/// One cell of the map.
Json row_of_cell(const CostModel& model, const ShapeLists& lists, const HardwareProfile& hardware,
                 double batch, double context, const ShapeOptions& options) {
  const CostSetting setting{batch, options.kv_bytes.value_or(usual_kv_bytes(hardware)),
                            std::nullopt};
  const auto of_ways = [&](const auto& cost) {
    return std::array{cost(lists.middle), cost(lists.alike), cost(lists.apart)};
  };
  const auto calls = of_ways(
      [&](const MethodWork& work) { return call_cost(model, work, context, hardware, setting); });
  Json row = cost_row(model, hardware, setting, lists.pair, options.phase, lists.middle, calls[0],
                      /*is_scaled=*/false);
  row["question"] = std::string(enum_name(options.question));
  row["fits"] = row["memory_share"].get<double>() <= 1.0 ? 1 : 0;
  row["beyond_limit"] = options.max_context > 0.0 && context > options.max_context ? 1 : 0;
  put(row, "predicted_speedup", ends_of(calls, ErrorOf::attention, attention_speedup));
  put(row, "call_speedup", ends_of(calls, ErrorOf::model, [](const CallCost& cost) {
        return *cost.dense / *cost.call;
      }));
  put_break_even(row, lists, hardware, setting);
  put_nothing(row, "first_token_s");
  put_nothing(row, "first_token_speedup");
  put_nothing(row, "tokens_per_s");
  row["dense_first_token_s"] = row["dense_tokens_per_s"] = nullptr;
  if (options.phase == Phase::prefill) {
    const auto prompts = of_ways([&](const MethodWork& work) {
      return prompt_cost(model, work, context, hardware, setting);
    });
    put(row, "first_token_s",
        ends_of(prompts, ErrorOf::time, [](const PromptCost& one) { return one.seconds; }));
    put(row, "first_token_speedup", ends_of(prompts, ErrorOf::model, [](const PromptCost& one) {
          return one.dense / one.seconds;
        }));
    row["dense_first_token_s"] = prompts[0].dense;
  } else if (options.phase == Phase::decode) {
    const NumberEnds seconds =
        ends_of(calls, ErrorOf::time, [](const CallCost& cost) { return *cost.call; });
    put(row, "tokens_per_s", {batch / seconds.value, batch / seconds.high, batch / seconds.low});
    row["dense_tokens_per_s"] = batch / *calls[0].dense;
  }
  return row;
}

Json error_json(ErrorOf what) {
  const PredictionError& error = prediction_error(what);
  return {{"rows", error.n_rows}, {"low", error.low}, {"high", error.high}};
}

}  // namespace

Json shape_cost_report(const CostModel& model, const std::vector<ShapeLists>& methods,
                       const ShapeOptions& options) {
  Json rows = Json::array();
  Json answers = Json::array();
  for (const HardwareProfile& hardware : options.hardware) {
    for (const ShapeLists& lists : methods) {
      std::vector<Json> of_first;  // batch
      for (const double batch : options.batches) {
        for (const double context : options.contexts) {
          rows.push_back(row_of_cell(model, lists, hardware, batch, context, options));
          if (batch == options.batches.front()) of_first.push_back(rows.back());
        }
      }
      answers.push_back(answer_sentence(model, hardware, lists.pair, options, of_first));
    }
  }
  Json sources = Json::array();
  for (const ShapeLists& lists : methods)
    sources.push_back({{"method", pair_words(lists.pair)}, {"lists", lists.source}});
  return {{"kind", "cost-shape"},
          {"model", model.name},
          {"n_q", model.n_q},
          {"n_kv", model.n_kv},
          {"d_head", model.d_head},
          {"n_layers", model.n_layers},
          {"layers", model.layers},
          {"max_context", options.max_context},
          {"weight_bits", options.weight_bits},
          {"question", std::string(enum_name(options.question))},
          {"answers", answers},
          {"methods", sources},
          {"errors",
           {{"attention_speedup", error_json(ErrorOf::attention)},
            {"model_speedup", error_json(ErrorOf::model)},
            {"time", error_json(ErrorOf::time)}}},
          {"rows", rows}};
}

}  // namespace kvscope
