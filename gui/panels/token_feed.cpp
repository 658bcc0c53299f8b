#include "gui/panels/token_feed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/model/session/methods.hpp"
#include "gui/model/tokens/script_text.hpp"
#include "gui/panels/token_canvas.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

constexpr float kWidthStep = 8.0f;  // pixels: lines are broken anew in such steps of the width

Advances advances_of(const ImFont& font, const std::string& alphabet) {
  Advances advances;
  for (const char32_t c : characters_of(alphabet))
    advances.known[c] = font.GetCharAdvance(static_cast<ImWchar>(c));
  advances.other = font.GetCharAdvance(0xfffd);
  return advances;
}

}  // namespace

// ---- one method ----

void MethodOfText::ask(const Session& session, const MethodSpec& method, const TokenWish& wish,
                       bool is_new) {
  if (is_new) method_ = method.text();
  LossRequest scope{
      .phase = session.phase(), .heads = wish.heads, .kind = wish.losses.value_or(LossKind::mass)};
  if (wish.losses) {
    losses_.ask(session, method, scope, is_new);
  } else {
    losses_.forget();
  }
  scope.kind = LossKind::mass;
  lists_.ask(session, method, scope, is_new);
  const Phase phase =
      wish.reader ? phase_of(session.document()->info(), *wish.reader) : scope.phase;
  reads_far_ = phase != scope.phase;
  scope.phase = phase;
  if (reads_far_) far_lists_.ask(session, method, scope, is_new);
  if (is_new && !reads_far_) far_lists_.forget();
}

void MethodOfText::forget() {
  lists_.forget();
  far_lists_.forget();
  losses_.forget();
  reads_far_ = false;
}

// ---- everything ----

namespace {

/// What a position reads, and what becomes of it in the lists that are there.
AsyncView<Reading> ask_reading_of(const Session& session,
                                  const std::shared_ptr<const Document>& document,
                                  AsyncValue<Reading>& slot, const ReadingRequest& request,
                                  const MethodOfText::Lists& lists,
                                  const MethodOfText::Lists& others) {
  const auto key_of = [](const MethodOfText::Lists& of) { return of.fresh() ? of.key() : ""; };
  return slot.ask(
      session.bench(),
      fmt::format("{}{}|{}|{}", document->key(), request.key(), key_of(lists), key_of(others)),
      {fmt::format("What position {} reads", request.query), Lane::quick, /*urgent=*/true},
      [document, request, one = lists.fresh(), other = others.fresh()](JobContext& job) {
        return reading_of(document->source(), request, one.get(), other.get(), job);
      });
}

}  // namespace

void TokenFeed::update(PanelContext& context, const TokenWish& wish) {
  const Session& session = context.session;
  const auto document = session.document();
  wish_ = wish;
  busy_ = false;
  is_new_ = revision_ != session.revision();
  revision_ = session.revision();
  ask_text(context, document, wish.width);
  ask_search(session, document, wish.needle);
  ask_methods(session, document);
  ask_row(session, document);
  ask_reading(session, document);
  compare_losses();
}

bool TokenFeed::read(const Session& session, std::optional<Index> reader) {
  wish_.reader = reader;
  is_new_ = false;
  const auto document = session.document();
  const auto before = reading_;
  ask_methods(session, document);
  ask_reading(session, document);
  return reading_ != before;
}

void TokenFeed::forget() {
  revision_.reset();
  compared_ = false;
  busy_ = false;
  text_.reset();
  row_.reset();
  row_problem_.clear();
  method_.forget();
  other_.forget();
  found_.reset();
  readings_.clear();
  reading_.reset();
  reading_problem_.clear();
  compare_losses();
}

void TokenFeed::ask_methods(const Session& session, const Open& document) {
  if (!document->info().capture.qkv) return;  // which the query's row says
  const Selection& selected = session.selection();
  method_.ask(session, selected.selector, wish_, is_new_);
  if (wish_.compare) {
    other_.ask(session, selected.other, wish_, is_new_ || !compared_);
  } else if (compared_) {
    other_.forget();
  }
  compared_ = wish_.compare;
}

void TokenFeed::ask_reading(const Session& session, const Open& document) {
  const Selection& selected = session.selection();
  const TraceInfo& info = document->info();
  const Index reader = wish_.reader.value_or(selected.query);
  reading_problem_.clear();
  if (!info.capture.qkv || reader < info.rows.begin || reader >= info.rows.end) {
    readings_.retry();
    reading_.reset();
    return;  // which the query's row says
  }
  const auto view = ask_reading_of(session, document, readings_,
                                   {selected.layer, selected.q_head, reader, wish_.heads},
                                   method_.reading_lists(), other_.reading_lists());
  if (view.fresh) reading_ = view.value;
  if (view.failed()) {
    reading_problem_ = view.status.error;
    reading_.reset();
  } else {
    reading_problem_ = method_.reading_lists().problem();
  }
  busy_ = busy_ || view.is_pending();
}

void TokenFeed::compare_losses() {
  if (!text_) worst_.clear();
  if (shaded_of_ == method_.lost() && shaded_against_ == other_.lost()) return;
  if (!text_ && method_.lost()) return;  // the sections are made of it
  constexpr std::size_t kSections = 12;
  shaded_of_ = method_.lost();
  shaded_against_ = other_.lost();
  shaded_ = shaded_of_ ? *shaded_of_ : TokenLosses();
  if (shaded_of_ && shaded_against_) shaded_ = difference_of(*shaded_of_, *shaded_against_);
  worst_ = text_ ? worst_sections(shaded_, *text_->texts, kSections) : std::vector<LossSection>();
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
    script_remark_ = remark_on_scripts(texts.value->alphabet(),
                                       [&context](char32_t c) { return context.fonts.lacks(c); });
    generation_ = context.fonts.generation();
  }
  const float room = TokenCanvas::text_width(context, width, texts.value->size());
  const LineRequest request{std::max(kWidthStep, std::floor(room / kWidthStep) * kWidthStep),
                            TokenPainter::padding(context.look)};
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
  is_row_fresh_ = false;
  if (!document->info().capture.qkv) {
    row_problem_ = "This trace holds no q, k and v: the text is shown without attention.";
    row_.reset();
    return;
  }
  const auto row = ask_reading_of(
      session, document, rows_, {selected.layer, selected.q_head, selected.query, LossHeads::head},
      method_.lists(), other_.lists());
  is_row_fresh_ = row.fresh;
  if (row.fresh) row_ = row.value;
  if (row.failed()) {
    row_problem_ = row.status.error;
    row_.reset();
  }
  busy_ = busy_ || row.is_pending();
}

std::optional<KeptKeys> TokenFeed::keys(bool of_other) const {
  const MethodOfText& method = of_other ? other_ : method_;
  const auto lists = method.lists().fresh();
  if (!lists || !is_row_fresh_) return std::nullopt;
  return KeptKeys{method.name(), budget_words(method.lists().request().budget),
                  of_other ? row_->other_outcomes : row_->outcomes,
                  lists->layer(row_->row.layer)->is_dense()};
}

void TokenFeed::ask_search(const Session& session, const Open& document,
                           const std::string& needle) {
  if (needle.empty() || !document->has_text()) {
    found_.reset();
    return;
  }
  const auto found = search_.ask(
      session.bench(), document->key() + "find/" + needle,
      {"Searching", Lane::quick, /*urgent=*/true},
      [document, needle](JobContext&) { return find_text(document->token_bytes(), needle); });
  if (found.fresh) found_ = found.value;
  busy_ = busy_ || found.is_pending();
}

}  // namespace kvscope::gui
