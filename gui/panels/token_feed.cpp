#include "gui/panels/token_feed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
  ask_losses(session, wish.losses);
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
  losses_.retry();
  lost_.reset();
}

void TokenFeed::ask_losses(const Session& session, const std::optional<LossHeads>& heads) {
  if (!heads || !text_) {
    lost_.reset();
    return;
  }
  constexpr std::size_t kSections = 12;
  const KeptQuestion question = kept_question(session, session.selection().selector);
  if (!question.obstacle.empty()) {  // which the kept keys say
    lost_.reset();
    return;
  }
  const LossRequest request{question.request, *heads};
  const auto view = losses_.ask(
      session.bench(), documents_key(*question.trace, question.draft.get()) + request.key(),
      {fmt::format("What {} loses", session.selection().selector), Lane::heavy},
      [question, request, texts = text_->texts](JobContext& job) {
        LostTokens lost{
            request,
            token_losses(question.trace->source(),
                         question.draft ? &question.draft->source() : nullptr, request, job),
            {}};
        lost.sections = worst_sections(lost.losses, *texts, kSections);
        return lost;
      });
  if (view.fresh) lost_ = view.value;
  busy_ = busy_ || view.is_pending();
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
