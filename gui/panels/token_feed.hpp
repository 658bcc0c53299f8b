// What the token strip shows, asked for anew in every frame: text in lines, attention of the query,
// kept keys, search.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/model/tokens/token_lines.hpp"
#include "gui/model/tokens/token_reading.hpp"
#include "gui/model/tokens/token_text.hpp"
#include "gui/model/tokens/token_view.hpp"
#include "gui/panels/method_feed.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// Lines and the texts they were made of.
struct LaidOutText {
  std::shared_ptr<const TokenTexts> texts;
  TokenLines lines;
  std::size_t bytes() const { return lines.bytes(); }
};

struct TokenWish {
  float width = 0.0f;                 // of the window that the text fills
  bool compare = false;               // ask what the other method keeps as well
  std::string needle;                 // searched for; empty: nothing
  LossHeads heads = LossHeads::head;  // whose attention and losses
  std::optional<LossKind> losses;     // of the methods, at every token
  std::optional<Index> reader;        // whose reading is shown; empty: the query's
};

/// What the text shows of one method.
class MethodOfText {
 public:
  using Lists = MethodFeed<MethodSelections>;
  /// Its lists for the query, and for a reader of the other phase; its losses.
  void ask(const Session& session, const MethodSpec& method, const TokenWish& wish, bool is_new);
  void forget();

  /// In which the query is asked about, and a reader.
  const Lists& lists() const { return lists_; }
  const Lists& reading_lists() const { return reads_far_ ? far_lists_ : lists_; }
  const std::string& name() const { return method_; }
  /// A sentence: why there are none.
  const std::string& problem() const { return lists_.problem(); }
  const MethodSpec& spec() const { return lists_.request().spec; }
  bool is_busy() const {
    return lists_.is_busy() || losses_.is_busy() || (reads_far_ && far_lists_.is_busy());
  }

  /// Null while nobody wants it, or it is computed for the first time.
  const std::shared_ptr<const TokenLosses>& lost() const { return losses_.value(); }
  const std::string& loss_problem() const { return losses_.problem(); }

 private:
  Lists lists_{"Lists of", method_selections};
  Lists far_lists_{"Lists of", method_selections};  // in the phase that is not the query's
  MethodFeed<TokenLosses> losses_{"Losses of", token_losses};
  bool reads_far_ = false;
  std::string method_;
};

class TokenFeed {
 public:
  /// Needs an open trace.
  void update(PanelContext& context, const TokenWish& wish);
  /// Another reader, after an update: true if what it reads is there already.
  bool read(const Session& session, std::optional<Index> reader);
  void forget();

  /// Null until the text was read.
  const LaidOutText* text() const { return text_.get(); }
  JobStatus text_status() const { return text_status_; }
  /// What of the text is not drawn as it is written; empty: nothing.
  const std::string& script_remark() const { return script_remark_; }
  /// Reading the text.
  void cancel() { texts_.cancel(); }
  void retry() { texts_.retry(); }
  /// Null until it was computed; perhaps of the query before.
  const RankedRow* row() const { return row_ ? &row_->row : nullptr; }
  /// What the method, or the other one, does with the row's keys; empty while it is made, and
  /// without any.
  std::optional<KeptKeys> keys(bool of_other) const;
  /// A sentence: why there is none.
  const std::string& row_problem() const { return row_problem_; }
  /// What the reader, or the one before, reads; null until it was computed.
  const Reading* reading() const { return reading_.get(); }
  /// A sentence: why its keys have no outcomes, or there is none.
  const std::string& reading_problem() const { return reading_problem_; }
  const MethodOfText& method() const { return method_; }
  /// What it is compared with, while it is.
  const MethodOfText& other() const { return other_; }
  /// A sentence: why there are no losses.
  const std::string& loss_problem() const {
    return method_.loss_problem().empty() ? other_.loss_problem() : method_.loss_problem();
  }
  /// The method's losses, or what it loses more than the other; null: neither is there.
  const TokenLosses* shaded_losses() const { return shaded_.empty() ? nullptr : &shaded_; }
  /// Where these are largest.
  const std::vector<LossSection>& worst() const { return worst_; }
  /// Null while nothing is searched for.
  const FoundTokens* found() const { return found_.get(); }
  bool is_busy() const { return busy_ || method_.is_busy() || other_.is_busy(); }

 private:
  using Open = std::shared_ptr<const Document>;
  void ask_text(PanelContext& context, const Open& document, float width);
  void ask_row(const Session& session, const Open& document);
  void ask_search(const Session& session, const Open& document, const std::string& needle);
  void ask_methods(const Session& session, const Open& document);
  void ask_reading(const Session& session, const Open& document);
  void compare_losses();

  TokenWish wish_;
  std::optional<std::uint64_t> revision_;
  bool is_new_ = false;    // the session has changed since the last frame
  bool compared_ = false;  // then
  bool busy_ = false;

  AsyncValue<TokenTexts> texts_;
  JobStatus text_status_;
  std::shared_ptr<const Advances> advances_;
  std::shared_ptr<const TokenTexts> advances_of_;
  std::uint64_t generation_ = 0;
  std::string script_remark_;
  AsyncValue<LaidOutText> lines_;
  std::shared_ptr<const LaidOutText> text_;

  AsyncValue<Reading> rows_;
  std::shared_ptr<const Reading> row_;
  bool is_row_fresh_ = false;
  std::string row_problem_;
  MethodOfText method_;
  MethodOfText other_;
  AsyncValue<Reading> readings_;
  std::shared_ptr<const Reading> reading_;
  std::string reading_problem_;

  std::shared_ptr<const TokenLosses> shaded_of_, shaded_against_;
  TokenLosses shaded_;
  std::vector<LossSection> worst_;

  AsyncValue<FoundTokens> search_;
  std::shared_ptr<const FoundTokens> found_;
};

}  // namespace kvscope::gui
