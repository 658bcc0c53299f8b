#include "analysis/cost/shape_cost.hpp"

#include <algorithm>

#include "analysis/cost/prediction_error.hpp"
#include "analysis/cost/shape_answer.hpp"
#include "core/base/json.hpp"

namespace kvscope {

namespace {

/// The smallest and the largest of a number over the three ways that lists may lie, times the ends
/// of the ledger's error.
struct NumberEnds {
  double low = 0.0;
  double high = 0.0;
};

NumberEnds number_ends(std::initializer_list<double> ways, ErrorOf what) {
  const PredictionError& error = prediction_error(what);
  return {std::min(ways) * error.low, std::max(ways) * error.high};
}

void put_with_ends(Json& row, const std::string& name, double value, const NumberEnds& ends) {
  row[name] = value;
  row[name + "_low"] = ends.low;
  row[name + "_high"] = ends.high;
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
  const auto at = [&](const MethodWork& work) {
    return call_cost(model, work, context, hardware, setting);
  };
  const CallCost middle = at(lists.middle);
  const CallCost alike = at(lists.alike);
  const CallCost apart = at(lists.apart);
  Json row = cost_row(model, hardware, setting, lists.pair, options.phase, lists.middle, middle,
                      /*is_scaled=*/false);
  row["question"] = std::string(enum_name(options.question));
  row["fits"] = row["memory_share"].get<double>() <= 1.0 ? 1 : 0;
  row["beyond_limit"] = options.max_context > 0.0 && context > options.max_context ? 1 : 0;
  put_with_ends(
      row, "predicted_speedup", attention_speedup(middle),
      number_ends({attention_speedup(middle), attention_speedup(alike), attention_speedup(apart)},
                  ErrorOf::attention));
  const auto speedup = [](const CallCost& cost) { return *cost.dense / *cost.call; };
  put_with_ends(row, "call_speedup", speedup(middle),
                number_ends({speedup(middle), speedup(alike), speedup(apart)}, ErrorOf::model));
  put_break_even(row, lists, hardware, setting);
  put_nothing(row, "first_token_s");
  put_nothing(row, "first_token_speedup");
  put_nothing(row, "tokens_per_s");
  row["dense_first_token_s"] = row["dense_tokens_per_s"] = nullptr;
  if (options.phase == Phase::prefill) {
    const auto prompt = [&](const MethodWork& work) {
      return prompt_cost(model, work, context, hardware, setting);
    };
    const PromptCost one = prompt(lists.middle);
    const PromptCost near = prompt(lists.alike);
    const PromptCost far = prompt(lists.apart);
    put_with_ends(row, "first_token_s", one.seconds,
                  number_ends({one.seconds, near.seconds, far.seconds}, ErrorOf::time));
    put_with_ends(
        row, "first_token_speedup", one.dense / one.seconds,
        number_ends({one.dense / one.seconds, near.dense / near.seconds, far.dense / far.seconds},
                    ErrorOf::model));
    row["dense_first_token_s"] = one.dense;
  } else if (options.phase == Phase::decode) {
    const NumberEnds seconds = number_ends({*middle.call, *alike.call, *apart.call}, ErrorOf::time);
    put_with_ends(row, "tokens_per_s", batch / *middle.call,
                  {batch / seconds.high, batch / seconds.low});
    row["dense_tokens_per_s"] = batch / *middle.dense;
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
