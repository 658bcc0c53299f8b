#include "analysis/simulate/perplexity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "analysis/analysis.hpp"
#include "core/base/error.hpp"
#include "core/sim/draft_runner.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::ordered_json;
using Units = std::vector<std::vector<UnitResult>>;

class Perplexity final : public SimulationTask {
 public:
  Perplexity(const SimulationSetup& setup, const PerplexityOptions& options)
      : setup_(setup), options_(options) {
    check_fields(options);
    const auto n_text = static_cast<Index>(setup.models.text.size());
    const Index needed = options.offset + options.windows * options.n_tokens;
    if (n_text < needed) {
      throw ConfigError(fmt::format(
          "perplexity: {} has {} tokens, expected at least {} ({} windows of {} from token {} on)",
          setup.models.text_name, n_text, needed, options.windows, options.n_tokens,
          options.offset));
    }
    if (n_scored() < 1) {
      throw ConfigError(fmt::format("perplexity: a prefill of {} of {} tokens leaves none to score",
                                    n_prefill(), options.n_tokens));
    }
    const Index positions = setup.models.verifier->config().max_positions;
    if (options.n_tokens > positions) {
      throw ConfigError(
          fmt::format("perplexity: windows of {} tokens exceed the model's {} positions",
                      options.n_tokens, positions));
    }
  }

  std::string name() const override { return "perplexity"; }
  Json config() const override { return fields_to_json(options_); }
  std::size_t n_cases() const override { return static_cast<std::size_t>(options_.windows); }
  UnitShape unit_shape() const override {
    return {kept_values({}).size(), static_cast<std::size_t>(n_scored())};
  }

  void run_case(std::size_t index, std::span<const std::size_t> pairs, const UnitDone& done,
                ThreadPool& pool, std::stop_token stop) override {
    const auto window = setup_.models.text.subspan(
        static_cast<std::size_t>(options_.offset + static_cast<Index>(index) * options_.n_tokens),
        static_cast<std::size_t>(options_.n_tokens));
    const auto prompt = window.first(static_cast<std::size_t>(n_prefill()));
    ThreadPool& all = pool;
    const Transformer& model = *setup_.models.verifier;
    LiveSequence dense(model, {}, std::max<Index>(1, n_prefill()), all);
    dense.prefill(prompt, setup_.options.chunk, PrefillMode::dense);
    for_each_pair(pairs, pool, [&](std::size_t p, ThreadPool& own) {
      const LivePair& pair = setup_.pairs[p];
      LiveSequence live(model, pair.options, options_.n_tokens, own, calibration());
      if (live.shares_dense_prefill()) {
        live.adopt(dense.cache());
      } else {
        live.prefill(prompt, setup_.options.chunk, PrefillMode::dense);
      }
      live.clear_stats();
      UnitResult unit;
      unit.series = losses(live, pair, window, own, stop);
      unit.values = kept_values(live.stats().all());
      done(p, std::move(unit));
    });
  }

