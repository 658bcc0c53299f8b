#include "analysis/simulate/perplexity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/base/analysis.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/simulate/dense_prefix.hpp"
#include "analysis/simulate/measured_cost.hpp"
#include "analysis/simulate/prefill_chunks.hpp"
#include "analysis/simulate/row_units.hpp"
#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/sim/draft_runner.hpp"

namespace kvscope {

namespace {

using Units = std::vector<std::vector<UnitResult>>;

class Perplexity final : public SimulationTask {
 public:
  Perplexity(const SimulationSetup& setup, const PerplexityOptions& options)
      : setup_(setup), options_(options) {
    check_fields(options);
    texts_ = setup.models.texts();
    const Index needed = options.offset + options.windows * options.n_tokens;
    for (const FurtherText& text : texts_) {
      const auto n_text = static_cast<Index>(text.tokens.size());
      if (n_text >= needed) continue;
      throw ConfigError(
          "perplexity: {} has {} tokens, expected at least {} (--windows {} of --max-tokens {}, "
          "from --offset {} on)",
          text.name, n_text, needed, options.windows, options.n_tokens, options.offset);
    }
    if (n_scored() < 1) {
      throw ConfigError("perplexity: a prefill of {} of {} tokens leaves none to score",
                        n_prefill(), options.n_tokens);
    }
    const Index positions = setup.models.verifier->config().max_positions;
    if (options.n_tokens > positions) {
      throw ConfigError("perplexity: windows of {} tokens exceed the model's {} positions",
                        options.n_tokens, positions);
    }
  }

  std::string name() const override { return "perplexity"; }
  Json config() const override { return fields_to_json(options_); }
  /// By text, then window.
  std::size_t n_cases() const override { return texts_.size() * n_windows(); }
  Index case_tokens(std::size_t) const override { return options_.n_tokens; }
  UnitShape unit_shape() const override {
    return {kKeptValues, static_cast<std::size_t>(n_scored()), {0}};
  }

  OpenCase open_case(std::size_t index, ThreadPool& pool, std::stop_token stop) override {
    std::vector<TokenId> window =
        text_window(setup_.models, texts_[index / n_windows()].tokens,
                    options_.offset + static_cast<Index>(index % n_windows()) * options_.n_tokens,
                    options_.n_tokens);
    DensePrefix prefix(setup_, std::span(window).first(static_cast<std::size_t>(n_prefill())), pool,
                       stop);
    return [this, stop, window = std::move(window), prefix = std::move(prefix)](std::size_t p,
                                                                                ThreadPool& own) {
      const LivePair& pair = setup_.pairs[p];
      LiveSequence live(*setup_.models.verifier, pair.options, options_.n_tokens, own,
                        calibration());
      prefix.begin(live, stop);
      UnitResult unit;
      unit.series = losses(live, pair, window, own, stop);
      unit.values = kept_values(live.stats());
      return unit;
    };
  }

  Json rows(const Units& units) const override {
    Json rows;
    const double dense = dense_perplexity(units);
    const Resampled resampled = resample(units);
    const auto words = doubt_words(doubts_of(units, resampled), setup_.pairs.size());
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      const auto mine = units_of(units, p);
      const double log_perplexity = mean_loss(mine);
      const double perplexity = std::exp(log_perplexity);
      const Reductions kept = reductions_of(mine, 0);
      const Interval interval = percentiles95(resampled[p]);
      const Interval increase = percentiles95(differences(resampled, p, dense_pair()));
      Json& row = rows.emplace_back(begin_row(setup_, name(), p));
      row["protocol"] = protocol();
      row["doubt"] = words[p];
      row["n_tokens"] = options_.n_tokens;
      row["texts"] = texts_.size();
      row["scored_tokens"] = static_cast<double>(n_scored()) * static_cast<double>(n_cases());
      row["perplexity"] = perplexity;
      row["perplexity_low"] = std::exp(interval.low);
      row["perplexity_high"] = std::exp(interval.high);
      row["relative_increase"] = perplexity / dense - 1.0;
      row["relative_increase_low"] = std::exp(increase.low) - 1.0;
      row["relative_increase_high"] = std::exp(increase.high) - 1.0;
      row["log_perplexity"] = log_perplexity;
      row["kv_reduction"] = kept.per_head;
      row["kv_union_reduction"] = kept.per_union;
      add_cost_cells(row, setup_, p, mine, 0);
    }
    return rows;
  }

  std::vector<Doubt> doubts(const Units& units) const override {
    return doubts_of(units, resample(units));
  }

  /// One window of every text.
  std::vector<std::size_t> match_cases() const override {
    std::vector<std::size_t> cases;
    for (std::size_t t = 0; t < texts_.size(); ++t) cases.push_back(t * n_windows());
    return cases;
  }

