// The command palette: everything that the explorer can do, found by typing parts of its name.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gui/model/results/table_view.hpp"
#include "gui/render/look.hpp"

namespace kvscope::gui {

/// Something that can be done now.
struct Action {
  std::string group;  // "View", "Method"
  std::string words;  // "light or dark"
  std::string keys;   // "Ctrl+S"; empty: it has none
  std::function<void()> run;
  std::string also;  // what else it is looked for by: other words, what it does
};

/// The actions that hold every word of `typed`, in any case and order: those with most of them in
/// their own words and group first, then those that begin with the first one, then those whose
/// words are in `recent`, in its order. All of them for no words.
std::vector<const Action*> matching(const std::vector<Action>& actions, std::string_view typed,
                                    const std::vector<std::string>& recent = {});

/// Where "layer 5 head 3 query 400 key 20 budget 512" leads, each part optional; empty if anything
/// else is typed as well.
RowTarget target_of(std::string_view typed);

class Palette {
 public:
  /// Opens it.
  void ask();
  /// Draws it while it is open: arrows choose, Enter runs, Escape closes. `actions`: what there is
  /// to do now; `go_to` is offered for what target_of understands.
  void draw(const Look& look, const std::function<std::vector<Action>()>& actions,
            const std::function<void(const RowTarget&)>& go_to);

 private:
  std::string typed_;
  std::vector<std::string> recent_;  // words of what was run, the last first
  std::size_t chosen_ = 0;
  bool should_open_ = false;
};

}  // namespace kvscope::gui
