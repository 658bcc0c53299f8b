#include "analysis/simulate/retrieval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/base/analysis.hpp"
#include "analysis/base/checked_lines.hpp"
#include "analysis/simulate/ask_prompt.hpp"
#include "analysis/simulate/chains.hpp"
#include "analysis/simulate/prompt_kit.hpp"
#include "analysis/simulate/retrieval_cells.hpp"
#include "analysis/simulate/row_units.hpp"
#include "core/base/error.hpp"
#include "core/base/evenly_spaced.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

/// Counts that are refused before anything of their size is made: a grid of more prompts than these
/// runs for years.
constexpr Index kMostDepths = 1000;
constexpr Index kMostTrials = 100'000;
constexpr Index kMostTurns = 64;
constexpr double kMostPrompts = 1e6;

/// Trials that a cell may have in all.
Index most_trials(const RetrievalOptions& options) {
  return options.until_interval > 0.0 ? std::max(options.trials, options.max_trials)
                                      : options.trials;
}

/// A grid for the examples of a file: every example once, at no depth of its own.
RetrievalOptions grid_of_examples(RetrievalOptions options) {
  if (options.examples.empty()) return options;
  options.kinds = {PromptKind::local};
  options.n_depths = 1;
  const auto n = static_cast<Index>(options.examples.size());
  options.max_trials = n;
  options.trials = options.until_interval > 0.0 ? std::min(options.trials, n) : n;
  return options;
}

