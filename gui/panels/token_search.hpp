// The text's search field with its matches, and the field that a position is typed into.
#pragma once

#include <optional>
#include <string>

#include "gui/model/traces/document.hpp"
#include "gui/panels/panel.hpp"
#include "gui/panels/token_feed.hpp"

namespace kvscope::gui {

class TokenSearch {
 public:
  /// `found`: where the needle stands, null while it is looked for. `sets_key`: a match becomes the
  /// key, else the query.
  void draw(PanelContext& context, const Document& document, const FoundTokens* found,
            bool& sets_key, bool wants_focus);
  void draw_go_to(PanelContext& context, const Document& document);
  const std::string& needle() const { return needle_; }
  /// The match that was gone to, or the first one; without a search the selected key.
  std::optional<TokenRange> word(const Session& session, const FoundTokens* matches) const;
  /// A position that was gone to since the last call.
  std::optional<Index> take_place();
  /// Of another text.
  void forget() { last_match_.reset(); }

 private:
  void go_to_match(Session& session, const FoundTokens* found, bool sets_key, bool forward);

  std::optional<Index> last_match_;  // that the search went to
  std::optional<Index> place_;
  std::string needle_;
  std::string position_;  // what is typed into "position"
};

}  // namespace kvscope::gui
