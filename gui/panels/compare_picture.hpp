// What the views of the compare panel share: the figure on screen with the sides that it shows, a
// few numbers above it, and a list of keys beside it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gui/model/compare/compare_figures.hpp"
#include "gui/panels/panel_base.hpp"

namespace kvscope::gui {

/// A few numbers in columns, names first.
void number_table(const char* id, const std::vector<std::string>& header,
                  const std::vector<std::vector<std::string>>& lines);

/// Which side is which, in the colours of the figures.
void side_names(const PanelContext& context, const CompareSides& sides);

/// Selects a key, and a query if one is given.
void go_to_key(Session& session, Index key, std::optional<Index> query = std::nullopt);

class ComparePicture {
 public:
  /// Lets go of the figure and of what it was made of.
  void forget() {
    figure_.reset();
    sides_ = {};
    made_ = {};
  }
  /// Shows on `screen` the figure of `value`, made anew by make(value, sides, marks) when value,
  /// selection or `variant` (what else decides the figure) changes. `sides`: of a fresh value;
  /// an earlier one keeps the sides it came with.
  template <class T, class Make>
  void show(PanelContext& context, PanelFigure& screen, const std::shared_ptr<const T>& value,
            const CompareSides& sides, int variant, ImVec2 size, Make make) {
    const Selection& s = context.session.selection();
    const Made now{value, {s.query, s.key}, variant};
    if (!figure_ || now != made_) {
      if (made_.value != now.value) sides_ = sides;
      figure_ = make(*value, sides_, CompareMarks{s.query, s.key});
      made_ = now;
      screen.renew();
    }
    screen.show(context, *figure_, size);
  }
  /// Of the figure that is shown.
  const Document& document() const { return *sides_.a.document; }

  /// A list of keys at the right of the figure, if there is room: a click goes to them.
  void list_keys(PanelContext& context, const std::vector<NotedKey>& noted, bool two_rows);
  /// What show() is given so that list_keys has room.
  static ImVec2 size_beside_list(const PanelContext& context);

  /// The value of the figure.
  const std::shared_ptr<const void>& value() const { return made_.value; }

 private:
  struct Made {
    std::shared_ptr<const void> value;
    std::pair<Index, std::optional<Index>> selected;
    int variant = 0;
    bool operator==(const Made&) const = default;
  };
  std::optional<plot::Figure> figure_;
  CompareSides sides_;
  Made made_;
};

}  // namespace kvscope::gui
