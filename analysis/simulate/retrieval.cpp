#include "analysis/simulate/retrieval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analysis/analysis.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"
#include "core/sim/draft_runner.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::ordered_json;
using Units = std::vector<std::vector<UnitResult>>;

constexpr double kSolved = 0.5;  // a dense score from which a drop is the selector's

/// Counts that are refused before anything of their size is made: a grid of more prompts than these
/// runs for years.
constexpr Index kMostDepths = 1000;
constexpr Index kMostTrials = 100'000;
constexpr double kMostPrompts = 1e6;

const RetrievalOptions& checked(const RetrievalOptions& options) {
  if (options.kinds.empty() || options.lengths.empty() || options.n_depths < 1 ||
      options.trials < 1 || options.n_fed < 1) {
    throw ConfigError(
        fmt::format("{}: expected at least one kind, length, depth, trial and fed token, found "
                    "{}, {}, {}, {} "
                    "and {}",
                    options.task, options.kinds.size(), options.lengths.size(), options.n_depths,
                    options.trials, options.n_fed));
  }
  const double n_prompts = static_cast<double>(options.kinds.size() * options.lengths.size()) *
                           static_cast<double>(options.n_depths) *
                           static_cast<double>(options.trials);
  if (options.n_depths > kMostDepths || options.trials > kMostTrials || n_prompts > kMostPrompts) {
    throw ConfigError(fmt::format(
        "{}: expected at most {} depths, {} trials and {} prompts in all, found {}, {} and {:.0f}",
        options.task, kMostDepths, kMostTrials, kMostPrompts, options.n_depths, options.trials,
        n_prompts));
  }
  return options;
}

std::vector<double> depths_of(Index n) {
  std::vector<double> depths;
  for (Index i = 0; i < n; ++i) {
    depths.push_back(n == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(n - 1));
  }
  return depths;
}

class Retrieval final : public SimulationTask {
 public:
  Retrieval(const SimulationSetup& setup, const RetrievalOptions& options)
      : setup_(setup), options_(checked(options)), depths_(depths_of(options.n_depths)) {
    const Index positions = setup.models.verifier->config().max_positions;
    for (const PromptKind kind : options.kinds) {
      for (const Index length : options.lengths) {
        const Prompt prompt =
            make_prompt(spec_of(kind, length, 0, 0), setup.models.text, *setup.models.tokenizer);
        if (length + prompt.n_answer_tokens > positions) {
          throw ConfigError(fmt::format(
              "{}: a prompt of {} tokens and an answer of {} exceed the model's {} positions",
              options.task, length, prompt.n_answer_tokens, positions));
        }
      }
    }
  }

  std::string name() const override { return options_.task; }

  Json config() const override {
    std::vector<std::string> kinds;
    for (const PromptKind kind : options_.kinds) kinds.emplace_back(enum_name(kind));
    return {{"protocol", protocol()},
            {"kinds", kinds},
            {"lengths", options_.lengths},
            {"depths", options_.n_depths},
            {"trials", options_.trials},
            {"fed", options_.n_fed},
            {"facts", options_.n_facts}};
  }

  std::size_t n_cases() const override {
    return options_.kinds.size() * options_.lengths.size() * depths_.size() *
           static_cast<std::size_t>(options_.trials);
  }

  UnitShape unit_shape() const override { return {1 + kept_values({}).size(), 0}; }

  void run_case(std::size_t index, std::span<const std::size_t> pairs, const UnitDone& done,
                ThreadPool& pool, std::stop_token stop) override {
    const Place place = place_of(index);
    const PromptSpec spec = spec_of(options_.kinds[place.kind], options_.lengths[place.length],
                                    place.depth, place.trial);
    const Prompt prompt = make_prompt(spec, setup_.models.text, *setup_.models.tokenizer);
    const bool dense_prefill = options_.protocol == RetrievalProtocol::decode;
    const Index n_fed = std::min(options_.n_fed, spec.length - 1);
    const auto before =
        std::span(prompt.tokens)
            .first(static_cast<std::size_t>(dense_prefill ? spec.length - n_fed : 0));
    LiveSequence dense(*setup_.models.verifier, {}, spec.length, pool);
    dense.prefill(before, setup_.options.chunk, PrefillMode::dense);
    for_each_pair(pairs, pool, [&](std::size_t p, ThreadPool& own) {
      done(p, run_pair(setup_.pairs[p], prompt, spec, dense.cache(), own, stop));
    });
  }

