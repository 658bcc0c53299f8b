// Why a method kept or dropped a key, as the panel shows it: the answer of `kvscope explain TRACE`
// (analysis/kinds/explain_key.hpp) as a figure, a table of the heaviest keys, and a command.
#pragma once

#include <string>
#include <vector>

#include "analysis/kinds/explain_key.hpp"
#include "analysis/plot/figure.hpp"
#include "gui/model/session/session.hpp"

namespace kvscope::gui {

/// What the figure runs along.
enum class WhyAlong { score, weight };

}  // namespace kvscope::gui

namespace kvscope {
template <>
struct EnumNames<gui::WhyAlong> {
  static constexpr std::array<std::string_view, 2> value = {"by score", "by weight"};
};
}  // namespace kvscope

namespace kvscope::gui {

/// The question that the selection asks. A method that is not defined inside the prompt gets the
/// query as a decode step.
KeyQuestion why_question(const Session& session);
/// Why it cannot be asked, as a sentence; empty if it can.
std::string why_obstacle(const Session& session);

/// The selected key, or the heaviest one that was dropped; the query's own if none was.
Index asked_key(const QueryLook& look, std::optional<Index> selected);

/// Its points are of keys.
struct WhyPicture {
  plot::Figure figure;  // without panels: there is nothing to rank by
  std::vector<KeyOutcome> heaviest;
  std::size_t bytes() const;
};

/// `trace`: file name, for the caption. Along the score, if the method has none, along the weight.
WhyPicture why_picture(const QueryLook& look, WhyAlong along, const std::string& trace);

/// Where a key lies in the figure (x, y); empty where it has no place.
struct WhyPlace {
  double x = 0.0;
  double y = 0.0;
};
std::optional<WhyPlace> why_place(const KeyOutcome& outcome, WhyAlong along);

/// True if the figure can run along the score.
bool has_ranking(const QueryLook& look);

/// One line per visible key: key,weight,weight_rank,end,score,rank,page_begin,page_end.
std::string why_csv(const QueryLook& look);

/// What a shell is told to get the same answer. `draft`: the draft model's trace; empty: none.
std::string why_command(const QueryLook& look, Index key, const std::string& file,
                        const std::string& draft);

}  // namespace kvscope::gui
