// What the token strip shows, asked for anew in every frame: text in lines, attention of the query,
// kept keys, search.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gui/model/tokens/token_lines.hpp"
#include "gui/model/tokens/token_reading.hpp"
#include "gui/model/tokens/token_view.hpp"
#include "gui/panels/panel.hpp"

namespace kvscope::gui {

/// Lines and the texts they were made of.
struct LaidOutText {
  std::shared_ptr<const TokenTexts> texts;
  TokenLines lines;
  std::size_t bytes() const { return lines.bytes(); }
};

/// What one method loses at every token.
struct LostTokens {
  LossRequest request;
  TokenLosses losses;
  std::size_t bytes() const { return sizeof *this + losses.bytes(); }
};

struct FoundTokens {
  std::vector<std::size_t> positions;
  std::size_t bytes() const { return sizeof *this + positions.size() * sizeof(std::size_t); }
};

/// What one method keeps for the query.
class KeptFeed {
 public:
  /// `is_new`: the session has changed since the last call.
  void ask(const Session& session, const MethodSpec& method, bool is_new);
  void forget();

  const KeptKeys& keys() const { return keys_; }
  bool has_keys() const { return rows_ != nullptr; }
  /// A sentence: why there are none.
  const std::string& problem() const { return problem_; }
  const MethodSpec& spec() const { return question_.request.spec; }
  bool is_busy() const { return busy_; }

 private:
  AsyncValue<KeptRows> slot_;
  KeptQuestion question_;
  std::shared_ptr<const KeptRows> rows_;  // of the question's trace; perhaps of the one before
  KeptKeys keys_;
  std::string problem_;
  bool busy_ = false;
};

struct TokenWish {
  float width = 0.0f;                 // of the window that the text fills
  bool compare = false;               // ask what the other method keeps as well
  std::string needle;                 // searched for; empty: nothing
  LossHeads heads = LossHeads::head;  // whose attention and losses
  std::optional<LossKind> losses;     // of the methods, at every token
  std::optional<Index> reader;        // whose reading is shown; empty: the query's
};

/// The lists of one method in the phase of a reader.
class AnswersFeed {
 public:
  /// `is_new`: the session has changed since the last call.
  void ask(const Session& session, const MethodSpec& method, LossHeads heads, Index reader,
           bool is_new);
  void forget();
  /// Null while they are made, and where there are none.
  const std::shared_ptr<const MethodAnswers>& answers() const { return answers_; }
  /// Of the cache; empty without answers.
  const std::string& key() const { return key_; }
  /// A sentence: why there are none.
  const std::string& problem() const { return problem_; }
  bool is_busy() const { return busy_; }

 private:
  AsyncValue<MethodAnswers> slot_;
  KeptQuestion question_;
  AnswersRequest asked_;
  std::string asked_key_;
  std::shared_ptr<const MethodAnswers> answers_;
  std::string key_;
  std::string problem_;
  bool busy_ = false;
};

/// The losses of one method.
class LossFeed {
 public:
  void ask(const Session& session, const MethodSpec& method, const TokenWish& wish);
  void forget();
  /// Null while they are computed for the first time, and where there are none.
  const std::shared_ptr<const LostTokens>& lost() const { return lost_; }
  /// A sentence: why there are none.
  const std::string& problem() const { return problem_; }
  bool is_busy() const { return busy_; }

 private:
  AsyncValue<LostTokens> slot_;
  std::shared_ptr<const LostTokens> lost_;
  std::string problem_;
  bool busy_ = false;
};

class TokenFeed {
 public:
  /// Needs an open trace.
  void update(PanelContext& context, const TokenWish& wish);
  void forget();

  /// Null until the text was read.
  const LaidOutText* text() const { return text_.get(); }
  JobStatus text_status() const { return text_status_; }
  /// Reading the text.
  void cancel() { texts_.cancel(); }
  void retry() { texts_.retry(); }
  /// Null until it was computed; perhaps of the query before.
  const RankedRow* row() const { return row_.get(); }
  /// A sentence: why there is none.
  const std::string& row_problem() const { return row_problem_; }
  /// What the reader, or the one before, reads; null until it was computed.
  const Reading* reading() const { return reading_.get(); }
  /// A sentence: why its keys have no fates, or there is none.
  const std::string& reading_problem() const { return reading_problem_; }
  const KeptFeed& kept() const { return kept_; }
  const KeptFeed& other() const { return other_; }
  /// Null while nobody wants them, or they are computed for the first time; of the other method
  /// while it is compared.
  const LostTokens* lost() const { return losses_.lost().get(); }
  const LostTokens* other_lost() const { return other_losses_.lost().get(); }
  /// A sentence: why there are none.
  const std::string& loss_problem() const {
    return losses_.problem().empty() ? other_losses_.problem() : losses_.problem();
  }
  /// The method's losses, or what it loses more than the other; null: neither is there.
  const TokenLosses* shaded_losses() const { return shaded_.empty() ? nullptr : &shaded_; }
  /// Where these are largest.
  const std::vector<LossSection>& worst() const { return worst_; }
  /// Null while nothing is searched for.
  const FoundTokens* found() const { return found_.get(); }
  bool is_busy() const { return busy_; }

 private:
  using Open = std::shared_ptr<const Document>;
  void ask_text(PanelContext& context, const Open& document, float width);
  void ask_row(const Session& session, const Open& document);
  void ask_search(const Session& session, const Open& document, const std::string& needle);
  void ask_losses(const Session& session, const TokenWish& wish);
  void forget_losses();
  void ask_reading(const Session& session, const Open& document, const TokenWish& wish,
                   bool is_new);

  std::optional<std::uint64_t> revision_;
  bool compared_ = false;
  bool busy_ = false;

  AsyncValue<TokenTexts> texts_;
  JobStatus text_status_;
  std::shared_ptr<const Advances> advances_;
  std::shared_ptr<const TokenTexts> advances_of_;
  std::uint64_t generation_ = 0;
  AsyncValue<LaidOutText> lines_;
  std::shared_ptr<const LaidOutText> text_;

  AsyncValue<RankedRow> rows_;
  std::shared_ptr<const RankedRow> row_;
  std::string row_problem_;
  KeptFeed kept_;
  KeptFeed other_;

  AnswersFeed answers_;
  AnswersFeed other_answers_;
  AsyncValue<Reading> readings_;
  std::shared_ptr<const Reading> reading_;
  std::string reading_problem_;

  LossFeed losses_;
  LossFeed other_losses_;
  std::shared_ptr<const LostTokens> shaded_of_, shaded_against_;
  TokenLosses shaded_;
  std::vector<LossSection> worst_;

  AsyncValue<FoundTokens> search_;
  std::shared_ptr<const FoundTokens> found_;
};

}  // namespace kvscope::gui
