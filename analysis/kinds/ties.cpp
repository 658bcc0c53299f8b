#include "analysis/kinds/ties.hpp"

#include <map>

#include "analysis/base/calibration_notes.hpp"
#include "analysis/base/kit.hpp"
#include "analysis/base/replay_pairs.hpp"
#include "analysis/kinds/tie_cut.hpp"
#include "analysis/kinds/ties_live.hpp"
#include "core/attention/rounded_scores.hpp"
#include "core/selectors/candidates.hpp"
#include "core/sim/replay_run.hpp"

namespace kvscope {

namespace {

constexpr std::array kTypes = {ScoreType::f64, ScoreType::f32, ScoreType::bf16, ScoreType::fp8};
constexpr std::array<Index, 3> kPages = {1, 16, 64};  // 1: the method's own units

struct TieCase {
  MethodSpec method;  // as asked for
  MethodSpec coarse;  // with the case's pages and type; empty: it cannot take them
  std::string refused;
  Index page = 1;
  ScoreType type = ScoreType::f64;
  std::size_t exact = 0;  // the case of the same method and pages in f64
};

std::vector<TieCase> make_cases(const TiesOptions& options) {
  std::vector<TieCase> cases;
  for (const MethodSpec& method :
       options.selectors.empty() ? default_tie_methods() : options.selectors) {
    const Index own = method.caps().page_size;
    if (!method.caps().budgets.empty())
      check_budget_kind(method.text(), method.caps(), options.budget);
    for (const Index page : kPages) {
      if (page > 1 && page <= own) continue;  // its own, or finer
      const std::size_t exact = cases.size();
      for (const ScoreType type : kTypes) {
        TieCase one;
        one.method = method;
        one.page = std::max(page, own);
        one.type = type;
        one.exact = exact;
        try {
          // f32 holds what f64 has no wrapper for: an order of ties makes it rank again as it is
          one.coarse =
              fmt::format("{}+coarsen:page={},scores={},ties=last", method, page, enum_name(type));
          if (!method.caps().decode)
            throw ConfigError("{} is not defined for single queries", method);
        } catch (const ConfigError& error) {
          one.coarse = {};
          one.refused = error.what();
        }
        cases.push_back(std::move(one));
      }
    }
  }
  return cases;
}

/// What one case gives at one step of a layer.
struct StepTies {
  double rows = 0.0;
  double ties = 0.0;
  double tied = 0.0;
  double changed = 0.0;
  double close = 0.0;
  std::vector<double> gap_steps;  // of its rows
};

/// What a case ranked at one step: rows of scores, and how many units each kept.
struct Ranked {
  std::vector<std::vector<double>> scores;  // [n_lists]
  std::vector<Index> kept;
  TokenRange pages;
};

Ranked ranked_of(SelectionTrace& trace, const Selection& answer, Index page) {
  Ranked ranked;
  if (answer.is_dense) return ranked;
  ranked.scores = std::move(trace.scores);
  ranked.pages = trace.scored;
  for (Index list = 0; list < answer.n_lists(); ++list) {
    Index n = 0;
    Index last = -1;
    for (const KeyPos pos : answer.at(list).scored()) {
      n += pos / page != last;
      last = pos / page;
    }
    ranked.kept.push_back(n);
  }
  return ranked;
}

/// Keys of the units that the lowest positions among the equal ones bring in and the highest do
/// not.
Index changed_keys(const std::vector<double>& scores, const TieCut& cut, TokenRange pages,
                   Index page, Index n_past) {
  Index keys = 0;
  Index left = cut.changed;
  for (std::size_t u = 0; u < scores.size() && left > 0; ++u) {
    if (scores[u] != cut.kth) continue;
    const Index begin = (pages.begin + static_cast<Index>(u)) * page;
    keys += std::min(begin + page, n_past) - begin;
    --left;
  }
  return keys;
}

StepTies count_ties(const TieCase& one, const Ranked& ranked, const Ranked& exact, Index n_past) {
  StepTies found;
  for (std::size_t i = 0; i < ranked.scores.size() && i < exact.scores.size(); ++i) {
    const TieCut cut = tie_cut(ranked.scores[i], ranked.kept[i]);
    const TieCut exact_cut = tie_cut(exact.scores[i], ranked.kept[i]);
    if (!cut.has_cut || !exact_cut.has_cut) continue;
    found.rows += 1.0;
    if (cut.has_tie) {
      found.ties += 1.0;
      found.tied += static_cast<double>(cut.tied);
      found.changed +=
          static_cast<double>(changed_keys(ranked.scores[i], cut, ranked.pages, one.page, n_past));
    }
    if (one.type == ScoreType::f64) continue;
    const double scale = row_scale(exact.scores[i], one.type);
    const double step = scale * rounding_step(exact_cut.kth / scale, one.type);
    found.gap_steps.push_back(exact_cut.gap / step);
    found.close += exact_cut.gap < step ? 1.0 : 0.0;
  }
  if (found.ties > 0.0) found.tied /= found.ties;
  if (found.rows > 0.0) found.changed /= found.rows;
  return found;
}

/// The cases on one layer, step by step.
class LayerCensus {
 public:
  LayerCensus(const TraceSource& trace, const TiesOptions& options,
              const std::vector<TieCase>& cases, ThreadPool& pool)
      : trace_(trace), cases_(cases), pool_(pool) {
    for (std::size_t c = 0; c < cases.size(); ++c) {
      if (cases[c].coarse.empty()) continue;
      const bool takes_budget = !cases[c].coarse.caps().budgets.empty();
      const std::vector<ReplayPair> pairs = {
          {cases[c].coarse, takes_budget ? std::optional(options.budget) : std::nullopt}};
      runs_.emplace_back(pairs, std::vector<std::size_t>{0}, shape_of(trace.info()),
                         options.dense_layers);
      case_of_run_.push_back(c);
    }
  }

