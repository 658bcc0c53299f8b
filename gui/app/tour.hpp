// Six steps through the window for who sees it for the first time: each points at a real control.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gui/model/session/arrangement.hpp"
#include "gui/render/look.hpp"

namespace kvscope::gui {

struct TourStep {
  const char* title;
  const char* words;
  const char* target;  // a landmark, or a panel's name
  const char* layout;  // in which it can be seen; empty: in any
};

/// The steps, in order.
const std::vector<TourStep>& tour_steps();

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
  bool draw(const Look& look,
            const std::function<std::optional<Area>(const std::string& target)>& place_of);

 private:
  std::optional<std::size_t> step_;
};

}  // namespace kvscope::gui
