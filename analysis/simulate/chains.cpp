#include "analysis/simulate/chains.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "analysis/base/statistics.hpp"
#include "analysis/simulate/ask_prompt.hpp"
#include "analysis/simulate/measured_cost.hpp"
#include "analysis/simulate/prompt_kit.hpp"
#include "core/base/error.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

using Json = nlohmann::ordered_json;

/// Names the draws of bootstraps over chains.
constexpr std::uint64_t kChainStream = 0x636861696e;

/// Appends items of the chain until there are n tokens; cuts the last one.
template <class Item>
void append_items(std::vector<TokenId>& tokens, std::size_t n, const Tokenizer& tokenizer,
                  const Item& item) {
  for (Index i = 0; tokens.size() < n; ++i) {
    const std::vector<TokenId> ids = tokenizer.encode(item(i));
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }
  tokens.resize(n);
}

std::vector<TokenId> running_sum(PromptDraws& draws, std::size_t n, const Tokenizer& tokenizer) {
  const Index addends[3] = {1 + draws.below(9), 1 + draws.below(9), 1 + draws.below(9)};
  Index sum = draws.below(100);
  std::vector<TokenId> tokens = tokenizer.encode(fmt::format(
      " Add {}, {} and {} in turn, modulo 1000: {},", addends[0], addends[1], addends[2], sum));
  append_items(tokens, n, tokenizer, [&](Index i) {
    sum = (sum + addends[i % 3]) % 1000;
    return fmt::format(" {},", sum);
  });
  return tokens;
}

std::vector<TokenId> rewriting(PromptDraws& draws, std::size_t n, const Tokenizer& tokenizer) {
  constexpr std::size_t kWords = 7;
  const auto things = prompt_things();
  std::vector<std::string> line;
  for (const std::size_t at : draws.choose(things.size(), kWords)) line.emplace_back(things[at]);
  std::vector<TokenId> tokens =
      tokenizer.encode(" In every line the first word of the line before goes to its end.\n");
  append_items(tokens, n, tokenizer, [&](Index) {
    std::string text = fmt::format(" {}.\n", fmt::join(line, " "));
    std::rotate(line.begin(), line.begin() + 1, line.end());
    return text;
  });
  return tokens;
}

/// Prose, and the same prose again: a prompt holds it once and its first tenth a second time.
std::vector<TokenId> copies(PromptDraws& draws, std::size_t n, Index prompt,
                            std::span<const TokenId> text) {
  const Index length = prompt * 10 / 11;
  if (static_cast<Index>(text.size()) < length) {
    throw ConfigError("chain: the text has {} tokens, a prompt of {} needs {} of them", text.size(),
                      prompt, length);
  }
  const Index start = draws.below(static_cast<Index>(text.size()) - length + 1);
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < n; ++i)
    tokens.push_back(text[static_cast<std::size_t>(start) + i % static_cast<std::size_t>(length)]);
  return tokens;
}

class Chains final : public SimulationTask {
 public:
  Chains(const SimulationSetup& setup, const ChainOptions& options)
      : setup_(setup), options_(options) {
    check_fields(options);
    if (options.kinds.empty()) throw ConfigError("chain: expected at least one kind");
    const Index positions = setup.models.verifier->config().max_positions;
    if (options.prompt + options.steps > positions) {
      throw ConfigError("chain: a prompt of {} tokens and {} steps exceed the model's {} positions",
                        options.prompt, options.steps, positions);
    }
    for (const ChainKind kind : options.kinds) make_chain(kind, options, 0, 0, setup.models);
  }

  std::string name() const override { return "chain"; }
  Json config() const override {
    Json json = fields_to_json(options_);
    json["kinds"] = Json::array();
    for (const ChainKind kind : options_.kinds)
      json["kinds"].push_back(std::string(enum_name(kind)));
    json["protocol"] = protocol_.name;
    return json;
  }
  /// By kind, then trial.
  std::size_t n_cases() const override { return options_.kinds.size() * n_trials(); }
  Index case_tokens(std::size_t) const override { return options_.prompt + options_.steps; }
  UnitShape unit_shape() const override {
    return {1 + kKeptValues, static_cast<std::size_t>(options_.steps), {1}};
  }

