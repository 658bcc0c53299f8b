// Six steps through the window for who sees it for the first time: each points at a real control.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "gui/model/session/arrangement.hpp"
#include "gui/model/traces/tour_facts.hpp"
#include "gui/render/look.hpp"

namespace kvscope::gui {

struct TourStep {
  std::string title;
  std::string words;
  std::string target;  // a landmark, or a panel's name
  std::string shows;   // a layout or a panel in which it can be seen; empty: as it is
};

inline constexpr std::size_t kTourSteps = 6;

/// The steps, in order. `facts`: of the trace that is shown; null until they are known, and then
/// nothing is said of it. `text_of`: the text of a position.
std::array<TourStep, kTourSteps> tour_steps(
    const TourFacts* facts = nullptr,
    const std::function<std::string(Index pos)>& text_of = [](Index) { return std::string(); });

class Tour {
 public:
  void start() { step_ = 0; }
  void leave() { step_.reset(); }
  /// Empty while no tour goes on.
  const std::optional<std::size_t>& step() const { return step_; }
  /// To a step; beyond the last one the tour is over.
  void go(std::size_t step);

  /// Marks the step's control and says what it is for. `place_of`: where a landmark or panel was
  /// drawn, empty if it cannot be seen. True if the step changed.
  bool draw(const Look& look, const TourStep& step,
            const std::function<std::optional<Area>(const std::string& target)>& place_of);

 private:
  std::optional<std::size_t> step_;
};

}  // namespace kvscope::gui