  /// Cumulative log perplexity by step: the mean loss of steps 0..t over all windows.
  void extras(const Units& units, ResultWriter* output, Json& json) const override {
    const auto n_pairs = static_cast<Index>(setup_.pairs.size());
    std::vector<double> curves;
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      double sum = 0.0;
      for (std::size_t t = 0; t < static_cast<std::size_t>(n_scored()); ++t) {
        for (const UnitResult* unit : units_of(units, p)) sum += unit->series[t];
        curves.push_back(sum / static_cast<double>((t + 1) * units.size()));
      }
    }
    if (output == nullptr) {
      json["curves"] = {{"step_begin", n_prefill()}, {"log_perplexity", Json::array()}};
      for (Index p = 0; p < n_pairs; ++p) {
        const auto first = curves.begin() + p * n_scored();
        json["curves"]["log_perplexity"].push_back(std::vector<double>(first, first + n_scored()));
      }
      return;
    }
    write_axis(*output, "curve/position", all_in(n_prefill(), n_prefill() + n_scored()), "token",
               "position");
    write_axis(*output, "curve/pair", all_in(0, n_pairs), "1", "row of the table");
    output->put<double>("curve/log_perplexity", {n_pairs, n_scored()}, {"pair", "position"}, "nat",
                        "mean loss up to this position", curves);
    std::vector<std::vector<double>> of_blocks;
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      of_blocks.emplace_back();
      for (const UnitResult* unit : units_of(units, p)) {
        const auto blocks = block_losses(*unit);
        of_blocks.back().insert(of_blocks.back().end(), blocks.begin(), blocks.end());
      }
    }
    write_row_units(*output, of_blocks,
                    "mean loss of each block of 64 scored tokens, in nats, the same in every row");
    output->add_plot({"log_perplexity",
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

  std::size_t n_windows() const { return static_cast<std::size_t>(options_.windows); }

  LiveCalibration calibration() const { return {setup_.calibration.get()}; }

  /// Losses of the tokens after each position from the prefill's end on, [n_scored].
  std::vector<double> losses(LiveSequence& live, const LivePair& pair,
                             std::span<const TokenId> window, ThreadPool& pool,
                             const std::stop_token& stop) const {
    const bool by_chunks = options_.mode == PerplexityMode::prefill;
    std::optional<DraftRunner> draft;
    if (pair.needs_draft) {
      draft.emplace(*setup_.models.draft, options_.n_tokens, pool);
      prefill_chunks(*draft, window.first(static_cast<std::size_t>(n_prefill())),
                     setup_.options.chunk, stop);
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

  /// Losses of neighbouring tokens depend on each other: what is drawn and compared is blocks.
  Index n_blocks() const {
    constexpr Index kBlock = 64;  // tokens
    return std::max<Index>(1, n_scored() / kBlock);
  }
  std::vector<double> block_losses(const UnitResult& unit) const {
    std::vector<double> blocks;
    for (Index b = 0; b < n_blocks(); ++b) {
      const auto begin = static_cast<std::size_t>(b * n_scored() / n_blocks());
      const auto end = static_cast<std::size_t>((b + 1) * n_scored() / n_blocks());
      blocks.push_back(mean(std::span(unit.series).subspan(begin, end - begin)));
    }
    return blocks;
  }

  /// Mean losses of resamples, [pair][resample]: texts are drawn, if there are several, in each its
  /// windows, and blocks of neighbouring tokens in them, the same for all pairs. Empty, which makes
  /// intervals NaN, for too few blocks to draw from.
  using Resampled = std::vector<std::vector<double>>;
  Resampled resample(const Units& units) const {
    constexpr Index kFewestBlocks = 8;
    if (n_blocks() * static_cast<Index>(n_cases()) < kFewestBlocks)
      return Resampled(setup_.pairs.size());
    std::vector<std::vector<std::vector<std::vector<double>>>> losses(setup_.pairs.size());
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      losses[p].resize(texts_.size());
      std::size_t c = 0;
      for (const UnitResult* unit : units_of(units, p))
        losses[p][c++ / n_windows()].push_back(block_losses(*unit));
    }
    return nested_bootstrap(losses, kIntervalResamples,
                            {static_cast<std::uint64_t>(setup_.options.seed), 0x706572706c});
  }

  std::optional<std::size_t> dense_pair() const {
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      if (setup_.pairs[p].asked.selector == "full") return p;
    }
    return std::nullopt;
  }

  /// Resampled log ratios of perplexities; empty without the other.
  static std::vector<double> differences(const Resampled& resampled, std::size_t pair,
                                         std::optional<std::size_t> other) {
    std::vector<double> list;
    for (std::size_t i = 0; other && i < resampled[pair].size(); ++i)
      list.push_back(resampled[pair][i] - resampled[*other][i]);
    return list;
  }

  std::string protocol() const {
    return options_.mode == PerplexityMode::prefill ? "prefill" : "decode";
  }

  std::vector<Doubt> doubts_of(const Units& units, const Resampled& resampled) const {
    std::vector<JudgedRow> rows;
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      const JudgedBudget budget = judged_budget(setup_, p);
      const auto mine = units_of(units, p);
      const double loss = mean_loss(mine);
      rows.push_back({fmt::format("perplexity, {}", protocol()),
                      setup_.pairs[p].asked.selector.text(), budget.kind, budget.value, -loss,
                      /*is_share=*/false, fmt::format("perplexity {:.4g}", std::exp(loss)),
                      reductions_of(mine, 0).per_head});
    }
    return find_doubts(rows, [&](std::size_t a, std::size_t b) {
      const std::vector<double> gains = differences(resampled, b, a);  // of a over b, in nats
      PairedTest test;
      test.n = n_blocks() * static_cast<Index>(n_cases());
      test.difference = rows[a].mean - rows[b].mean;
      test.interval = percentiles95(gains);
      const auto share = [&](const auto& is) {
        return static_cast<double>(std::count_if(gains.begin(), gains.end(), is)) /
               static_cast<double>(gains.size());
      };
      test.p = gains.empty()
                   ? std::numeric_limits<double>::quiet_NaN()
                   : std::min(1.0, 2.0 * std::min(share([](double x) { return x <= 0.0; }),
                                                  share([](double x) { return x >= 0.0; })));
      return test;
    });
  }

  /// Of selector full; NaN if it was not asked for.
  double dense_perplexity(const Units& units) const {
    return dense_pair() ? std::exp(mean_loss(units_of(units, *dense_pair())))
                        : std::numeric_limits<double>::quiet_NaN();
  }

  const SimulationSetup& setup_;
  PerplexityOptions options_;
  std::vector<FurtherText> texts_;  // the first with the others
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
