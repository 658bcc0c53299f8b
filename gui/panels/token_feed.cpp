#include "gui/panels/token_feed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/model/session/methods.hpp"
#include "gui/model/tokens/next_token_losses.hpp"
#include "gui/model/tokens/token_text.hpp"
#include "gui/panels/token_canvas.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

constexpr float kWidthStep = 8.0f;  // pixels: lines are broken anew in such steps of the width

Advances advances_of(const ImFont& font, const std::string& alphabet) {
  // Characters beyond the basic plane are drawn as one that stands for them.
  constexpr ImWchar kReplacement = 0xfffd;
  Advances advances;
  for (const char32_t c : characters_of(alphabet)) {
    advances.known[c] = font.GetCharAdvance(c <= 0xffff ? static_cast<ImWchar>(c) : kReplacement);
  }
  advances.other = font.GetCharAdvance(kReplacement);
  return advances;
}

}  // namespace

// ---- kept keys ----

void KeptFeed::ask(const Session& session, const MethodSpec& method, bool is_new) {
  if (is_new) {
    const auto before = question_.trace;
    question_ = kept_question(session, method);
    if (before != question_.trace) rows_.reset();
  }
  busy_ = false;
  problem_ = question_.obstacle;
  if (!problem_.empty()) {
    slot_.retry();  // whatever still runs is not wanted
    rows_.reset();
  } else {
    const auto view = slot_.ask(
        session.bench(), question_.key, {fmt::format("Keys that {} keeps", method), Lane::heavy},
        on_traces(question_.trace, question_.draft, question_.request, kept_rows));
    if (view.fresh) rows_ = view.value;
    if (view.failed()) {
      problem_ = view.status.error;
      rows_.reset();
    } else if (!view.fresh && view.status.state == JobState::cancelled) {
      problem_ = fmt::format("{}: cancelled; it is computed again with the next change", method);
      rows_.reset();
    }
    busy_ = !view.fresh && problem_.empty();
  }
  keys_ = rows_ ? kept_keys(*rows_, question_.request, method.text(), session.selection().query)
                : KeptKeys{method.text(), {}, nullptr, false};
}

void KeptFeed::forget() {
  slot_.retry();
  question_ = {};
  rows_.reset();
  keys_ = {};
  problem_.clear();
  busy_ = false;
}

// ---- every list of a method ----

void AnswersFeed::ask(const Session& session, const MethodSpec& method, LossHeads heads,
                      Index reader, bool is_new) {
  const Phase phase = phase_of(session.document()->info(), reader);
  if (is_new || !question_.trace || heads != asked_.heads || phase != asked_.of.phase) {
    question_ = kept_question(session, method);
    asked_ = {question_.request, heads};
    asked_.of.phase = phase;
    asked_key_ = documents_key(*question_.trace, question_.draft.get()) + asked_.key();
  }
  problem_ = obstacle(method, phase, session.second() != nullptr);
  busy_ = false;
  if (!problem_.empty()) {
    slot_.retry();
    answers_.reset();
    key_.clear();
    return;
  }
  const auto view =
      slot_.ask(session.bench(), asked_key_, {fmt::format("Lists of {}", method), Lane::heavy},
                on_traces(question_.trace, question_.draft, asked_, method_answers));
  answers_ = view.fresh ? view.value : nullptr;
  key_ = view.fresh ? asked_key_ : std::string();
  if (view.failed()) problem_ = view.status.error;
  busy_ = view.is_pending();
}

void AnswersFeed::forget() {
  slot_.clear();
  question_ = {};
  answers_.reset();
  key_.clear();
  problem_.clear();
  busy_ = false;
}

// ---- losses ----