RetrievalOptions checked(RetrievalOptions options) {
  options = grid_of_examples(std::move(options));
  if (options.kinds.empty() || options.lengths.empty() || options.protocols.empty() ||
      options.n_depths < 1 || options.trials < 1 || options.n_fed < 1 || options.turns < 1) {
    throw ConfigError(
        "retrieval: expected at least one kind, length, protocol, depth, trial, fed token and "
        "turn, found {}, {}, {}, {}, {}, {} and {}",
        options.kinds.size(), options.lengths.size(), options.protocols.size(), options.n_depths,
        options.trials, options.n_fed, options.turns);
  }
  const double n_prompts = static_cast<double>(options.kinds.size() * options.lengths.size() *
                                               options.protocols.size()) *
                           static_cast<double>(options.n_depths) *
                           static_cast<double>(most_trials(options));
  if (options.n_depths > kMostDepths || most_trials(options) > kMostTrials ||
      options.turns > kMostTurns || n_prompts > kMostPrompts) {
    throw ConfigError(
        "retrieval: expected at most {} depths, {} trials, {} turns and {} prompts in all, found "
        "{}, {}, {} and {:.0f}",
        kMostDepths, kMostTrials, kMostTurns, kMostPrompts, options.n_depths, most_trials(options),
        options.turns, n_prompts);
  }
  if (!(options.until_interval >= 0.0 && options.until_interval < 0.5)) {
    throw ConfigError("retrieval: expected a wanted interval in (0, 0.5) to either side, found {}",
                      options.until_interval);
  }
  for (const Protocol& protocol : options.protocols) {
    if (protocol.inside && options.turns > 1 && !options.shared_prefix) {
      throw ConfigError(
          "retrieval: under protocol {} an answer ends the sequence; expected one turn, or turns "
          "with a shared prefix",
          protocol.name);
    }
    if (protocol.inside && std::ranges::any_of(options.kinds, is_chain)) {
      throw ConfigError(
          "retrieval: a chain is decoded; expected another protocol than {}, which reads an answer "
          "off the prompt's last chunk",
          protocol.name);
    }
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

/// The text on one line, with its middle left out if it is long, safe to print.
std::string shortened(const std::string& text, std::size_t head, std::size_t tail) {
  if (text.size() <= head + tail) return shown_text(text);
  return fmt::format("{} [... {} characters ...] {}", shown_text(text.substr(0, head)),
                     text.size() - head - tail, shown_text(text.substr(text.size() - tail)));
}

class Retrieval final : public SimulationTask {
 public:
  Retrieval(const SimulationSetup& setup, const RetrievalOptions& options)
      : setup_(setup), options_(checked(options)) {
    grid_ = {options_.kinds.size(), options_.lengths.size(),
             static_cast<std::size_t>(most_trials(options_)), depths_of(options_.n_depths)};
    texts_ = setup.models.texts();
    if (options_.examples.empty()) grid_.n_texts = texts_.size();
    if (options_.trials < static_cast<Index>(grid_.n_texts)) {
      throw ConfigError(
          "retrieval: trials take the texts in turn; expected at least {} trials, one per text, "
          "found {}",
          grid_.n_texts, options_.trials);
    }
    const Index positions = setup.models.verifier->config().max_positions;
    const Tokenizer& tokenizer = *setup.models.tokenizer;
    if (options_.chat)
      leading_in_chat_ = leading_in_chat(*options_.chat, setup.models.leading, tokenizer);
    for (std::size_t kind = 0; kind < options_.kinds.size(); ++kind) {
      for (std::size_t length = 0; length < options_.lengths.size(); ++length) {
        const std::size_t n_seen =
            options_.kinds[kind] == PromptKind::local ? options_.examples.size() : grid_.n_texts;
        for (std::size_t trial = 0; trial < n_seen; ++trial) {
          const Prompt prompt = prompt_of({0, kind, length, 0, trial});
          const Index n = positions_of(prompt, tokenizer);
          if (n > positions) {
            throw ConfigError(
                "retrieval: a prompt of {} tokens, its answers and further turns take {} "
                "positions, which exceeds the model's {} positions",
                prompt.tokens.size(), n, positions);
          }
          std::vector<std::size_t> begins;
          n_kept_tokens_ = std::max<std::size_t>(
              {n_kept_tokens_, static_cast<std::size_t>(prompt.n_answer_tokens),
               answer_tokens(prompt.answers, tokenizer, begins).size()});
        }
      }
    }
  }

  std::string name() const override { return "retrieval"; }

  Json config() const override {
    Json kinds = Json::array();
    for (const PromptKind kind : options_.kinds) kinds.push_back(std::string(enum_name(kind)));
    Json protocols = Json::object();
    for (const Protocol& protocol : options_.protocols) protocols[protocol.name] = protocol.words();
    Json json = {{"protocol", options_.protocols.front().name},
                 {"protocols", protocols},
                 {"kinds", kinds},
                 {"lengths", options_.lengths},
                 {"depths", options_.n_depths},
                 {"trials", options_.trials},
                 {"fed", options_.n_fed},
                 {"facts", options_.n_facts}};
    if (has_chains()) json["steps"] = options_.n_steps;
    if (options_.turns > 1) {
      json["turns"] = options_.turns;
      json["shared_prefix"] = options_.shared_prefix;
    }
    if (options_.until_interval > 0.0) {
      json["until_interval"] = options_.until_interval;
      json["max_trials"] = options_.max_trials;
    }
    if (!options_.examples.empty()) json["examples"] = text_checksum(text_of(options_.examples));
    if (options_.chat) {
      json["chat"] = options_.chat_template;
      json["wordings"] = Json::object();
      for (std::size_t kind = 0; kind < options_.kinds.size(); ++kind)
        json["wordings"][std::string(enum_name(options_.kinds[kind]))] = wording_of(kind);
    }
    return json;
  }

  std::size_t n_cases() const override {
    return options_.protocols.size() * grid_.n_kinds * grid_.n_lengths * grid_.depths.size() *
           grid_.n_trials;
  }

  Index case_tokens(std::size_t index) const override {
    return options_.lengths[grid_.place_of(index).length];
  }

  UnitShape unit_shape() const override {
    UnitShape shape{n_turns() * kTurnValues, n_turns() * n_kept_tokens_};
    for (std::size_t turn = 0; turn < n_turns(); ++turn)
      shape.kept_at.push_back(turn * kTurnValues + 1);
    return shape;
  }

  /// One prompt of every protocol and length, of the first kind, in the middle: what a method costs
  /// hangs on them, hardly on the words.
  std::vector<std::size_t> match_cases() const override {
    std::vector<std::size_t> cases;
    for_each_place([&](RetrievalPlace place) {
      place.depth = grid_.depths.size() / 2;
      if (place.kind == 0) cases.push_back(grid_.index_of(place));
    });
    return cases;
  }

  bool takes(std::size_t index, std::size_t pair) const override {
    return runs_under(grid_.place_of(index).protocol, pair);
  }

  /// Without a wanted interval, everything at once. With one, each (protocol, kind, length) that
  /// has a row with a wider interval gets half as many prompts again.
  std::vector<std::size_t> cases_of_round(int round, const SimulationUnits& units) const override {
    std::vector<std::size_t> cases;
    for_each_place([&](RetrievalPlace place) {
      const auto [begin, end] = trials_of_round(round, units, place);
      for (place.depth = 0; place.depth < grid_.depths.size(); ++place.depth) {
        for (place.trial = begin; place.trial < end; ++place.trial)
          cases.push_back(grid_.index_of(place));
      }
    });
    return cases;
  }

  OpenCase open_case(std::size_t index, ThreadPool& pool, std::stop_token stop) override {
    const RetrievalPlace place = grid_.place_of(index);
    const AskOptions ask = {options_.protocols[place.protocol], options_.n_fed,
                            options_.shared_prefix};
    Prompt prompt = prompt_of(place);
    const auto n_dense = static_cast<std::size_t>(n_dense_tokens(prompt, ask));
    DensePrefix prefix(setup_, std::span(prompt.tokens).first(n_dense), pool, stop);
    return [this, stop, ask, kind = options_.kinds[place.kind], prompt = std::move(prompt),
            prefix = std::move(prefix)](std::size_t p, ThreadPool& own) {
      UnitResult unit;
      for (const AskedTurn& turn :
           ask_prompt(setup_, setup_.pairs[p], kind, prompt, ask, prefix, own, stop)) {
        unit.values.push_back(turn.score);
        unit.values.insert(unit.values.end(), turn.kept.begin(), turn.kept.end());
        for (std::size_t i = 0; i < n_kept_tokens_; ++i)
          unit.series.push_back(i < turn.answer.size() ? static_cast<double>(turn.answer[i])
                                                       : kNan);
      }
      return unit;
    };
  }

  Json rows(const SimulationUnits& units) const override {
    Json rows;
    const std::vector<RetrievalCell> cells = cells_of(units);
    const auto judged = judged_cells(cells, setup_, options_, grid_.depths);
    const auto words = doubt_words(doubts_of(cells, judged), cells.size());
    for (std::size_t r = 0; r < cells.size(); ++r)
      rows.push_back(row_of(units, cells, judged, r, words[r]));
    return rows;
  }

  std::vector<Doubt> doubts(const SimulationUnits& units) const override {
    const std::vector<RetrievalCell> cells = cells_of(units);
    return doubts_of(cells, judged_cells(cells, setup_, options_, grid_.depths));
  }

  /// The grid of the first protocol and turn: accuracy [kind, pair, length, depth], and the score
  /// of every prompt of a row. JSON has both by name, and the paired tests as well.
  void extras(const SimulationUnits& units, ResultWriter* output, Json& json) const override {
    Json grids = Json::array();
    std::vector<std::size_t> pairs;
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      if (runs_under(0, p)) pairs.push_back(p);
    }
    const std::vector<Index> pair_axis = all_in(0, static_cast<Index>(pairs.size()));
    const auto n_lengths = static_cast<Index>(options_.lengths.size());
    const auto n_depths = static_cast<Index>(grid_.depths.size());
    if (output != nullptr) {
      write_axis(*output, "grid/pair", pair_axis, "1", "pair, in the order of the table");
      write_axis(*output, "grid/length", options_.lengths, "token", "prompt length");
      output->put<double>("grid/depth", {n_depths}, {"depth"}, "1", "depth of the fact",
                          grid_.depths);
    }
    for (std::size_t kind = 0; kind < options_.kinds.size(); ++kind) {
      std::vector<double> grid;
      for (const std::size_t p : pairs) {
        for (std::size_t length = 0; length < options_.lengths.size(); ++length) {
          for (std::size_t depth = 0; depth < grid_.depths.size(); ++depth) {
            grid.push_back(
                make_cell(grid_, units, {0, kind, length}, depth, 0, p, grid_.n_trials).mean);
          }
        }
      }
      const std::string name(enum_name(options_.kinds[kind]));
      if (output == nullptr) {
        for (std::size_t i = 0; i < pairs.size(); ++i) {
          const auto first = grid.begin() + static_cast<Index>(i) * n_lengths * n_depths;
          grids.push_back({{"kind", name},
                           {"pair", setup_.pairs[pairs[i]].label()},
                           {"lengths", options_.lengths},
                           {"depths", grid_.depths},
                           {"accuracy", std::vector<double>(first, first + n_lengths * n_depths)}});
        }
        continue;
      }
      const std::string array = fmt::format("grid/{}", name);
      output->put<double>(array, {std::ssize(pairs), n_lengths, n_depths},
                          {"pair", "length", "depth"}, "1", "accuracy", grid);
      output->add_plot(
          {"accuracy_" + name, array, {"grid/pair", "grid/length", "grid/depth"}, name});
    }
    const std::vector<RetrievalCell> cells = cells_of(units);
    if (output != nullptr) {
      std::vector<std::vector<double>> scores;
      for (const RetrievalCell& cell : cells) scores.push_back(cell.scores);
      write_row_units(*output, scores,
                      "score of each prompt, the same prompts in every row of a cell");
      return;
    }
    json["grids"] = std::move(grids);
    json["comparisons"] =
        comparisons_json(cells, judged_cells(cells, setup_, options_, grid_.depths), setup_);
    json["outcomes"] = outcomes_json(units);
  }

  std::string show(const SimulationUnits& units, std::size_t n) const override {
    constexpr std::size_t kHeadShown = 300, kTailShown = 500;
    const Tokenizer& tokenizer = *setup_.models.tokenizer;
    std::string text;
    std::size_t n_shown = 0;
    for (std::size_t c = 0; c < units.size() && n_shown < n; ++c) {
      const auto& of_case = units[c];
      if (std::all_of(of_case.begin(), of_case.end(),
                      [](const UnitResult& unit) { return unit.values.empty(); })) {
        continue;
      }
      ++n_shown;
      const RetrievalPlace place = grid_.place_of(c);
      const Prompt prompt = prompt_of(place);
      text += fmt::format("--- {}, {} tokens, depth {:g}, trial {}, protocol {} ({})\n{}\n",
                          enum_name(options_.kinds[place.kind]), prompt.tokens.size(),
                          grid_.depths[place.depth], place.trial + 1,
                          options_.protocols[place.protocol].name,
                          options_.protocols[place.protocol].words(),
                          shortened(tokenizer.decode(prompt.tokens), kHeadShown, kTailShown));
      for (std::size_t t = 0; t < n_turns(); ++t) {
        if (t > 0) {
          text += fmt::format("turn {}:{}\n", t + 1,
                              shown_text(tokenizer.decode(prompt.more[t - 1].tokens)));
        }
        text += fmt::format(
            "expected: {}\n",
            shortened(prompt.continuation.empty()
                          ? fmt::format("{}", fmt::join(t == 0 ? prompt.answers
                                                               : prompt.more[t - 1].answers,
                                                        ", "))
                          : tokenizer.decode(prompt.continuation),
                      kHeadShown, kTailShown));
        for (std::size_t p = 0; p < of_case.size(); ++p) {
          const UnitResult& unit = of_case[p];
          if (unit.values.empty()) continue;
          std::vector<TokenId> ids;
          for (std::size_t i = 0; i < n_kept_tokens_; ++i) {
            const double id = unit.series[t * n_kept_tokens_ + i];
            if (!std::isnan(id)) ids.push_back(static_cast<TokenId>(id));
          }
          text +=
              fmt::format("{:g}  {}: {}\n", unit.values[t * kTurnValues], setup_.pairs[p].label(),
                          shortened(tokenizer.decode(ids), kHeadShown, kTailShown));
        }
      }
    }
    return text;
  }

 private:
  const char* wording_of(std::size_t kind) const {
    return options_.in_chat[kind] ? "chat" : "plain";
  }

  bool has_chains() const { return std::ranges::any_of(options_.kinds, is_chain); }

  std::size_t n_turns() const { return static_cast<std::size_t>(options_.turns); }

  bool runs_under(std::size_t protocol, std::size_t pair) const {
    return setup_.pairs[pair].is_defined(options_.protocols[protocol].phase());
  }

  /// Calls body(place) for every protocol, kind and length; depth and trial are 0.
  template <class Body>
  void for_each_place(const Body& body) const {
    RetrievalPlace place;
    for (place.protocol = 0; place.protocol < options_.protocols.size(); ++place.protocol) {
      for (place.kind = 0; place.kind < grid_.n_kinds; ++place.kind) {
        for (place.length = 0; place.length < grid_.n_lengths; ++place.length) body(place);
      }
    }
  }

  Prompt prompt_of(const RetrievalPlace& place) const {
    PromptSpec spec{options_.kinds[place.kind], options_.lengths[place.length],
                    grid_.depths[place.depth],  options_.n_facts,
                    setup_.options.seed,        static_cast<Index>(place.trial)};
    spec.n_turns = options_.turns;
    spec.n_steps = options_.n_steps;
    spec.leading = setup_.models.leading;
    if (options_.chat && options_.in_chat[place.kind]) {
      spec.chat = options_.chat.get();
      spec.leading = leading_in_chat_;
    }
    if (spec.kind == PromptKind::local) {
      if (options_.turns > 1) {
        throw ConfigError("retrieval: examples of a file have one question each, found {} turns",
                          options_.turns);
      }
      return make_local_prompt(options_.examples[place.trial], spec, *setup_.models.tokenizer);
    }
    return make_prompt(spec, texts_[grid_.text_of(place.trial)].tokens, *setup_.models.tokenizer);
  }

  /// Trials [first, last) that a round adds; none if the rounds before it were enough.
  std::pair<std::size_t, std::size_t> trials_of_round(int round, const SimulationUnits& units,
                                                      const RetrievalPlace& place) const {
    auto n = static_cast<std::size_t>(options_.trials);
    if (round == 0) return {0, n};
    if (!(options_.until_interval > 0.0)) return {n, n};
    for (int r = 1;; ++r) {
      if (n >= grid_.n_trials || !is_wide(units, place, n)) return {n, n};
      const std::size_t next = std::min(grid_.n_trials, n + (n + 1) / 2);
      if (r == round) return {n, next};
      n = next;
    }
  }

  /// True if a row's interval over the first n trials reaches further than wanted.
  bool is_wide(const SimulationUnits& units, const RetrievalPlace& place, std::size_t n) const {
    bool wide = false;
    for_each_cell(units, place, n, [&](const RetrievalCell& cell) {
      const double reach = std::max(cell.interval.high - cell.mean, cell.mean - cell.interval.low);
      wide = wide || reach > options_.until_interval;
    });
    return wide;
  }

  /// The rows of a place: by turn, pair and depth.
  template <class Body>
  void for_each_cell(const SimulationUnits& units, const RetrievalPlace& place,
                     std::size_t n_trials, const Body& body) const {
    for (std::size_t turn = 0; turn < n_turns(); ++turn) {
      for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
        if (!runs_under(place.protocol, p)) continue;
        if (!options_.by_depth) {
          body(make_cell(grid_, units, place, std::nullopt, turn, p, n_trials));
          continue;
        }
        for (std::size_t depth = 0; depth < grid_.depths.size(); ++depth)
          body(make_cell(grid_, units, place, depth, turn, p, n_trials));
      }
    }
  }

  std::vector<RetrievalCell> cells_of(const SimulationUnits& units) const {
    std::vector<RetrievalCell> cells;
    for_each_place([&](const RetrievalPlace& place) {
      for_each_cell(units, place, grid_.n_trials,
                    [&](RetrievalCell cell) { cells.push_back(std::move(cell)); });
    });
    return cells;
  }

  static std::vector<Doubt> doubts_of(const std::vector<RetrievalCell>& cells,
                                      const std::vector<JudgedRow>& judged) {
    return find_doubts(
        judged, [&](std::size_t a, std::size_t b) { return test_cells(cells[a], cells[b]); });
  }

  /// The same prompts under selector full, at the depth or over all; none if it was not asked for.
  std::optional<RetrievalCell> dense_cell(const SimulationUnits& units, const RetrievalCell& cell,
                                          std::optional<std::size_t> depth) const {
    for (std::size_t p = 0; p < setup_.pairs.size(); ++p) {
      if (setup_.pairs[p].asked.selector == "full")
        return make_cell(grid_, units, cell.place, depth, cell.turn, p, grid_.n_trials);
    }
    return std::nullopt;
  }

  Json row_of(const SimulationUnits& units, const std::vector<RetrievalCell>& cells,
              const std::vector<JudgedRow>& judged, std::size_t r, const std::string& doubt) const {
    const RetrievalCell& cell = cells[r];
    const auto all_dense = dense_cell(units, cell, std::nullopt);
    const double dense = all_dense ? all_dense->mean : kNan;
    double p_dense = kNan;
    for (std::size_t other = 0; other < cells.size(); ++other) {
      if (other != r && judged[other].cell == judged[r].cell && judged[other].selector == "full")
        p_dense = test_cells(cell, cells[other]).p;
    }
    Json row = begin_row(setup_, name(), cell.pair);
    row["kind"] = std::string(enum_name(options_.kinds[cell.place.kind]));
    row["dense_solves"] = dense != dense ? "" : dense >= kDenseSolves ? "yes" : "no";
    row["protocol"] = options_.protocols[cell.place.protocol].name;
    row["doubt"] = doubt;
    if (options_.chat) row["wording"] = wording_of(cell.place.kind);
    row["length"] = options_.lengths[cell.place.length];
    if (cell.depth) row["depth"] = grid_.depths[*cell.depth];
    if (options_.turns > 1) row["turn"] = cell.turn + 1;
    if (has_chains()) {
      const auto own = chain_numbers(cell, dense_cell(units, cell, cell.depth), options_);
      row["steps_right"] = own[0];
      row["same_as_dense"] = own[1];
      row["first_difference"] = own[2];
    }
    const Reductions kept = reductions_of(cell.units, cell.turn * kTurnValues + 1);
    row["texts"] = grid_.n_texts;
    row["prompts"] = cell.scores.size();
    row["accuracy"] = cell.mean;
    row["accuracy_low"] = cell.interval.low;
    row["accuracy_high"] = cell.interval.high;
    row["p_dense"] = p_dense;
    row["kv_reduction"] = kept.per_head;
    row["kv_union_reduction"] = kept.per_union;
    add_cost_cells(row, setup_, cell.pair, cell.units, cell.turn * kTurnValues + 1);
    return row;
  }

  /// [{protocol, kind, length, depth, trial, scores: {pair: [by turn]}}].
  Json outcomes_json(const SimulationUnits& units) const {
    Json list = Json::array();
    for (std::size_t c = 0; c < units.size(); ++c) {
      Json scores = Json::object();
      for (std::size_t p = 0; p < units[c].size(); ++p) {
        if (units[c][p].values.empty()) continue;
        Json by_turn = Json::array();
        for (std::size_t t = 0; t < n_turns(); ++t)
          by_turn.push_back(units[c][p].values[t * kTurnValues]);
        scores[setup_.pairs[p].label()] = std::move(by_turn);
      }
      if (scores.empty()) continue;
      const RetrievalPlace place = grid_.place_of(c);
      list.push_back({{"protocol", options_.protocols[place.protocol].name},
                      {"kind", std::string(enum_name(options_.kinds[place.kind]))},
                      {"length", options_.lengths[place.length]},
                      {"depth", grid_.depths[place.depth]},
                      {"trial", place.trial},
                      {"text", grid_.text_of(place.trial)},
                      {"scores", std::move(scores)}});
    }
    return list;
  }

  const SimulationSetup& setup_;
  RetrievalOptions options_;
  RetrievalGrid grid_;
  std::vector<FurtherText> texts_;
  std::vector<TokenId> leading_in_chat_;
  std::size_t n_kept_tokens_ = 0;  // of an answer, per turn
};

}  // namespace

std::unique_ptr<SimulationTask> make_retrieval_task(const SimulationSetup& setup,
                                                    const RetrievalOptions& options) {
  return std::make_unique<Retrieval>(setup, options);
}

std::vector<Phase> phases_of(const std::vector<Protocol>& protocols) {
  std::vector<Phase> phases;
  for (const Protocol& protocol : protocols) {
    if (std::find(phases.begin(), phases.end(), protocol.phase()) == phases.end())
      phases.push_back(protocol.phase());
  }
  return phases;
}

}  // namespace kvscope
