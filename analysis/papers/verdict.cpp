#include "analysis/papers/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "analysis/base/measure_layers.hpp"
#include "analysis/base/paired_numbers.hpp"
#include "analysis/base/statistics.hpp"
#include "core/base/error.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::papers {

namespace {

/// From this share on a difference of cost is said.
constexpr double kUnequal = 0.02;

/// One side of a check.
struct Side {
  const Value* value = nullptr;  // null: a plain number
  Measured measured;
};

Side side_of(const Item& item, const std::vector<Measured>& measured, const std::string& word) {
  if (const Value* const value = item.find(word))
    return {value, measured.empty()
                       ? Measured{}
                       : measured[static_cast<std::size_t>(value - item.values.data())]};
  const auto number = number_from<double>(word);
  if (!number) throw ConfigError("{}: a check names {}, which is no value", item.id, word);
  Side side;
  side.measured.value = side.measured.low = side.measured.high = *number;
  return side;
}

/// Needs are no claim: the value alone is compared. A range is met by every row, or by none.
Measured comparable(Measured measured, Role role) {
  if (role == Role::needs) measured.low = measured.high = measured.value;
  return measured;
}

/// Of a value of a recording that was made to contradict the claim.
bool is_constructed(const Side& side) {
  const Run* const run = side.value == nullptr ? nullptr : run_named(side.value->run);
  return run != nullptr && run->is_constructed;
}

bool is_upward(Op op) {
  return op == Op::above || op == Op::at_least;
}

bool is_strict(Op op) {
  return op == Op::above || op == Op::below;
}

Answer answer_of(const Check& check, Measured larger, Measured smaller) {
  const double slack = is_upward(check.op) ? -check.slack : check.slack;
  if (!is_strict(check.op)) smaller.low = smaller.high = smaller.value + slack;
  if (!is_upward(check.op)) std::swap(larger, smaller);
  const bool yes = is_strict(check.op) ? larger.low > smaller.high : larger.low >= smaller.high;
  const bool no = is_strict(check.op) ? larger.high <= smaller.low : larger.high < smaller.low;
  return yes ? Answer::yes : no ? Answer::no : Answer::open;
}

/// A bare timing decides nothing: the next one differs.
bool is_single_timing(const Side& side) {
  if (side.value == nullptr) return false;
  const std::string& column = side.value->column;
  const bool is_time = column.ends_with("seconds") || column == "tokens_per_second" ||
                       column == "speedup" || column.ends_with("_ratio");
  return is_time && side.measured.interval.empty();
}

/// The answer of a paired difference, and its numbers.
void decide_paired(const Differences& differences, double threshold, std::size_t n_refuting,
                   CheckOutcome& outcome) {
  const Check& check = *outcome.check;
  const double sign = is_upward(check.op) ? 1.0 : -1.0;
  const double size = check.counts > 0.0 ? check.counts : usual_size(differences.pairing);
  const double spread = paired_spread(differences.of);
  const Interval shown = interval_of(differences, 0.95);
  const Interval wide = interval_of(
      differences, 1.0 - 0.05 / static_cast<double>(std::max<std::size_t>(1, n_refuting)));
  outcome.pairing = differences.pairing;
  outcome.units = static_cast<Index>(differences.of.size());
  outcome.difference = mean(differences.of);
  outcome.low = shown.low;
  outcome.high = shown.high;
  outcome.counts = size;
  outcome.p = p_of(differences);
  outcome.power = power(size, spread, static_cast<double>(outcome.units));
  const double worse = sign * ((sign > 0.0 ? shown.low : shown.high) - threshold);
  const double better = sign * ((sign > 0.0 ? wide.high : wide.low) - threshold);
  const bool is_shown = worse > 0.0 || (worse == 0.0 && !is_strict(check.op));
  const bool is_refuted = better < (is_strict(check.op) ? size : 0.0);
  outcome.answer = is_shown ? Answer::yes : is_refuted ? Answer::no : Answer::open;
  outcome.is_too_small = outcome.answer == Answer::no && better > 0.0;
  outcome.kept_left = differences.kept_left;
  outcome.kept_right = differences.kept_right;
  for (std::size_t i = 0; differences.pairing == Pairing::layer && i < differences.of.size(); ++i) {
    const double above = sign * (differences.of[i] - threshold);
    if (above < 0.0 || (above == 0.0 && is_strict(check.op)))
      outcome.against.push_back(differences.units[i]);
  }
  if (check.in_every_layer) outcome.answer = outcome.against.empty() ? Answer::yes : Answer::no;
  const bool is_sample =
      differences.pairing == Pairing::prompt || differences.pairing == Pairing::block;
  if (outcome.answer != Answer::open || !is_sample) return;
  const double from_threshold = std::abs(outcome.difference - threshold);
  outcome.more = from_threshold == 0.0 ? INFINITY
                                       : std::max(1.0, units_needed(from_threshold, spread) -
                                                           static_cast<double>(outcome.units));
}

std::string words_of(const Side& side, Unit unit) {
  if (side.value == nullptr) return plain_number(side.measured.value, unit);
  return fmt::format("{} ({})", side.value->label, number_of(side.measured, unit));
}

/// "reaches", "is not shown to reach", "does not reach", for the answers yes, open, no.
std::string relation(Op op, Answer answer) {
  static constexpr const char* kWords[4][3] = {
      {"is above", "cannot be told apart from", "is not above"},
      {"is below", "cannot be told apart from", "is not below"},
      {"reaches", "is not shown to reach", "does not reach"},
      {"stays within", "is not shown to stay within", "exceeds"}};
  const std::size_t word = answer == Answer::yes ? 0 : answer == Answer::open ? 1 : 2;
  return kWords[static_cast<std::size_t>(op)][word];
}

/// What the left side is compared with: a value, or a number with its slack.
std::string bar_words(const Check& check, const Side& right, Unit unit, std::string words) {
  if (right.value != nullptr)
    return check.slack == 0.0
               ? words
               : fmt::format("{} to within {}", words, plain_number(check.slack, unit));
  const double sign = check.op == Op::at_least ? -1.0 : check.op == Op::at_most ? 1.0 : 0.0;
  return plain_number(right.measured.value + sign * check.slack, unit);
}

std::string upper_first(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

/// "10 points", "1 %" of perplexity.
std::string size_words(Pairing pairing, double size) {
  return fmt::format("{:.2g} {}", 100.0 * size, pairing == Pairing::block ? "%" : "points");
}

std::string sentence(const CheckOutcome& outcome, const Side& left, const Side& right) {
  const Check& check = *outcome.check;
  const Unit unit = left.value != nullptr ? left.value->unit : Unit::number;
  std::string text =
      fmt::format("{} {} {}", words_of(left, unit), relation(check.op, outcome.answer),
                  bar_words(check, right, unit, words_of(right, unit)));
  const bool is_mean = outcome.pairing == Pairing::layer && right.value == nullptr;
  if (outcome.pairing != Pairing::none)
    text += (is_mean ? ", mean " : ", paired ") + difference_words(outcome);
  if (!outcome.against.empty())
    text += fmt::format("; the claim fails in layer{} {}", outcome.against.size() == 1 ? "" : "s",
                        fmt::join(outcome.against, ", "));
  const double kept = outcome.kept_left / outcome.kept_right;
  if (std::abs(kept - 1.0) > kUnequal)
    text += fmt::format(", with {} keys a query against {}", number_text(outcome.kept_left, 4),
                        number_text(outcome.kept_right, 4));
  if (outcome.is_too_small)
    text += ", which leaves no " + size_words(outcome.pairing, outcome.counts);
  if (outcome.answer == Answer::open && (is_single_timing(left) || is_single_timing(right)))
    text += ", since one timing without repeats decides nothing";
  if (outcome.answer == Answer::open && is_constructed(left))
    text += ", since a constructed recording can refute it and not confirm it";
  if (outcome.answer == Answer::open && std::isfinite(outcome.more))
    text += fmt::format("; about {:.0f} {} more would tell", outcome.more,
                        pairing_word(outcome.pairing));
  const bool is_missed =
      check.role == Role::needs ? outcome.answer != Answer::yes : outcome.answer == Answer::no;
  if (is_missed && !check.says.empty()) text += ": " + check.says;
  return upper_first(text + ".");
}

CheckOutcome looked_at(const Item& item, const Check& check, const std::vector<Measured>& measured,
                       const FindRun& find_run, std::size_t n_refuting) {
  const Side left = side_of(item, measured, check.left);
  const Side right = side_of(item, measured, check.right);
  CheckOutcome outcome{.check = &check};
  outcome.difference = outcome.low = outcome.high = outcome.p = outcome.power = outcome.more = kNan;
  outcome.kept_left = outcome.kept_right = kNan;
  for (const Side* side : {&left, &right}) {
    if (side->measured.missing.empty() || !outcome.missing.empty()) continue;
    outcome.missing =
        fmt::format("{} was not measured: {}.", side->value->label, side->measured.missing);
  }
  if (outcome.missing.empty()) {
    if (const auto differences = differences_of(item, check, find_run)) {
      decide_paired(*differences, threshold_of(item, check), n_refuting, outcome);
    } else if (check.role != Role::needs && (is_single_timing(left) || is_single_timing(right))) {
      outcome.answer = Answer::open;
    } else {
      outcome.answer = answer_of(check, comparable(left.measured, check.role),
                                 comparable(right.measured, check.role));
      if (check.in_every_layer && outcome.answer == Answer::open) outcome.answer = Answer::no;
    }
  }
  // an example refutes what is said of all, and does not confirm it
  if (outcome.answer == Answer::yes && check.role == Role::form && is_constructed(left))
    outcome.answer = Answer::open;
  outcome.sentence = sentence(outcome, left, right);
  return outcome;
}

/// The sentences of the checks of a role with that answer, one after another.
std::string sentences(const std::vector<CheckOutcome>& checks, Role role, Answer answer) {
  std::string text;
  for (const CheckOutcome& one : checks) {
    if (one.check->role == role && one.answer == answer)
      text += (text.empty() ? "" : " ") + one.sentence;
  }
  return text;
}

std::string first_good(const std::vector<CheckOutcome>& checks, Role role) {
  const auto good = std::ranges::find_if(checks, [&](const CheckOutcome& one) {
    return one.check->role == role && one.answer == Answer::yes;
  });
  return good == checks.end() ? "" : good->sentence;
}

Judgement judgement_of(const Item& item, std::vector<CheckOutcome> checks) {
  const auto text = [&](Role role, Answer answer) { return sentences(checks, role, answer); };
  const auto give = [&](Verdict verdict, std::string reason) {
    return Judgement{verdict, std::move(reason), std::move(checks)};
  };
  for (const CheckOutcome& one : checks) {
    if (!one.missing.empty() && one.check->role != Role::size)
      return give(Verdict::cannot_test, one.missing);
  }
  for (const Answer answer : {Answer::no, Answer::open}) {
    if (const std::string why = text(Role::needs, answer); !why.empty())
      return give(Verdict::cannot_test, why);
  }
  if (const std::string why = text(Role::form, Answer::no); !why.empty()) {
    const bool is_small = std::ranges::none_of(checks, [](const CheckOutcome& one) {
      return one.check->role == Role::form && one.answer == Answer::no && !one.is_too_small;
    });
    return give(is_small ? Verdict::too_small : Verdict::does_not_hold, why);
  }
  if (const std::string why = text(Role::form, Answer::open); !why.empty())
    return give(Verdict::not_decided, why);
  std::string why = first_good(checks, Role::form);
  for (const std::string& small :
       {text(Role::size, Answer::no), text(Role::size, Answer::open), item.only_form})
    why += (why.empty() || small.empty() ? "" : " ") + small;
  const bool is_whole = text(Role::size, Answer::no).empty() &&
                        text(Role::size, Answer::open).empty() && item.only_form.empty();
  if (!is_whole) return give(Verdict::in_form, why);
  return give(Verdict::holds, why.empty() ? first_good(checks, Role::size) : why);
}

/// The verdict under each reading, in their order, as one.
Judgement joined(const Item& item, std::vector<CheckOutcome> checks) {
  std::vector<std::string> readings;
  for (const CheckOutcome& one : checks) {
    const std::string& reading = one.check->reading;
    if (!reading.empty() && std::ranges::find(readings, reading) == readings.end())
      readings.push_back(reading);
  }
  if (readings.size() < 2) return judgement_of(item, std::move(checks));
  std::optional<Verdict> decided, open;
  bool do_differ = false;
  std::string reason;
  for (const std::string& reading : readings) {
    std::vector<CheckOutcome> own;
    std::ranges::copy_if(checks, std::back_inserter(own), [&](const CheckOutcome& one) {
      return one.check->reading.empty() || one.check->reading == reading;
    });
    const Judgement judged = judgement_of(item, std::move(own));
    const bool is_open =
        judged.verdict == Verdict::not_decided || judged.verdict == Verdict::cannot_test;
    if (is_open) open = judged.verdict;
    if (!is_open && !decided) decided = judged.verdict;
    do_differ |= !is_open && decided != judged.verdict;
    reason += fmt::format("{}{}, {}: {}", reason.empty() ? "" : " ", upper_first(reading),
                          word_of(judged), judged.reason);
  }
  const Verdict verdict = do_differ ? Verdict::depends : open ? *open : *decided;
  return {verdict, std::move(reason), std::move(checks)};
}

}  // namespace

std::string word_of(const Judgement& judgement) {
  const auto small = std::ranges::find_if(judgement.checks, &CheckOutcome::is_too_small);
  if (judgement.verdict != Verdict::too_small || small == judgement.checks.end())
    return verdict_word(judgement.verdict);
  return "smaller than " + size_words(small->pairing, small->counts);
}

std::string difference_words(const CheckOutcome& outcome) {
  const bool is_log = outcome.pairing == Pairing::block;
  const bool is_number = outcome.pairing == Pairing::layer;  // in the column's own unit
  const auto of = [&](double x) {
    return is_log      ? fmt::format("{:.3f}", std::exp(x))
           : is_number ? fmt::format("{:+.3g}", x)
                       : fmt::format("{:+.1f}", 100.0 * x);
  };
  return fmt::format("{}{}{} [{}, {}] over {} {}", is_log ? "a ratio of " : "",
                     of(outcome.difference), is_log || is_number ? "" : " points", of(outcome.low),
                     of(outcome.high), outcome.units, pairing_word(outcome.pairing));
}

std::string hypothesis_of(const Item& item, const Check& check) {
  const Side left = side_of(item, {}, check.left);
  const Side right = side_of(item, {}, check.right);
  const Unit unit = left.value != nullptr ? left.value->unit : Unit::number;
  return upper_first(fmt::format(
      "{} {} {}", left.value != nullptr ? left.value->label : check.left,
      relation(check.op, Answer::yes),
      bar_words(check, right, unit, right.value != nullptr ? right.value->label : check.right)));
}

Judgement judge(const Item& item, const std::vector<Measured>& measured, const FindRun& find_run) {
  if (!item.never.empty()) return {Verdict::cannot_test, item.never, {}};
  for (const Check& check : item.checks) {
    for (const std::string& word : {check.left, check.right}) {
      const Side side = side_of(item, measured, word);
      if (side.measured.not_run)
        return {Verdict::not_run,
                fmt::format("{} was not run: {}.", side.value->label, side.measured.missing),
                {}};
    }
  }
  std::vector<CheckOutcome> checks;
  for (const Check& check : item.checks) {
    const auto n_refuting =
        static_cast<std::size_t>(std::ranges::count_if(item.checks, [&](const Check& other) {
          return other.role == Role::form &&
                 (other.reading.empty() || other.reading == check.reading);
        }));
    checks.push_back(looked_at(item, check, measured, find_run, n_refuting));
  }
  return joined(item, std::move(checks));
}

}  // namespace kvscope::papers