  ColumnTable table(const Units& units) const override {
    ColumnTable table;
    table.text_names = {"model", "task",         "selector", "budget_kind",
                        "kind",  "dense_solves", "protocol"};
    table.number_names = {"budget",   "length",       "prompts",
                          "accuracy", "kv_reduction", "kv_union_reduction"};
    if (options_.by_depth) table.number_names.insert(table.number_names.begin() + 2, "depth");
    for (std::size_t kind = 0; kind < options_.kinds.size(); ++kind) {
      for (std::size_t length = 0; length < options_.lengths.size(); ++length) {
        for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
          if (!options_.by_depth) {
            table.rows.push_back(make_row(units, kind, length, std::nullopt, p));
            continue;
          }
          for (std::size_t depth = 0; depth < depths_.size(); ++depth) {
            table.rows.push_back(make_row(units, kind, length, depth, p));
          }
        }
      }
    }
    return table;
  }

  /// The grid: accuracy [kind, pair, length, depth].
  void extras(const Units& units, ResultSink* sink, Json& json) const override {
    Json grids = Json::array();
    std::vector<Index> pair_axis(setup_.pairs.size());
    std::iota(pair_axis.begin(), pair_axis.end(), Index{0});
    const auto n_lengths = static_cast<Index>(options_.lengths.size());
    const auto n_depths = static_cast<Index>(depths_.size());
    if (sink != nullptr) {
      write_axis(*sink, "grid/pair", pair_axis, "1", "pair, in the order of the table");
      write_axis(*sink, "grid/length", options_.lengths, "token", "prompt length");
      sink->declare(
          {"grid/depth", ResultType::f64, {n_depths}, {"depth"}, "1", "depth of the fact"});
      sink->write<double>("grid/depth", 0, depths_);
    }
    for (std::size_t kind = 0; kind < options_.kinds.size(); ++kind) {
      std::vector<double> grid;
      for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
        for (std::size_t length = 0; length < options_.lengths.size(); ++length) {
          for (std::size_t depth = 0; depth < depths_.size(); ++depth) {
            grid.push_back(accuracy(units_of(units, kind, length, depth, p)));
          }
        }
      }
      const std::string name(enum_name(options_.kinds[kind]));
      if (sink == nullptr) {
        for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
          const auto first = grid.begin() + static_cast<Index>(p) * n_lengths * n_depths;
          grids.push_back({{"kind", name},
                           {"pair", pair_label(setup_.pairs[p].asked)},
                           {"lengths", options_.lengths},
                           {"depths", depths_},
                           {"accuracy", std::vector<double>(first, first + n_lengths * n_depths)}});
        }
        continue;
      }
      const std::string array = fmt::format("grid/{}", name);
      sink->declare({array,
                     ResultType::f64,
                     {static_cast<Index>(setup_.pairs.size()), n_lengths, n_depths},
                     {"pair", "length", "depth"},
                     "1",
                     "accuracy"});
      sink->write<double>(array, 0, grid);
      sink->add_plot({"accuracy_" + name, array, {"grid/pair", "grid/length", "grid/depth"}, name});
    }
    if (sink == nullptr) json["grids"] = std::move(grids);
  }

 private:
  struct Place {
    std::size_t kind, length, depth;
    Index trial;
  };

  std::string protocol() const {
    constexpr std::string_view kProtocols[] = {"decode", "prefill", "all"};
    return std::string(kProtocols[static_cast<std::size_t>(options_.protocol)]);
  }

  Place place_of(std::size_t index) const {
    const auto n_trials = static_cast<std::size_t>(options_.trials);
    Place place{};
    place.trial = static_cast<Index>(index % n_trials);
    index /= n_trials;
    place.depth = index % depths_.size();
    index /= depths_.size();
    place.length = index % options_.lengths.size();
    place.kind = index / options_.lengths.size();
    return place;
  }

  PromptSpec spec_of(PromptKind kind, Index length, std::size_t depth, Index trial) const {
    return {kind, length, depths_[depth], options_.n_facts, setup_.options.seed, trial};
  }

  UnitResult run_pair(const LivePair& pair, const Prompt& prompt, const PromptSpec& spec,
                      const KvStore& dense, ThreadPool& pool, const std::stop_token& stop) const {
    const Index capacity = spec.length + prompt.n_answer_tokens;
    LiveSequence live(*setup_.models.verifier, pair.options, capacity, pool,
                      {setup_.calibration.get()});
    std::optional<DraftRunner> draft;
    if (pair.needs_draft) {
      draft.emplace(*setup_.models.draft, capacity, pool);
      draft->prefill(std::span(prompt.tokens).first(static_cast<std::size_t>(dense.n_tokens())),
                     setup_.options.chunk);
    }
    Tensor<float> logits;
    if (options_.protocol == RetrievalProtocol::decode) {
      const auto before =
          std::span(prompt.tokens).first(static_cast<std::size_t>(dense.n_tokens()));
      if (live.shares_dense_prefill()) {
        live.adopt(dense);
      } else {
        live.prefill(before, setup_.options.chunk, PrefillMode::dense);
      }
      live.clear_stats();
      logits = feed(live, draft, std::span(prompt.tokens).subspan(before.size()), stop);
    } else {
      logits = prefill_by_chunks(live, prompt.tokens, stop);
      live.set_sparse(options_.protocol == RetrievalProtocol::all);
    }
    std::vector<TokenId> answer;
    while (static_cast<Index>(answer.size()) < prompt.n_answer_tokens) {
      check_stop(stop, "simulate");
      answer.push_back(argmax(logits.view().row(logits.dim(0) - 1)));
      if (static_cast<Index>(answer.size()) == prompt.n_answer_tokens) break;
      logits = feed(live, draft, {&answer.back(), 1}, stop);
    }
    UnitResult unit;
    unit.values = {score_answer(spec.kind, prompt, setup_.models.tokenizer->decode(answer))};
    const auto kept = kept_values(live.stats().all());
    unit.values.insert(unit.values.end(), kept.begin(), kept.end());
    return unit;
  }

  /// Chunks under the selector, with a look at `stop` before each.
  Tensor<float> prefill_by_chunks(LiveSequence& live, std::span<const TokenId> tokens,
                                  const std::stop_token& stop) const {
    const auto chunk = static_cast<std::size_t>(setup_.options.chunk);
    Tensor<float> logits;
    for (std::size_t at = 0; at < tokens.size(); at += chunk) {
      check_stop(stop, "simulate");
      logits = live.run(Phase::prefill, tokens.subspan(at, std::min(chunk, tokens.size() - at)),
                        at + chunk >= tokens.size() ? Logits::last : Logits::none);
    }
    return logits;
  }

  /// One token at a time; with a draft, gamma at a time, the draft consuming the same tokens.
  Tensor<float> feed(LiveSequence& live, std::optional<DraftRunner>& draft,
                     std::span<const TokenId> tokens, const std::stop_token& stop) const {
    const auto step = static_cast<std::size_t>(draft ? setup_.options.gamma : 1);
    Tensor<float> logits;
    for (std::size_t at = 0; at < tokens.size(); at += step) {
      check_stop(stop, "simulate");
      const auto call = tokens.subspan(at, std::min(step, tokens.size() - at));
      std::vector<Tensor<float>> rows;
      if (draft) rows = draft->consume(call);
      logits = live.run(draft ? Phase::verify : Phase::decode, call, Logits::last, rows);
    }
    return logits;
  }

  std::vector<const UnitResult*> units_of(const Units& units, std::size_t kind, std::size_t length,
                                          std::optional<std::size_t> depth,
                                          std::size_t pair) const {
    std::vector<const UnitResult*> found;
    for (std::size_t c = 0; c < units.size(); ++c) {
      const Place place = place_of(c);
      if (place.kind == kind && place.length == length &&
          place.depth == depth.value_or(place.depth))
        found.push_back(&units[c][pair]);
    }
    return found;
  }

  static double accuracy(const std::vector<const UnitResult*>& units) {
    double sum = 0.0;
    for (const UnitResult* unit : units) sum += unit->values[0];
    return sum / static_cast<double>(units.size());
  }

  /// Of selector full over all depths; NaN if it was not asked for.
  double dense_accuracy(const Units& units, std::size_t kind, std::size_t length) const {
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      if (setup_.pairs[p].asked.selector != "full") continue;
      return accuracy(units_of(units, kind, length, std::nullopt, p));
    }
    return kNan;
  }

  ColumnTable::Row make_row(const Units& units, std::size_t kind, std::size_t length,
                            std::optional<std::size_t> depth, std::size_t pair) const {
    const auto mine = units_of(units, kind, length, depth, pair);
    const Reductions kept = reductions_of(mine, 1);
    const double dense = dense_accuracy(units, kind, length);
    ColumnTable::Row row;
    row.texts = pair_texts(setup_, name(), pair);
    row.texts.emplace_back(enum_name(options_.kinds[kind]));
    row.texts.emplace_back(dense != dense ? "" : dense >= kSolved ? "yes" : "no");
    row.texts.push_back(protocol());
    row.numbers = {budget_value(setup_.pairs[pair]), static_cast<double>(options_.lengths[length])};
    if (depth) row.numbers.push_back(depths_[*depth]);
    for (double x :
         {static_cast<double>(mine.size()), accuracy(mine), kept.per_head, kept.per_union}) {
      row.numbers.push_back(x);
    }
    return row;
  }

  const SimulationSetup& setup_;
  RetrievalOptions options_;
  std::vector<double> depths_;
};

}  // namespace

std::unique_ptr<SimulationTask> make_retrieval_task(const SimulationSetup& setup,
                                                    const RetrievalOptions& options) {
  return std::make_unique<Retrieval>(setup, options);
}

Phase phase_of(RetrievalProtocol protocol) {
  return protocol == RetrievalProtocol::decode ? Phase::decode : Phase::prefill;
}

}  // namespace kvscope