  /// One answer per case, in order.
  std::vector<StepTies> measure(const std::vector<ReplayLayer>& layer, TokenRange call,
                                Index n_prompt) {
    const Tensor<float> q = read_queries(trace_, layer.front().layer, call);
    std::vector<Ranked> ranked(cases_.size());
    pool_.parallel_for(static_cast<Index>(runs_.size()), [&](Index r, int) {
      ReplayRun& run = runs_[static_cast<std::size_t>(r)];
      const std::size_t c = case_of_run_[static_cast<std::size_t>(r)];
      run.advance(trace_, layer, call.begin, /*chunk=*/128, n_prompt);
      run.begin_call(Phase::decode, call, {});
      SelectionTrace looked_at;
      run.ask(layer.front(), q.view(), call, /*pool=*/nullptr, &looked_at);
      ranked[c] = ranked_of(looked_at, run.answers().front(), cases_[c].page);
    });
    std::vector<StepTies> found(cases_.size());
    for (std::size_t c = 0; c < cases_.size(); ++c)
      found[c] = count_ties(cases_[c], ranked[c], ranked[cases_[c].exact], call.end);
    return found;
  }

 private:
  const TraceSource& trace_;
  const std::vector<TieCase>& cases_;
  ThreadPool& pool_;
  std::vector<ReplayRun> runs_;
  std::vector<std::size_t> case_of_run_;
};

double median(std::vector<double> values) {
  if (values.empty()) return kNan;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

/// One case over all layers and steps.
struct CaseTotals {
  double rows = 0.0;
  double ties = 0.0;
  double tied = 0.0;     // units, summed over rows with a tie
  double changed = 0.0;  // keys, summed over rows
  double close = 0.0;
  std::vector<double> gap_steps;

  void add(const StepTies& step) {
    rows += step.rows;
    ties += step.ties;
    tied += step.tied * step.ties;
    changed += step.changed * step.rows;
    close += step.close;
    gap_steps.insert(gap_steps.end(), step.gap_steps.begin(), step.gap_steps.end());
  }
  void write(Json& row) const {
    row["rows"] = rows;
    row["ties"] = ties;
    row["tie_share"] = json_number(rows > 0.0 ? ties / rows : kNan);
    row["tied"] = json_number(ties > 0.0 ? tied / ties : kNan);
    row["changed"] = json_number(rows > 0.0 ? changed / rows : kNan);
    row["close_share"] = json_number(rows > 0.0 && !gap_steps.empty() ? close / rows : kNan);
    row["gap_steps"] = json_number(median(gap_steps));
  }
};

void check_model(const TraceInfo& info, const Transformer& model) {
  const ModelConfig& config = model.config();
  if (config.n_layers == info.n_layers && config.n_q == info.n_q && config.n_vocab == info.n_vocab)
    return;
  throw ConfigError(
      "ties: the model has {} layers, {} query heads and {} tokens in its "
      "vocabulary, expected those of the recording: {}, {} and {}",
      config.n_layers, config.n_q, config.n_vocab, info.n_layers, info.n_q, info.n_vocab);
}

/// Decodes with both orders of ties, adds what came out to the cases' rows and writes the arrays
/// live/.
void add_closed_loop(const TraceSource& trace, const TiesOptions& options,
                     const std::vector<TieCase>& cases, Json& rows, ResultWriter& output,
                     ThreadPool& pool, const ProgressFn& progress, const std::stop_token& stop) {
  constexpr std::array<const char*, 4> kNames = {"steps", "first_changed", "first_token",
                                                 "logit_change"};
  constexpr std::array<const char*, 4> kLoopUnits = {"token", "token", "token", "logit"};
  constexpr std::array<const char*, 4> kLoopWords = {
      "steps decoded", "first step with other logits", "first step with another token",
      "largest change of a logit"};
  std::array<std::vector<double>, 4> values;
  for (auto& one : values) one.assign(cases.size(), kNan);
  const auto n_prompt =
      static_cast<std::size_t>(std::clamp<Index>(trace.info().n_prompt, 1, trace.info().n_tokens));
  const FilledPrompt prompt = fill_prompt(*options.model, trace.tokens().first(n_prompt), pool);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const TieCase& one = cases[c];
    if (one.coarse.empty() || one.type == ScoreType::f64 || one.page != one.method.caps().page_size)
      continue;
    const auto on_step = [&](Index step) {
      check_stop(stop, "ties");
      if (progress && step % 10 == 0)
        progress({"closed loop", static_cast<Index>(c), n_of(cases), "cases"});
    };
    MethodSpec method = one.method;
    method.fill("dense-layers", options.dense_layers);
    const bool takes_budget = !method.caps().budgets.empty();
    const TieOrderEffect effect =
        compare_tie_orders(*options.model, prompt, method, enum_name(one.type),
                           takes_budget ? std::optional(options.budget) : std::nullopt,
                           options.new_tokens, pool, on_step);
    values[0][c] = static_cast<double>(effect.n_steps);
    values[1][c] = static_cast<double>(effect.first_changed);
    values[2][c] = static_cast<double>(effect.first_token);
    values[3][c] = effect.logit_change;
  }
  for (std::size_t v = 0; v < kNames.size(); ++v) {
    const std::string name = fmt::format("live/{}", kNames[v]);
    output.declare({name, ResultType::f64, {n_of(cases)}, {"case"}, kLoopUnits[v], kLoopWords[v]});
    output.write<double>(name, 0, values[v]);
    for (std::size_t c = 0; c < cases.size(); ++c)
      rows[c][fmt::format("live_{}", kNames[v])] = json_number(values[v][c]);
  }
}

}  // namespace

std::vector<MethodSpec> default_tie_methods() {
  return {"quest", "quoka", "loki", "sparq:mean-value=false", "oracle-topk"};
}

Json analyze_ties(const TraceSource& trace, const TiesOptions& options, const AnalysisRun& run) {
  check_fields(options);
  require_full_qkv(trace, "ties");
  require_unique(mapped<std::string>(options.selectors, &MethodSpec::text), "selector", "ties");
  const TraceInfo& info = trace.info();
  if (options.model != nullptr) check_model(info, *options.model);
  const std::vector<TieCase> cases = make_cases(options);
  CallPlan plan;
  plan.phase = Phase::decode;
  plan.steps = options.steps;
  const std::vector<TokenRange> calls = plan_calls(info, plan, trace.where());
  std::vector<Index> layers = options.layers.empty() ? info.layers : options.layers;
  std::ranges::sort(layers);
  require_unique(layers, "layer", "ties");
  for (const Index layer : layers) info.layer_slot(layer);
  std::erase_if(layers, [&](Index layer) {
    return layer < options.dense_layers || window_of(info, layer).has_value();
  });
  if (layers.empty()) throw ConfigError("ties: no layer is left that a method chooses in");

  Json config = {
      {"selectors", Json::array()}, {"budget", options.budget.to_string()}, {"layers", layers}};
  for (const TieCase& one : cases) {
    if (config["selectors"].empty() || config["selectors"].back() != one.method.text())
      config["selectors"].push_back(one.method.text());
  }
  config.update(fields_to_json(options));
  add_artifacts(options.selectors, config);
  run.begin("ties", trace, config);
  write_axis(run.output, "layer", layers, "layer", "layer");
  const auto positions = mapped<Index>(calls, &TokenRange::begin);
  write_axis(run.output, "step_pos", positions, "token", "position of the step");
  const Index n_cases = n_of(cases);
  const Index n_steps = n_of(calls);
  LayerArrays arrays(run.output, n_of(layers));
  const auto by_step = [&](const std::string& name, const char* units,
                           const char* words) -> Tensor<double>& {
    return arrays.add<double>(name, {n_cases, n_steps}, {"case", "step"}, units, words, kNan);
  };
  Tensor<double>& rows = by_step("rows", "1", "rows with a cut");
  Tensor<double>& ties = by_step("ties", "1", "rows with a tie at the cut");
  Tensor<double>& tied = by_step("tied", "1", "units in the tied set");
  Tensor<double>& changed = by_step("changed", "token", "keys that another order of ties changes");
  Tensor<double>& close = by_step("close", "1", "rows with a gap below one rounding step");
  Tensor<double>& gap_steps = arrays.add<double>("gap_steps", {n_cases}, {"case"}, "1",
                                                 "gap at the cut in rounding steps", kNan);

  Json summary = {{"rows", Json::array()}, {"layers", Json::array()}, {"totals", Json::object()}};
  std::vector<CaseTotals> totals(cases.size());
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<ReplayLayer> data;
    data.push_back(read_layer(trace, layers[l], calls.back().end));
    LayerCensus census(trace, options, cases, run.pool);
    arrays.clear();
    std::vector<CaseTotals> of_layer(cases.size());
    for (std::size_t s = 0; s < calls.size(); ++s) {
      check_stop(run.stop, "ties");
      if (run.progress) {
        run.progress({"ties", static_cast<Index>(l * calls.size() + s),
                      static_cast<Index>(layers.size() * calls.size()), "steps"});
      }
      const std::vector<StepTies> found = census.measure(data, calls[s], prompt_end(info, plan));
      for (std::size_t c = 0; c < found.size(); ++c) {
        if (cases[c].coarse.empty()) continue;
        const auto at = static_cast<Index>(c);
        const auto step = static_cast<Index>(s);
        rows(at, step) = found[c].rows;
        ties(at, step) = found[c].ties;
        tied(at, step) = found[c].tied;
        changed(at, step) = found[c].changed;
        close(at, step) = found[c].close;
        of_layer[c].add(found[c]);
        totals[c].add(found[c]);
      }
    }
    std::map<ScoreType, CaseTotals> by_type;  // of all methods and sizes of pages
    for (std::size_t c = 0; c < cases.size(); ++c) {
      gap_steps(static_cast<Index>(c)) = median(of_layer[c].gap_steps);
      if (cases[c].type != ScoreType::f64)
        by_type[cases[c].type].add(
            {of_layer[c].rows, of_layer[c].ties,
             of_layer[c].ties > 0.0 ? of_layer[c].tied / of_layer[c].ties : 0.0,
             of_layer[c].rows > 0.0 ? of_layer[c].changed / of_layer[c].rows : 0.0,
             of_layer[c].close, of_layer[c].gap_steps});
    }
    Json row = {{"layer", layers[l]}};
    for (const auto& [type, all] : by_type) {
      row[fmt::format("tie_share_{}", enum_name(type))] =
          json_number(all.rows > 0.0 ? all.ties / all.rows : kNan);
      row[fmt::format("changed_{}", enum_name(type))] =
          json_number(all.rows > 0.0 ? all.changed / all.rows : kNan);
    }
    summary["layers"].push_back(std::move(row));
    arrays.write(static_cast<Index>(l));
  }
  for (std::size_t c = 0; c < cases.size(); ++c) {
    Json row = {{"selector", cases[c].method.text()},
                {"page", cases[c].page},
                {"scores", std::string(enum_name(cases[c].type))},
                {"refused", cases[c].refused}};
    totals[c].write(row);
    summary["rows"].push_back(std::move(row));
  }
  if (options.model != nullptr)
    add_closed_loop(trace, options, cases, summary["rows"], run.output, run.pool, run.progress,
                    run.stop);
  summary["totals"] = mean_of_layers(summary["layers"]);
  add_plot(run.output, "plot_changed", "changed", {"layer", ".", "step_pos"},
           "Keys that another order of ties changes");
  add_plot(run.output, "plot_ties", "ties", {"layer", ".", "step_pos"},
           "Rows with a tie at the cut");
  return run.finish(std::move(summary));
}

}  // namespace kvscope
