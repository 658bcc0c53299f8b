// Two values of one run compared unit by unit: on the same prompts, blocks of tokens, heads or
// layers. The difference of two means is far surer than the two means where units are hard for
// both. Prompts and blocks are a sample; heads and layers are all that the model has, so that their
// interval says how alike they are on this text, and nothing of other texts.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "analysis/papers/measure.hpp"
#include "analysis/sweep/sweep_rows.hpp"

namespace kvscope::papers {

/// What a difference is taken over.
enum class Pairing { none, prompt, block, head, layer };
/// "prompts", "blocks of 64 tokens", "heads of one text", "layers of one text"; empty for none.
std::string pairing_word(Pairing pairing);
/// The smallest difference that counts where a check names none: 10 points of accuracy, 1 % of
/// perplexity, two points of a head's share; none of layers, whose units differ.
double usual_size(Pairing pairing);

struct Differences {
  Pairing pairing = Pairing::none;
  std::vector<double> of;  // [unit] left - right: score, log perplexity, or the column's unit
  std::vector<std::size_t> units;  // [unit] the layer, of layers
  /// Keys kept per query by either side, mean of its rows; NaN where the run does not say.
  double kept_left = std::numeric_limits<double>::quiet_NaN();
  double kept_right = std::numeric_limits<double>::quiet_NaN();
};

/// How the two sides of a check are paired, by what they are: the same run and column, and one that
/// holds its units. A ratio of perplexities compared with a number is paired with what it is a
/// ratio to, a total of layers with the number in each layer. Needs no result.
Pairing pairing_of(const Item& item, const Check& check);

/// Left minus right of a check, unit by unit; several rows of a side (budgets) are averaged within
/// the unit. Empty if the run is missing, holds no units, or fewer than 2 of them.
std::optional<Differences> differences_of(const Item& item, const Check& check,
                                          const FindRun& find_run);

/// The number that left - right is compared with: 0, the slack to either side, the logarithm of a
/// ratio.
double threshold_of(const Item& item, const Check& check);

/// Of the mean difference, at `confidence`: Tango's score interval (1998) where every
/// difference is -1, 0 or 1, else Student's over units.
Interval interval_of(const Differences& differences, double confidence);
/// Two-sided: McNemar's exact test for differences of -1, 0 and 1, else Student's.
double p_of(const Differences& differences);

/// The chance that `n` units whose differences spread by `spread` show a true difference of `size`
/// (95 %, two-sided).
double power(double size, double spread, double n);
/// Units that show it four times of five.
double units_needed(double size, double spread);

}  // namespace kvscope::papers
