#include "analysis/simulate/speculative.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "analysis/base/analysis.hpp"
#include "analysis/simulate/dense_prefix.hpp"
#include "analysis/simulate/intervals.hpp"
#include "analysis/simulate/measured_cost.hpp"
#include "analysis/simulate/prefill_chunks.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/sim/speculative.hpp"

namespace kvscope {

namespace {

using Units = std::vector<std::vector<UnitResult>>;

/// Places in UnitResult::values.
enum Value : std::size_t {
  kPasses,
  kAccepted,
  kTokens,
  kFirstDifference,  // NaN: none
  kDraftSeconds,
  kSelectionSeconds,
  kAttentionSeconds,
  kTotalSeconds,
  kGreedySeconds,
  kKept,  // kKeptValues totals
};

class Speculative final : public SimulationTask {
 public:
  Speculative(const SimulationSetup& setup, const SpeculativeOptions& options,
              std::vector<Index> gammas)
      : setup_(setup), options_(options), gammas_(std::move(gammas)) {
    check_fields(options);
    if (setup.models.draft == nullptr)
      throw ConfigError("speculative: needs a draft model, and none was given");
    if (gammas_.empty()) throw ConfigError("speculative: expected at least one gamma");
    for (const Index gamma : gammas_) {
      if (gamma < 1 || gamma > 1024)
        throw ConfigError("speculative: expected gamma in [1, 1024], found {}", gamma);
    }
    texts_ = setup.models.texts();
    const Index needed = options.offset + options.prompts * options.prompt;
    for (const FurtherText& text : texts_) {
      const auto n_text = static_cast<Index>(text.tokens.size());
      if (n_text >= needed) continue;
      throw ConfigError(
          "speculative: {} has {} tokens, expected at least {} ({} prompts of {} from token {} on)",
          text.name, n_text, needed, options.prompts, options.prompt, options.offset);
    }
    const Index positions = std::min(setup.models.verifier->config().max_positions,
                                     setup.models.draft->config().max_positions);
    if (capacity() > positions) {
      throw ConfigError(
          "speculative: {} tokens of prompt, {} new ones and the drafts exceed the "
          "models' {} positions",
          options.prompt, options.n_new, positions);
    }
  }

  std::string name() const override { return "speculative"; }
  Json config() const override {
    Json json = fields_to_json(options_);
    json["gammas"] = gammas_;
    return json;
  }
  /// By gamma, then text, then prompt.
  std::size_t n_cases() const override { return gammas_.size() * n_prompts(); }

  bool measures_seconds() const override { return true; }

  /// One prompt of every gamma.
  std::vector<std::size_t> match_cases() const override {
    std::vector<std::size_t> cases;
    for (std::size_t g = 0; g < gammas_.size(); ++g) cases.push_back(g * n_prompts());
    return cases;
  }

  Index case_tokens(std::size_t) const override { return options_.prompt + options_.n_new; }
  UnitShape unit_shape() const override { return {kKept + kKeptValues, 0, {kKept}}; }

  OpenCase open_case(std::size_t index, ThreadPool& pool, std::stop_token stop) override {
    const Index gamma = gammas_[index / n_prompts()];
    const auto n_per_text = static_cast<std::size_t>(options_.prompts);
    const std::vector<TokenId> prompt =
        text_window(setup_.models, texts_[text_of(index % n_prompts())].tokens,
                    options_.offset + static_cast<Index>(index % n_per_text) * options_.prompt,
                    options_.prompt);
    const auto on_tokens = [stop](Index) {
      check_stop(stop, "simulate");
      return true;
    };
    const DensePrefix prefix(setup_, std::span(prompt).first(prompt.size() - 1), pool, stop);
    LiveSequence greedy(*setup_.models.verifier, {}, capacity(), pool);
    prefix.begin(greedy, stop);
    const auto start = std::chrono::steady_clock::now();
    const std::vector<TokenId> expected =
        decode_greedily(greedy, prompt.back(), options_.n_new, on_tokens);
    const double greedy_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return [this, stop, on_tokens, gamma, prefix, expected, greedy_seconds, last = prompt.back()](
               std::size_t p, ThreadPool& own) {
      LiveSequence live(*setup_.models.verifier, setup_.pairs[p].options, capacity(), own,
                        {setup_.calibration.get()});
      prefix.begin(live, stop);
      DraftRunner draft(*setup_.models.draft, capacity(), own);
      prefill_chunks(draft, prefix.tokens(), setup_.options.chunk, stop);
      const SpeculativeResult result =
          decode_speculatively(live, draft, last, options_.n_new, gamma, on_tokens);
      return to_unit(result, live.stats(), expected, greedy_seconds);
    };
  }

  Json rows(const Units& units) const override {
    Json rows = Json::array({greedy_row(units)});
    for (std::size_t g = 0; g < gammas_.size(); ++g) {
      for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
        std::vector<const UnitResult*> mine;
        for (std::size_t i = 0; i < n_prompts(); ++i)
          mine.push_back(&units[g * n_prompts() + i][p]);
        rows.push_back(row_of(mine, gammas_[g], p));
      }
    }
    return rows;
  }

 private:
  std::size_t n_prompts() const {
    return texts_.size() * static_cast<std::size_t>(options_.prompts);
  }
  std::size_t text_of(std::size_t prompt) const {
    return prompt / static_cast<std::size_t>(options_.prompts);
  }