void LossFeed::ask(const Session& session, const MethodSpec& method, const TokenWish& wish) {
  const KeptQuestion question = kept_question(session, method);
  busy_ = false;
  problem_ = question.obstacle;
  if (!problem_.empty()) {
    slot_.retry();
    lost_.reset();
    return;
  }
  const LossRequest request{question.request, wish.heads, *wish.losses};
  const auto view = slot_.ask(
      session.bench(), documents_key(*question.trace, question.draft.get()) + request.key(),
      {fmt::format("What {} loses", method), Lane::heavy}, [question, request](JobContext& job) {
        const TraceSource& trace = question.trace->source();
        const TraceSource* draft = question.draft ? &question.draft->source() : nullptr;
        return LostTokens{request, request.kind == LossKind::next_token
                                       ? next_token_losses(trace, request, job)
                                       : token_losses(trace, draft, request, job)};
      });
  if (view.fresh) lost_ = view.value;
  if (view.failed()) {
    problem_ = view.status.error;
    lost_.reset();
  }
  busy_ = view.is_pending();
}

void LossFeed::forget() {
  slot_.retry();
  lost_.reset();
  problem_.clear();
  busy_ = false;
}

// ---- everything ----

void TokenFeed::update(PanelContext& context, const TokenWish& wish) {
  const Session& session = context.session;
  const auto document = session.document();
  busy_ = false;
  const bool is_new = revision_ != session.revision();
  revision_ = session.revision();
  ask_text(context, document, wish.width);
  ask_row(session, document);
  kept_.ask(session, session.selection().selector, is_new);
  if (wish.compare) {
    other_.ask(session, session.selection().other, is_new || !compared_);
  } else if (compared_) {
    other_.forget();
  }
  compared_ = wish.compare;
  ask_search(session, document, wish.needle);
  ask_reading(session, document, wish, is_new);
  ask_losses(session, wish);
  busy_ = busy_ || kept_.is_busy() || other_.is_busy();
}

void TokenFeed::forget() {
  revision_.reset();
  compared_ = false;
  busy_ = false;
  text_.reset();
  row_.reset();
  row_problem_.clear();
  kept_.forget();
  other_.forget();
  found_.reset();
  answers_.forget();
  other_answers_.forget();
  readings_.clear();
  reading_.reset();
  reading_problem_.clear();
  forget_losses();
}

void TokenFeed::ask_reading(const Session& session, const Open& document, const TokenWish& wish,
                            bool is_new) {
  const Selection& selected = session.selection();
  const TraceInfo& info = document->info();
  const Index reader = wish.reader.value_or(selected.query);
  reading_problem_.clear();
  if (!info.capture.qkv || reader < info.rows.begin || reader >= info.rows.end) {
    answers_.forget();  // what they were asked may be another session's when they are asked again
    other_answers_.forget();
    readings_.retry();
    reading_.reset();
    return;  // which the query's row says
  }
  answers_.ask(session, selected.selector, wish.heads, reader, is_new);
  if (wish.compare) {
    other_answers_.ask(session, selected.other, wish.heads, reader, is_new);
  } else {
    other_answers_.forget();
  }
  const ReadingRequest request{selected.layer, selected.q_head, reader, wish.heads};
  const auto view = readings_.ask(
      session.bench(),
      fmt::format("{}{}|{}|{}", document->key(), request.key(), answers_.key(),
                  other_answers_.key()),
      {fmt::format("What position {} reads", reader), Lane::quick, /*urgent=*/true},
      [document, request, answers = answers_.answers(),
       other = other_answers_.answers()](JobContext& job) {
        return reading_of(document->source(), request, answers.get(), other.get(), job);
      });
  if (view.fresh) reading_ = view.value;
  if (view.failed()) {
    reading_problem_ = view.status.error;
    reading_.reset();
  } else if (!answers_.problem().empty()) {
    reading_problem_ = answers_.problem();
  }
  busy_ = busy_ || view.is_pending() || answers_.is_busy() || other_answers_.is_busy();
}

