// "Who reads it?": a button that opens the heads of a recording by how much they read a word, and
// from where.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gui/model/jobs/async_value.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

struct WordReader {
  Index layer = 0;  // true numbers of the model
  Index q_head = 0;
  double received = 0.0;  // attention of all later queries together
  double most = 0.0;      // of one of them
  Index from = 0;         // that one
};

struct WordReaders {
  TokenRange word;
  std::vector<WordReader> heads;  // all recorded ones, the one that reads it most first
  std::size_t bytes() const { return sizeof *this + heads.size() * sizeof(WordReader); }
};

class ReadersList {
 public:
  /// The button, and the list while it is open: a click selects the head, the query that reads the
  /// word most, and the word. Without a word the button is grey. Needs an open trace.
  void draw(PanelContext& context, const std::shared_ptr<const Document>& document,
            std::optional<TokenRange> word);
  void forget();
  bool is_busy() const { return busy_; }

 private:
  void draw_lines(PanelContext& context, const Document& document);

  AsyncValue<WordReaders> slot_;
  std::shared_ptr<const WordReaders> readers_;
  bool busy_ = false;
};

}  // namespace kvscope::gui
