// What a claim of a paper is as data: which commands make the numbers that speak about it, how they
// are read from the results, and which comparisons decide. Nothing here computes: runs are command
// lines of the program.
//
// A RUN is one command whose result several items read. An ITEM is one table, figure or error of a
// paper: its claim, VALUES read from runs, CHECKS between values, and pictures to draw. The whole
// list is analysis/papers/items.toml.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvscope::papers {

enum class Paper { quoka, quest, specattn };
std::string paper_name(Paper paper);

/// Its words in this order: holds, holds in form, depends on the reading, too small to count, does
/// not hold, not decided, cannot be tested; and not run, which is none: the system failed (a write,
/// memory), and another start may go well.
enum class Verdict {
  holds,
  in_form,
  depends,
  too_small,
  does_not_hold,
  not_decided,
  cannot_test,
  not_run
};
inline constexpr std::size_t kVerdicts = 8;
std::string verdict_word(Verdict verdict);

/// A command whose result lies below runs/. Words in braces are put in by expand().
struct Run {
  std::string name;    // "needle": the result is runs/needle + ending
  std::string ending;  // ".h5", ".csv" or ".json"; of the last the program's printed JSON is kept
  std::string full;    // the command line without "kvscope"
  std::string quick;   // the same for --quick; empty: as full
  bool is_constructed = false;  // of a recording that was made to contradict a paper
};

/// The run that makes a draft where none is given: the model's own first layers.
inline constexpr const char* kOwnDraft = "early-exit";

/// How rows become one number.
enum class Reduce { mean, min, max };
/// What low and high of a value are: columns of the result (NAME_low and NAME_high), Wilson's 95 %
/// interval of a share of prompts (recorded, or from the column "prompts"), the smallest and the
/// largest row (of totals: layer), which is no interval and is compared row by row, or nothing.
enum class Spread { none, recorded, wilson, rows };
enum class Unit { number, percent, factor, tokens };
/// per_lost: value / (1 - other), an error in units of the attention that was lost.
enum class Derive { none, ratio, per_lost };

/// A number that is read from a run.
struct Value {
  std::string key;    // what checks call it
  std::string label;  // what people call it
  std::string run;
  std::string column;  // of the rows, or "totals.NAME" of an analysis
  /// "selector=quoka;budget>=256;q_head=": rows that count ("q_head=": an empty cell).
  std::string where = "";
  Unit unit = Unit::number;
  Spread spread = Spread::none;
  Derive derive = Derive::none;
  std::string than = "";  // derive: the key of the value it is compared with
  Reduce reduce = Reduce::mean;
  double factor = 1.0;  // of what was read, as the label says
};

enum class Op { above, below, at_least, at_most };
/// needs: else the item cannot be tested. form: else the claim does not hold. size: else it holds
/// in form only.
enum class Role { needs, form, size };

/// left op right (needs: by the values alone, they are no claim), where right is the key of a value
/// or a number; at_least and at_most compare with right minus or plus the slack. It holds if the
/// whole interval says so, does not if the whole interval says the opposite, and is open else. Two
/// values over the same prompts, blocks, heads or layers are compared by the interval of their
/// paired difference (paired.hpp), others by their own intervals.
struct Check {
  Role role = Role::form;
  std::string left;
  Op op = Op::above;
  std::string right;
  double slack = 0.0;
  std::string says;  // why this check matters, if it fails; may be empty
  /// The smallest paired difference that counts: above and below do not hold where even the better
  /// end of the interval is nearer to 0. 0: the usual one of the pairing.
  double counts = 0.0;
  /// Said of every layer, not of their mean: one that contradicts refutes it, and is named.
  bool in_every_layer = false;
  std::string reading = "";  // under which alone it is asked; empty: under all
};

/// One way to read a paper, or a rule of one of its programs, which stands for {method} and {at} in
/// an item's values: their runs, columns and rows.
struct Reading {
  std::string label;   // "the kernels' page rule"
  std::string method;  // "quest"
  std::string at = "";
};

/// What a paper says is so; what is printed and is not so; what can be read in two ways.
enum class Kind { claim, error, ambiguity };

struct Item {
  std::string id;              // "quoka-fig-4"
  Paper paper = Paper::quoka;  // its list's
  std::string place;           // "Figures 4 and 7"
  std::string title;
  std::string claim;          // what the paper says, in a sentence
  std::string words;          // its own words for it, " ... " where some are left out; a test looks
                              // them up in the source (tests/golden/papers). Empty: of a figure or
                              // the printed paper, whose text is not at hand
  std::string published;      // its numbers and their setting
  std::vector<Value> values;  // the first one is "ours"
  std::vector<Check> checks;
  /// Commands of figures and tables in the paper's form: "figure needle {needle}", "table
  /// quest-passkey {passkey}".
  std::vector<std::string> pictures;
  /// The verdict is taken under each, and is "depends on the reading" where they disagree.
  std::vector<Reading> readings;
  /// What behind a method's name makes a random choice of the one that is claimed to matter
  /// (":queries=random"), and its words. Values of {method} that can be paired have to be better
  /// than under it: a claim that holds of any choice does not hold of this one.
  std::string control;
  std::string control_label;
  std::string note;   // what a reader should know about ours
  std::string never;  // not empty: why this program cannot test it
  Kind kind = Kind::claim;
  /// Not empty: why no result of this program could show the claim's size.
  std::string only_form;

  /// Null for a key that no value has.
  const Value* find(std::string_view key) const;
};

/// Everything, in the order of the report. Valid for the life of the program.
std::span<const Run> runs();
std::span<const Item> items();
/// The item with a value and a check for each of its readings, and those of its controls. Keys of
/// the first reading's values stay; others get "@METHOD", those of controls "@random".
Item with_readings(Item item);
/// Null for a name that no run has.
const Run* run_named(std::string_view name);

// Command lines of items as words: names in braces become files of the report's folder, models and
// chosen heads.

/// Gives the text that stands for "{name}"; a line feed separates words, no text at all is no word.
/// Throws ConfigError for a name it does not know.
using Substitute = std::function<std::string(std::string_view name)>;

/// Splits at blanks ('...' keeps them) and replaces every {name}. A word that is one {name} becomes
/// as many words as its text has lines.
std::vector<std::string> expand(std::string_view command, const Substitute& substitute);

/// True of names that choose from another run's table: "pick:..." and "--chat:...".
inline bool is_choice(std::string_view name) {
  return name.starts_with("pick:") || name.starts_with("--chat:");
}

/// The names in braces, in their order, each once.
std::vector<std::string> names_in(std::string_view command);

}  // namespace kvscope::papers
