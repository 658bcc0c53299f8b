// Axes as mathematics: from data to [0, 1] and back, and where the ticks go.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"

namespace kvscope::plot {

/// A monotone map from data to [0, 1]: range.low is 0, range.high is 1 (the other way round if
/// reversed).
class Scale {
 public:
  Scale() = default;
  Scale(ScaleKind kind, Range range, bool reversed = false);
  /// NaN for what has no place: NaN, and numbers <= 0 on a logarithmic axis.
  double to_unit(double value) const;
  double from_unit(double unit) const;
  const Range& range() const { return range_; }
  ScaleKind kind() const { return kind_; }

 private:
  double bend(double value) const;
  double unbend(double bent) const;
  ScaleKind kind_ = ScaleKind::linear;
  Range range_;
  bool reversed_ = false;
  double low_ = 0.0;  // bent ends
  double high_ = 1.0;
};

/// Smallest and largest finite value (positive ones only on a logarithmic axis) of what was added.
class Extent {
 public:
  explicit Extent(ScaleKind kind) : positive_only_(kind != ScaleKind::linear) {}
  void add(double value);
  void add(std::span<const double> values) {
    for (double v : values) add(v);
  }
  bool empty() const { return !(low_ <= high_); }
  /// Never of zero width: a single value gets room on both sides.
  Range range() const;

 private:
  bool positive_only_;
  double low_ = 1.0;
  double high_ = 0.0;
  bool any_ = false;
};

/// The range with room for markers: 4 % on each side, in the scale's own measure. With `keep_zero`
/// a linear range that reaches zero but not beyond it keeps zero as its end.
Range padded(Range range, ScaleKind kind, bool keep_zero);

/// Ticks in the range, about `n_wanted` of them at most, labelled. Linear: steps of 1, 2, 2.5 or 5
/// times a power of ten. log10: powers of ten, with 2 and 5 between them where there are few, or
/// linear ones within a factor of four.
/// log2: powers of two. Labels of one axis have equally many decimals.
std::vector<Tick> choose_ticks(const Axis& axis, Range range, int n_wanted);

/// Positions between the ticks of a log10 axis: 2, 3, ..., 9 times each power of ten.
std::vector<double> minor_ticks(const Axis& axis, Range range);

/// A number as the axis would write it, alone.
std::string tick_text(double value, TickFormat format);

}  // namespace kvscope::plot