void TokenFeed::ask_losses(const Session& session, const TokenWish& wish) {
  if (!wish.losses || !text_) return forget_losses();
  losses_.ask(session, session.selection().selector, wish);
  if (wish.compare) {
    other_losses_.ask(session, session.selection().other, wish);
  } else {
    other_losses_.forget();
  }
  busy_ = busy_ || losses_.is_busy() || other_losses_.is_busy();
  if (shaded_of_ == losses_.lost() && shaded_against_ == other_losses_.lost()) return;
  constexpr std::size_t kSections = 12;
  shaded_of_ = losses_.lost();
  shaded_against_ = other_losses_.lost();
  shaded_ = shaded_of_ ? shaded_of_->losses : TokenLosses();
  if (shaded_of_ && shaded_against_)
    shaded_ = difference_of(shaded_of_->losses, shaded_against_->losses);
  worst_ = worst_sections(shaded_, *text_->texts, kSections);
}

void TokenFeed::forget_losses() {
  losses_.forget();
  other_losses_.forget();
  shaded_of_.reset();
  shaded_against_.reset();
  shaded_ = {};
  worst_.clear();
}

void TokenFeed::ask_text(PanelContext& context, const Open& document, float width) {
  const Workbench bench = context.session.bench();
  const auto texts = texts_.ask(
      bench, document->key() + "texts", {"Reading the text", Lane::quick, /*urgent=*/true},
      [document](JobContext& job) { return TokenTexts::of(*document, job); });
  text_status_ = texts.status;
  busy_ = busy_ || texts.is_pending();
  if (!texts.fresh) return;
  if (advances_of_ != texts.value || generation_ != context.fonts.generation()) {
    // Letters that are missing are there from the next frame on, with another generation.
    if (!context.fonts.require(texts.value->alphabet())) busy_ = true;
    advances_ = std::make_shared<const Advances>(
        advances_of(*context.fonts.body(), texts.value->alphabet()));
    advances_of_ = texts.value;
    generation_ = context.fonts.generation();
  }
  const float room = TokenCanvas::text_width(context, width, texts.value->size());
  const LineRequest request{std::max(kWidthStep, std::floor(room / kWidthStep) * kWidthStep),
                            TokenCanvas::padding(context.look)};
  const auto lines = lines_.ask(
      bench,
      fmt::format("{}lines/{}/{}/{}", document->key(), request.width, request.padding, generation_),
      {"Breaking lines", Lane::quick, /*urgent=*/true},
      [texts = texts.value, advances = advances_, request](JobContext&) {
        return LaidOutText{texts, break_lines(*texts, *advances, request)};
      });
  if (lines.value && lines.value->texts == texts.value) text_ = lines.value;
  busy_ = busy_ || lines.is_pending();
}

void TokenFeed::ask_row(const Session& session, const Open& document) {
  const Selection& selected = session.selection();
  row_problem_.clear();
  if (!document->info().capture.qkv) {
    row_problem_ = "This trace holds no q, k and v: the text is shown without attention.";
    row_.reset();
    return;
  }
  const auto row = rows_.ask(
      session.bench(),
      document->key() + ranked_row_key(selected.layer, selected.q_head, selected.query),
      {fmt::format("Attention of position {}", selected.query), Lane::quick, /*urgent=*/true},
      [document, selected](JobContext&) {
        return ranked_row(document->source(), selected.layer, selected.q_head, selected.query);
      });
  if (row.fresh) row_ = row.value;
  if (row.failed()) {
    row_problem_ = row.status.error;
    row_.reset();
  }
  busy_ = busy_ || row.is_pending();
}

void TokenFeed::ask_search(const Session& session, const Open& document,
                           const std::string& needle) {
  if (needle.empty() || !document->has_text()) {
    found_.reset();
    return;
  }
  const auto found =
      search_.ask(session.bench(), document->key() + "find/" + needle,
                  {"Searching", Lane::quick, /*urgent=*/true}, [document, needle](JobContext&) {
                    return FoundTokens{find_text(document->token_bytes(), needle)};
                  });
  if (found.fresh) found_ = found.value;
  busy_ = busy_ || found.is_pending();
}

}  // namespace kvscope::gui
