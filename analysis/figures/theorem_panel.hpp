// A bound of Theorem B.1 against the measured cosine: the panel that the figure kind theorem-b1
// fills with densities of rows, and the explorer with one point per row.
#pragma once

#include <array>
#include <string_view>

#include "analysis/plot/figure.hpp"
#include "core/base/fields.hpp"

namespace kvscope {

/// The statements that are checked, in the order of the analysis.
enum class TheoremBound { printed, repaired, jensen, worst, main_relaxed, main_exact };
template <>
struct EnumNames<TheoremBound> {
  static constexpr std::array<std::string_view, 6> value = {
      "printed", "repaired", "jensen", "worst", "main_text_relaxed", "main_text_exact"};
};

}  // namespace kvscope

namespace kvscope::figures {

inline constexpr std::size_t kTheoremBounds = 6;
/// The first four bound cos(k*, q) from below, the last two cos(M_Q, q) from above.
inline bool is_upper(TheoremBound bound) {
  return bound >= TheoremBound::main_relaxed;
}
/// Its array in the analysis' result; its flags are "violated/" and its name.
std::string_view array_of(TheoremBound bound);
/// A lower bound up to here excludes next to nothing: no cosine is below -1. The form of the paper
/// stays just above it where norms are large, and is not confirmed by never being violated.
inline constexpr double kSaysNothing = -0.99;
/// In words: "as printed", "Jensen (proved)".
std::string_view title_of(TheoremBound bound);

/// What the rows of a panel say of its bound. Rows without a number are left out.
class TheoremCounts {
 public:
  explicit TheoremCounts(TheoremBound bound) : bound_(bound) {}
  void add(double bound, double cosine, bool is_violated);
  /// In the corner where no points lie. `line`: of the panel's height.
  plot::Note note(double line) const;

 private:
  TheoremBound bound_;
  std::size_t n_ = 0;
  std::size_t violated_ = 0;
  std::size_t trivial_ = 0;  // up to kSaysNothing
  std::size_t above_ = 0;    // lower bounds above 1, which no cosine reaches
  double gaps_ = 0.0;        // on the good side of the bound
};

/// Axes over `range`, and the side of the diagonal on which the bound fails; what is put on it
/// comes between that and theorem_diagonal(), or on top of both.
plot::Panel theorem_panel(TheoremBound bound, plot::Range range);
plot::Rule theorem_diagonal();

}  // namespace kvscope::figures
