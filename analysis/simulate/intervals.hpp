// Intervals and paired tests for closed-loop results: Wilson's interval of a share, the exact test
// of McNemar, the paired bootstrap. All intervals are of 95 %, all draws are named by a stream.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "analysis/sweep/sweep_rows.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope {

/// Wilson's score interval of `hits` successes in `n` trials (Wilson 1927): the shares p whose
/// normal test at 95 % does not refuse hits / n. Never outside [0, 1], sensible at 0 and n.
Interval wilson_interval(double hits, double n);

/// Of the mean of `scores` in [0, 1]: Wilson's if all are 0 or 1, else the percentile bootstrap
/// over prompts, with the draws that `stream` names. text: which text each prompt is of, or empty;
/// with several texts the bootstrap draws texts, then prompts in them, also for scores of 0 and 1
/// (if all are equal there is nothing to draw: Wilson's).
Interval score_interval(std::span<const double> scores, std::initializer_list<std::uint64_t> stream,
                        std::span<const std::size_t> text = {});

/// Two-sided exact test of McNemar (1947) for b pairs that only the first gets right and c
/// that only the second does: min(1, 2 P(X <= min(b, c))), X ~ Binomial(b + c, 1/2). 1
/// without such pairs.
double mcnemar_exact(Index b, Index c);

/// Two methods on the same prompts.
struct PairedTest {
  Index n = 0;
  Index only_first = 0;     // prompts on which the first scores higher
  Index only_second = 0;    // ... the second
  double difference = 0.0;  // mean of first - second
  Interval interval;        // of the difference: paired bootstrap
  /// Two-sided: McNemar's exact test (the sign test, if scores are shares); NaN: not tested.
  double p = 1.0;
};

/// a and b: scores of the same prompts in the same order. text: as for score_interval; it widens
/// the interval, while p speaks of prompts like these, of the texts at hand.
PairedTest paired_test(std::span<const double> a, std::span<const double> b,
                       std::initializer_list<std::uint64_t> stream,
                       std::span<const std::size_t> text = {});

/// Resampled means of several series over the same prompts, [series][resample], paired: texts are
/// drawn, then prompts in them. values: [series][prompt]; text: as for score_interval.
std::vector<std::vector<double>> bootstrap_over_texts(
    const std::vector<std::vector<double>>& values, std::span<const std::size_t> text,
    std::initializer_list<std::uint64_t> stream);

/// A bootstrap at three levels: texts are drawn with replacement, in each its groups (prompts), in
/// each group its members (blocks of tokens); of one text nothing is drawn above its groups. The
/// same draws for every series that is given, so that differences are paired. values:
/// [series][text][group][member], of one shape. Returns the means of `n_resamples` resamples,
/// [series][resample].
std::vector<std::vector<double>> nested_bootstrap(
    const std::vector<std::vector<std::vector<std::vector<double>>>>& values, Index n_resamples,
    std::initializer_list<std::uint64_t> stream);

/// The 2.5 % and 97.5 % quantiles.
Interval percentiles95(std::span<const double> resampled);

/// How many times an interval's draws are made.
inline constexpr Index kIntervalResamples = 2000;

}  // namespace kvscope