  OpenCase open_case(std::size_t index, ThreadPool& pool, std::stop_token stop) override {
    const Chain chain = chain_of(index);
    Prompt prompt;
    prompt.tokens = chain.prompt;
    prompt.n_context = static_cast<Index>(chain.prompt.size()) - 1;
    prompt.n_answer_tokens = options_.steps;
    prompt.answers = {"none"};  // the tokens are compared below
    DensePrefix prefix(setup_, std::span(prompt.tokens).first(prompt.tokens.size() - 1), pool,
                       stop);
    return [this, stop, expected = chain.expected, prompt, prefix = std::move(prefix)](
               std::size_t p, ThreadPool& own) {
      const AskedTurn turn = ask_prompt(setup_, setup_.pairs[p], PromptKind::local, prompt,
                                        {protocol_}, prefix, own, stop)
                                 .front();
      const auto wrong =
          std::mismatch(expected.begin(), expected.end(), turn.answer.begin(), turn.answer.end());
      UnitResult unit;
      unit.values = {static_cast<double>(wrong.first - expected.begin())};
      unit.values.insert(unit.values.end(), turn.kept.begin(), turn.kept.end());
      unit.series.assign(turn.answer.begin(), turn.answer.end());
      return unit;
    };
  }

  ColumnTable table(const SimulationUnits& units) const override {
    ColumnTable table;
    table.text_names = {"model", "task",         "selector", "budget_kind",
                        "kind",  "dense_solves", "protocol", "doubt"};
    table.number_names = {"budget",           "prompt_tokens", "steps",
                          "prompts",          "accuracy",      "accuracy_low",
                          "accuracy_high",    "steps_right",   "same_as_dense",
                          "first_difference", "kv_reduction",  "kv_union_reduction"};
    add_cost_columns(table, setup_);
    const auto rows = judged(units);
    const auto words = doubt_words(doubts(units), rows.size());
    for (std::size_t r = 0; r < rows.size(); ++r)
      table.rows.push_back(make_row(units, r, words[r]));
    return table;
  }

  std::vector<Doubt> doubts(const SimulationUnits& units) const override {
    return find_doubts(judged(units), [&](std::size_t a, std::size_t b) {
      return paired_test(shares(units, a), shares(units, b), {kChainStream});
    });
  }

  std::string show(const SimulationUnits& units, std::size_t n) const override {
    const Tokenizer& tokenizer = *setup_.models.tokenizer;
    constexpr std::size_t kShown = 60;  // tokens of each end
    const auto piece = [&](std::span<const TokenId> ids) {
      return ids.size() <= 2 * kShown
                 ? shown_text(tokenizer.decode(ids))
                 : fmt::format(
                       "{} [... {} tokens ...] {}", shown_text(tokenizer.decode(ids.first(kShown))),
                       ids.size() - 2 * kShown, shown_text(tokenizer.decode(ids.last(kShown))));
    };
    std::string text;
    for (std::size_t c = 0; c < std::min(n, units.size()); ++c) {
      const Chain chain = chain_of(c);
      text += fmt::format("--- {}, trial {}\n{}\nexpected: {}\n",
                          enum_name(options_.kinds[c / n_trials()]), c % n_trials() + 1,
                          piece(chain.prompt), piece(chain.expected));
      for (std::size_t p = 0; p < units[c].size(); ++p) {
        const auto& series = units[c][p].series;
        const std::vector<TokenId> ids(series.begin(), series.end());
        text += fmt::format("{:g} steps  {}: {}\n", units[c][p].values[0], setup_.pairs[p].label(),
                            piece(ids));
      }
    }
    return text;
  }

 private:
  std::size_t n_trials() const { return static_cast<std::size_t>(options_.trials); }

  Chain chain_of(std::size_t index) const {
    return make_chain(options_.kinds[index / n_trials()], options_, setup_.options.seed,
                      static_cast<Index>(index % n_trials()), setup_.models);
  }

  /// Rows are by kind, then pair.
  std::vector<const UnitResult*> units_of(const SimulationUnits& units, std::size_t row) const {
    std::vector<const UnitResult*> mine;
    for (std::size_t t = 0; t < n_trials(); ++t)
      mine.push_back(&units[row / setup_.pairs.size() * n_trials() + t][row % setup_.pairs.size()]);
    return mine;
  }

  std::vector<double> shares(const SimulationUnits& units, std::size_t row) const {
    std::vector<double> list;
    for (const UnitResult* unit : units_of(units, row))
      list.push_back(unit->values[0] / static_cast<double>(options_.steps));
    return list;
  }