  ColumnTable table(const Units& units) const override {
    ColumnTable table;
    table.text_names = {"model", "task", "selector", "budget_kind"};
    table.number_names = {"budget",       "n_tokens",          "scored_tokens",
                          "perplexity",   "relative_increase", "log_perplexity",
                          "kv_reduction", "kv_union_reduction"};
    const double dense = dense_perplexity(units);
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      const auto mine = units_of(units, p);
      const double log_perplexity = mean_loss(mine);
      const double perplexity = std::exp(log_perplexity);
      const Reductions kept = reductions_of(mine, 0);
      table.rows.push_back(
          {pair_texts(setup_, name(), p),
           {budget_value(setup_.pairs[p]), static_cast<double>(options_.n_tokens),
            static_cast<double>(n_scored() * options_.windows), perplexity,
            perplexity / dense - 1.0, log_perplexity, kept.per_head, kept.per_union}});
    }
    return table;
  }

  /// Cumulative log perplexity by step: the mean loss of steps 0..t over all windows.
  void extras(const Units& units, ResultSink* sink, Json& json) const override {
    const auto n_pairs = static_cast<Index>(setup_.pairs.size());
    std::vector<double> curves;
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      double sum = 0.0;
      for (std::size_t t = 0; t < static_cast<std::size_t>(n_scored()); ++t) {
        for (const UnitResult* unit : units_of(units, p)) sum += unit->series[t];
        curves.push_back(sum / static_cast<double>((t + 1) * units.size()));
      }
    }
    if (sink == nullptr) {
      json["curves"] = {{"step_begin", n_prefill()}, {"log_perplexity", Json::array()}};
      for (Index p = 0; p < n_pairs; ++p) {
        const auto first = curves.begin() + p * n_scored();
        json["curves"]["log_perplexity"].push_back(std::vector<double>(first, first + n_scored()));
      }
      return;
    }
    std::vector<Index> steps(static_cast<std::size_t>(n_scored()));
    std::iota(steps.begin(), steps.end(), n_prefill());
    std::vector<Index> pairs(setup_.pairs.size());
    std::iota(pairs.begin(), pairs.end(), Index{0});
    write_axis(*sink, "curve/position", steps, "token", "position");
    write_axis(*sink, "curve/pair", pairs, "1", "row of the table");
    sink->declare({"curve/log_perplexity",
                   ResultType::f64,
                   {n_pairs, n_scored()},
                   {"pair", "position"},
                   "nat",
                   "mean loss up to this position"});
    sink->write<double>("curve/log_perplexity", 0, curves);
    sink->add_plot({"log_perplexity",
                    "curve/log_perplexity",
                    {"curve/pair", "curve/position"},
                    "cumulative log perplexity"});
  }

 private:
  Index n_prefill() const {
    return static_cast<Index>(
        std::floor(options_.prefill * static_cast<double>(options_.n_tokens)));
  }
  /// The last token has no successor in the window.
  Index n_scored() const { return options_.n_tokens - 1 - n_prefill(); }

  LiveCalibration calibration() const {
    return {setup_.calibration.get()};
  }

  /// Losses of the tokens after each position from the prefill's end on, [n_scored].
  std::vector<double> losses(LiveSequence& live, const LivePair& pair,
                             std::span<const TokenId> window, ThreadPool& pool,
                             const std::stop_token& stop) const {
    const bool by_chunks = options_.mode == PerplexityMode::prefill;
    std::optional<DraftRunner> draft;
    if (pair.needs_draft) {
      draft.emplace(*setup_.models.draft, options_.n_tokens, pool);
      draft->prefill(window.first(static_cast<std::size_t>(n_prefill())), setup_.options.chunk);
    }
    const Index step = by_chunks ? setup_.options.chunk : draft ? setup_.options.gamma : 1;
    const Phase phase = by_chunks ? Phase::prefill : draft ? Phase::verify : Phase::decode;
    std::vector<double> losses;
    for (Index begin = n_prefill(); begin < options_.n_tokens - 1; begin += step) {
      check_stop(stop, "simulate");
      const Index n = std::min(step, options_.n_tokens - 1 - begin);
      const auto call =
          window.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n));
      std::vector<Tensor<float>> rows;
      if (draft) rows = draft->consume(call);
      const Tensor<float> logits = live.run(phase, call, Logits::all, rows);
      for (Index i = 0; i < n; ++i) {
        losses.push_back(negative_log_likelihood(logits.view().row(i),
                                                 window[static_cast<std::size_t>(begin + i + 1)]));
      }
    }
    return losses;
  }

  static std::vector<const UnitResult*> units_of(const Units& units, std::size_t pair) {
    std::vector<const UnitResult*> mine;
    for (const auto& of_case : units) mine.push_back(&of_case[pair]);
    return mine;
  }

  static double mean_loss(const std::vector<const UnitResult*>& units) {
    double sum = 0.0;
    double n = 0.0;
    for (const UnitResult* unit : units) {
      for (double loss : unit->series) sum += loss;
      n += static_cast<double>(unit->series.size());
    }
    return sum / n;
  }

  /// Of selector full; NaN if it was not asked for.
  double dense_perplexity(const Units& units) const {
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      if (setup_.pairs[p].asked.selector == "full") return std::exp(mean_loss(units_of(units, p)));
    }
    return std::numeric_limits<double>::quiet_NaN();
  }

  const SimulationSetup& setup_;
  PerplexityOptions options_;
};

}  // namespace

double negative_log_likelihood(std::span<const float> logits, TokenId target) {
  const double max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max);
  return max + std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(target)]);
}

std::unique_ptr<SimulationTask> make_perplexity_task(const SimulationSetup& setup,
                                                     const PerplexityOptions& options) {
  return std::make_unique<Perplexity>(setup, options);
}

}  // namespace kvscope