  /// Of accepted tokens per pass: a ratio of two sums over the prompts that are drawn, texts first.
  /// NaN for one prompt.
  Interval acceptance_interval(const std::vector<const UnitResult*>& units) const {
    std::vector<std::vector<double>> values(2);
    std::vector<std::size_t> text;
    for (std::size_t i = 0; i < units.size(); ++i) {
      values[0].push_back(units[i]->values[kAccepted]);
      values[1].push_back(units[i]->values[kPasses]);
      text.push_back(text_of(i));
    }
    if (units.size() < 2) return {kNan, kNan};
    auto means = bootstrap_over_texts(
        values, text, {static_cast<std::uint64_t>(setup_.options.seed), 0x737065637561});
    for (std::size_t i = 0; i < means[0].size(); ++i) means[0][i] /= means[1][i];
    return percentiles95(means[0]);
  }

  Index capacity() const {
    return options_.prompt + options_.n_new + *std::max_element(gammas_.begin(), gammas_.end()) + 1;
  }

  static UnitResult to_unit(const SpeculativeResult& result, const LiveStats& stats,
                            const std::vector<TokenId>& expected, double greedy_seconds) {
    const auto [one, other] =
        std::mismatch(expected.begin(), expected.end(), result.tokens.begin(), result.tokens.end());
    UnitResult unit;
    unit.values.resize(kKept);
    unit.values[kPasses] = static_cast<double>(result.accepted.size());
    for (const Index n : result.accepted) unit.values[kAccepted] += static_cast<double>(n);
    unit.values[kTokens] = static_cast<double>(result.tokens.size());
    unit.values[kFirstDifference] =
        one == expected.end() ? kNan : static_cast<double>(one - expected.begin());
    unit.values[kDraftSeconds] = result.draft_seconds;
    unit.values[kSelectionSeconds] = stats.times.selection;
    unit.values[kAttentionSeconds] = stats.times.attention;
    unit.values[kTotalSeconds] = result.total_seconds;
    unit.values[kGreedySeconds] = greedy_seconds;
    const auto kept = kept_values(stats, Phase::verify);
    unit.values.insert(unit.values.end(), kept.begin(), kept.end());
    return unit;
  }

  static double sum(const std::vector<const UnitResult*>& units, Value value) {
    double total = 0.0;
    for (const UnitResult* unit : units) total += unit->values[value];
    return total;
  }

  /// Decoding without a draft; the seconds of all its runs, which were one per case.
  Json greedy_row(const Units& units) const {
    double seconds = 0.0;
    for (const auto& of_case : units) seconds += of_case.front().values[kGreedySeconds];
    const double tokens = static_cast<double>(units.size()) * static_cast<double>(options_.n_new);
    return {{"model", setup_.models.verifier_name},
            {"task", name()},
            {"selector", "greedy"},
            {"budget_kind", "none"},
            {"texts", texts_.size()},
            {"prompts", n_prompts()},
            {"tokens", tokens},
            {"tokens_per_pass", 1.0},
            {"tokens_per_second", tokens / seconds}};
  }

  Json row_of(const std::vector<const UnitResult*>& units, Index gamma, std::size_t pair) const {
    const double passes = sum(units, kPasses);
    const double accepted = sum(units, kAccepted) / passes;
    double n_same = 0.0;
    double first = std::numeric_limits<double>::infinity();
    for (const UnitResult* unit : units) {
      const double at = unit->values[kFirstDifference];
      if (at != at) {
        n_same += 1.0;
      } else {
        first = std::min(first, at);
      }
    }
    const Reductions kept = reductions_of(units, kKept);
    const Interval interval = acceptance_interval(units);
    const double total = sum(units, kTotalSeconds);
    const double draft = sum(units, kDraftSeconds);
    const double selection = sum(units, kSelectionSeconds);
    const double attention = sum(units, kAttentionSeconds);
    Json row = begin_row(setup_, name(), pair);
    row["draft"] = setup_.models.draft_name;
    row["gamma"] = gamma;
    row["texts"] = texts_.size();
    row["prompts"] = units.size();
    row["tokens"] = sum(units, kTokens);
    row["acceptance_length"] = accepted;
    row["acceptance_length_low"] = interval.low;
    row["acceptance_length_high"] = interval.high;
    row["acceptance_rate"] = accepted / static_cast<double>(gamma);
    row["tokens_per_pass"] = accepted + 1.0;
    row["kv_reduction"] = kept.per_head;
    row["kv_union_reduction"] = kept.per_union;
    // of a unit that failed all numbers are NaN
    row["same_as_dense"] = std::isnan(passes) ? kNan : n_same / static_cast<double>(units.size());
    row["first_difference"] = std::isnan(passes) || std::isinf(first) ? kNan : first;
    row["tokens_per_second"] = sum(units, kTokens) / total;
    row["draft_seconds"] = draft;
    row["selection_seconds"] = selection;
    row["attention_seconds"] = attention;
    row["rest_seconds"] = total - draft - selection - attention;
    add_cost_cells(row, setup_, pair, units, kKept);
    return row;
  }

  const SimulationSetup& setup_;
  SpeculativeOptions options_;
  std::vector<Index> gammas_;
  std::vector<FurtherText> texts_;
};

}  // namespace

std::unique_ptr<SimulationTask> make_speculative_task(const SimulationSetup& setup,
                                                      const SpeculativeOptions& options,
                                                      std::vector<Index> gammas) {
  return std::make_unique<Speculative>(setup, options, std::move(gammas));
}

}  // namespace kvscope