  std::vector<JudgedRow> judged(const SimulationUnits& units) const {
    std::vector<JudgedRow> rows;
    for (std::size_t r = 0; r < options_.kinds.size() * setup_.pairs.size(); ++r) {
      const std::size_t pair = r % setup_.pairs.size();
      const JudgedBudget budget = judged_budget(setup_, pair);
      rows.push_back({fmt::format("{}, {} steps, protocol {}",
                                  enum_name(options_.kinds[r / setup_.pairs.size()]),
                                  options_.steps, protocol_.name),
                      setup_.pairs[pair].asked.selector.text(), budget.kind, budget.value,
                      mean(shares(units, r)),
                      /*is_share=*/true,
                      /*shown=*/"", reductions_of(units_of(units, r), 1).per_head});
    }
    return rows;
  }

  ColumnTable::Row make_row(const SimulationUnits& units, std::size_t r,
                            const std::string& doubt) const {
    const std::size_t pair = r % setup_.pairs.size();
    const auto mine = units_of(units, r);
    const std::vector<double> own = shares(units, r);
    const Interval interval = score_interval(own, {kChainStream});
    double dense = kNan;
    double same = kNan;
    double first = std::numeric_limits<double>::infinity();
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      if (setup_.pairs[p].asked.selector != "full") continue;
      const std::size_t dense_row = r - pair + p;
      dense = mean(shares(units, dense_row));
      const auto of_dense = units_of(units, dense_row);
      double n_same = 0.0;
      for (std::size_t t = 0; t < mine.size(); ++t) {
        const auto& a = mine[t]->series;
        const auto& b = of_dense[t]->series;
        const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
        n_same += at == static_cast<Index>(a.size()) ? 1.0 : 0.0;
        if (at < static_cast<Index>(a.size())) first = std::min(first, static_cast<double>(at));
      }
      same = n_same / static_cast<double>(mine.size());
    }
    const Reductions kept = reductions_of(mine, 1);
    ColumnTable::Row row;
    row.texts = pair_texts(setup_, name(), pair);
    row.texts.emplace_back(enum_name(options_.kinds[r / setup_.pairs.size()]));
    row.texts.emplace_back(dense != dense ? "" : dense >= kDenseSolves ? "yes" : "no");
    row.texts.push_back(protocol_.name);
    row.texts.push_back(doubt);
    row.numbers = {budget_value(setup_.pairs[pair]),
                   static_cast<double>(options_.prompt),
                   static_cast<double>(options_.steps),
                   static_cast<double>(own.size()),
                   mean(own),
                   interval.low,
                   interval.high,
                   mean(own) * static_cast<double>(options_.steps),
                   same,
                   std::isinf(first) ? kNan : first,
                   kept.per_head,
                   kept.per_union};
    add_cost_cells(row, setup_, pair, mine, 1);
    return row;
  }

  const SimulationSetup& setup_;
  ChainOptions options_;
  Protocol protocol_ = parse_protocol("answer");
};

}  // namespace

Chain make_chain(ChainKind kind, const ChainOptions& options, Index seed, Index trial,
                 const SimulationModels& models) {
  PromptSpec spec;
  spec.seed = seed;
  spec.trial = trial;
  spec.length = options.prompt;
  spec.depth = static_cast<double>(kind);  // names the stream; chains have no depth
  PromptDraws draws(spec);
  const auto n_own = static_cast<std::size_t>(options.prompt) - models.leading.size();
  const auto n = n_own + static_cast<std::size_t>(options.steps);
  const Tokenizer& tokenizer = *models.tokenizer;
  const std::vector<TokenId> tokens =
      kind == ChainKind::copy          ? copies(draws, n, static_cast<Index>(n_own), models.text)
      : kind == ChainKind::running_sum ? running_sum(draws, n, tokenizer)
                                       : rewriting(draws, n, tokenizer);
  Chain chain;
  chain.prompt = models.leading;
  chain.prompt.insert(chain.prompt.end(), tokens.begin(),
                      tokens.begin() + static_cast<Index>(n_own));
  chain.expected.assign(tokens.begin() + static_cast<Index>(n_own), tokens.end());
  return chain;
}

std::unique_ptr<SimulationTask> make_chain_task(const SimulationSetup& setup,
                                                const ChainOptions& options) {
  return std::make_unique<Chains>(setup, options);
}

}  // namespace kvscope
