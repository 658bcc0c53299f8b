// The token strip: the text, shaded by the attention of the chosen query, kept keys underlined.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gui/model/json_fields.hpp"
#include "gui/model/token_text.hpp"
#include "gui/panels/token_canvas.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/colour.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

constexpr float kWidthStep = 8.0f;      // pixels: lines are broken anew in such steps of the width
constexpr float kStripHeight = 170.0f;  // points: below, a second line of words takes too much
constexpr float kWide = 560.0f;         // points: from here on the words stand beside the search

struct TokensOptions {
  WeightScale scale = WeightScale::log;
  bool mask_sinks = false;
  bool compare = false;
  bool search_sets_key = false;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit(Field{"scale", "how weights become shades"}, self.scale);
    visit(Field{"mask-sinks", "leave the first tokens out of the shading"}, self.mask_sinks);
    visit(Field{"compare", "underline what the other method keeps as well"}, self.compare);
    visit(Field{"search-sets-key", "search goes to keys instead of queries"}, self.search_sets_key);
  }
};

/// Lines and the texts they were made of.
struct LaidOut {
  std::shared_ptr<const TokenTexts> texts;
  TokenLines lines;
  std::size_t bytes() const { return lines.bytes(); }
};

struct Found {
  std::vector<std::size_t> positions;
  std::size_t bytes() const { return sizeof *this + positions.size() * sizeof(std::size_t); }
};

/// What a method keeps, asked for anew in every frame.
struct KeptSlot {
  Slot<KeptRows> slot;
  KeptQuestion question;
  std::shared_ptr<const KeptRows> rows;  // of the question's trace; null until there are some
  std::string problem;
  KeptKeys keys;
  bool busy = false;

  void ask(const Session& session, const std::string& method, bool is_new) {
    if (is_new) {
      const auto before = question.trace;
      question = kept_question(session, method);
      if (before != question.trace) rows.reset();
    }
    busy = false;
    problem = question.obstacle;
    if (!problem.empty()) {
      slot.retry();
      rows.reset();
    } else {
      const auto view = slot.ask(
          session.bench(), question.key, {fmt::format("Keys that {} keeps", method), Lane::heavy},
          [question = question](JobContext& job) {
            return kept_rows(question.trace->source(),
                             question.draft ? &question.draft->source() : nullptr, question.request,
                             job);
          });
      if (view.fresh) rows = view.value;
      if (view.failed()) problem = view.status.error;
      if (view.failed()) rows.reset();
      busy = !view.fresh && !view.status.is_over();
    }
    keys = rows ? kept_keys(*rows, question.request, method, session.selection().query)
                : KeptKeys{method, {}, nullptr, false};
  }
};

Advances advances_of(const ImFont& font, const std::string& alphabet) {
  Advances advances;
  const auto width = [&](char32_t c) {
    return font.GetCharAdvance(c <= 0xffff ? static_cast<ImWchar>(c) : ImWchar{0xfffd});
  };
  for (const char32_t c : characters_of(alphabet)) advances.known[c] = width(c);
  advances.other = width(0xfffd);
  return advances;
}

}  // namespace

class TokensPanel final : public Panel {
 public:
  PanelInfo info() const override {
    return {"tokens", "Tokens",
            "The text, shaded by how much the query looks at it; underlined is what the method "
            "keeps. Click a token: the query; right or Shift+click: the key."};
  }

  void controls(PanelContext& context) override {
    segmented("scale", options_.scale);
    help_tooltip(
        "How weights become shades: four decades down from the largest, in proportion "
        "to it, or by rank.");
    ImGui::SameLine();
    ImGui::Checkbox("mask sinks", &options_.mask_sinks);
    help_tooltip(fmt::format(
        "Leaves the first {} positions out of the shading, which many heads look at most.",
        kSinkTokens));
    ImGui::SameLine();
    ImGui::Checkbox(fmt::format("against {}###compare", context.session.selection().other).c_str(),
                    &options_.compare);
    help_tooltip("Underlines what the other method keeps as well, dashed.");
  }

  void draw(PanelContext& context) override {
    busy_ = false;
    const auto document = context.session.document();
    if (document != document_.lock()) forget();
    document_ = document;
    if (needs_trace(context)) return;
    ask(context, document);
    draw_toolbar(context, *document);
    draw_text(context, *document);
  }

  std::optional<plot::Figure> figure() const override {
    const auto document = document_.lock();
    if (!document || !row_) return std::nullopt;
    return token_figure(figure_input(*document));
  }

  std::optional<std::string> csv() const override {
    const auto document = document_.lock();
    if (!document || !row_) return std::nullopt;
    return token_csv(figure_input(*document));
  }

  nlohmann::ordered_json options() const override { return fields_to_json(options_); }
  void set_options(const nlohmann::ordered_json& json) override {
    TokensOptions wanted = options_;
    fields_from_json(json, wanted);
    options_ = wanted;
  }

  bool is_busy() const override { return busy_; }

 private:
  void forget() {
    row_.reset();
    laid_out_.reset();
    found_.reset();
    seen_query_.reset();
    revision_.reset();
  }

  TokenFigureInput figure_input(const Document& document) const {
    TokenFigureInput input{document, *row_, options_.scale, options_.mask_sinks, {}};
    if (kept_.rows) input.kept.push_back(kept_.keys);
    const bool is_another = other_.question.request.spec != kept_.question.request.spec;
    if (options_.compare && other_.rows && is_another) input.kept.push_back(other_.keys);
    return input;
  }

  void ask(PanelContext& context, const std::shared_ptr<const Document>& document) {
    Session& session = context.session;
    const bool is_new = revision_ != session.revision();
    revision_ = session.revision();
    ask_text(context, document);
    ask_row(session, document);
    kept_.ask(session, session.selection().selector, is_new);
    if (options_.compare) other_.ask(session, session.selection().other, is_new || !compared_);
    compared_ = options_.compare;
    ask_search(session, document);
    busy_ = busy_ || kept_.busy || (options_.compare && other_.busy);
  }

  void ask_text(PanelContext& context, const std::shared_ptr<const Document>& document) {
    const Workbench bench = context.session.bench();
    const auto texts = texts_.ask(
        bench, document->key() + "texts", {"Reading the text", Lane::quick, /*urgent=*/true},
        [document](JobContext& job) { return TokenTexts::of(*document, job); });
    text_status_ = texts.status;
    if (!texts.fresh) {
      busy_ = busy_ || !texts.status.is_over();
      return;
    }
    if (!context.fonts.require(texts.value->alphabet())) busy_ = true;
    const ImFont& font = *context.fonts.body();
    if (advances_of_ != texts.value || generation_ != context.fonts.generation()) {
      advances_ = std::make_shared<const Advances>(advances_of(font, texts.value->alphabet()));
      advances_of_ = texts.value;
      generation_ = context.fonts.generation();
    }
    const float room =
        TokenCanvas::text_width(context, ImGui::GetContentRegionAvail().x, texts.value->size());
    const LineRequest request{std::max(kWidthStep, std::floor(room / kWidthStep) * kWidthStep),
                              TokenCanvas::padding(context.look)};
    const auto lines =
        lines_.ask(bench,
                   fmt::format("{}lines/{}/{}/{}", document->key(), request.width, request.padding,
                               generation_),
                   {"Breaking lines", Lane::quick, /*urgent=*/true},
                   [texts = texts.value, advances = advances_, request](JobContext&) {
                     return LaidOut{texts, break_lines(*texts, *advances, request)};
                   });
    if (lines.value && lines.value->texts == texts.value) laid_out_ = lines.value;
    busy_ = busy_ || (!lines.fresh && !lines.status.is_over());
  }

  void ask_row(const Session& session, const std::shared_ptr<const Document>& document) {
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
    busy_ = busy_ || (!row.fresh && !row.status.is_over());
  }

  void ask_search(const Session& session, const std::shared_ptr<const Document>& document) {
    if (needle_.empty() || !document->has_text()) {
      found_.reset();
      return;
    }
    const auto found = search_.ask(session.bench(), document->key() + "find/" + needle_,
                                   {"Searching", Lane::quick, /*urgent=*/true},
                                   [document, needle = needle_](JobContext&) {
                                     return Found{find_text(document->token_bytes(), needle)};
                                   });
    if (found.fresh) found_ = found.value;
    busy_ = busy_ || (!found.fresh && !found.status.is_over());
  }

  // ---- search, and what is to be said ----

  void draw_toolbar(PanelContext& context, const Document& document) {
    const Look& look = context.look;
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const bool is_one_line = room.y < look.px(kStripHeight) || room.x > look.px(kWide);
    const bool has_focus = ImGui::IsWindowFocused(ImGuiFocusedFlags_RootAndChildWindows) ||
                           ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows);
    const bool wants_search =
        has_focus && ImGui::GetIO().KeyCtrl && ImGui::IsKeyPressed('F', /*repeat=*/false);
    draw_search(context, document, wants_search);
    ImGui::SameLine();
    draw_go_to(context, document);
    if (is_one_line) ImGui::SameLine(0, look.px(14));
    draw_words(context);
  }

  void draw_search(PanelContext& context, const Document& document, bool wants_focus) {
    const Look& look = context.look;
    Session& session = context.session;
    ImGui::BeginDisabled(!document.has_text());
    if (wants_focus) ImGui::SetKeyboardFocusHere();
    ImGui::SetNextItemWidth(look.px(150));
    const bool entered = ImGui::InputTextWithHint(
        "##search", document.has_text() ? "search (Ctrl+F)" : "no text", &needle_,
        ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_AutoSelectAll);
    const bool forward = !ImGui::GetIO().KeyShift;
    if (entered) {
      go_to_match(session, forward);
      ImGui::SetKeyboardFocusHere(-1);
    }
    help_tooltip("Enter goes to the next match, Shift+Enter to the one before.");
    ImGui::EndDisabled();
    if (needle_.empty() || !document.has_text()) return;
    ImGui::SameLine();
    if (ImGui::ArrowButton("before", ImGuiDir_Left)) go_to_match(session, /*forward=*/false);
    ImGui::SameLine(0, look.px(2));
    if (ImGui::ArrowButton("after", ImGuiDir_Right)) go_to_match(session, /*forward=*/true);
    ImGui::SameLine();
    ImGui::AlignTextToFramePadding();
    if (found_) {
      const std::string words = match_words(found_->positions, search_place(session));
      ImGui::TextDisabled("%s", words.c_str());
    } else {
      ImGui::TextDisabled("...");
    }
    ImGui::SameLine();
    int sets = options_.search_sets_key ? 1 : 0;
    static constexpr std::array<std::string_view, 2> kSets = {"query", "key"};
    if (segmented("sets", sets, kSets)) options_.search_sets_key = sets == 1;
    help_tooltip("What becomes the match: the query, or the key that it looks at.");
  }

  Index search_place(const Session& session) const {
    const Selection& selected = session.selection();
    return options_.search_sets_key ? selected.key.value_or(-1) : selected.query;
  }

  void go_to_match(Session& session, bool forward) {
    if (!found_) return;
    std::vector<std::size_t> positions = found_->positions;
    if (options_.search_sets_key) {
      // A key cannot lie after its query.
      std::erase_if(positions, [&](std::size_t pos) {
        return static_cast<Index>(pos) > session.selection().query;
      });
    }
    const auto match = next_match(positions, search_place(session), forward);
    if (!match) return;
    session.select("token search", [&](Selection& s) {
      if (options_.search_sets_key) {
        s.key = *match;
      } else {
        s.query = *match;
      }
    });
    show_ = *match;
  }

  void draw_go_to(PanelContext& context, const Document& document) {
    ImGui::SetNextItemWidth(context.look.px(76));
    const bool entered = ImGui::InputTextWithHint(
        "##position", "position", &position_,
        ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_CharsDecimal);
    help_tooltip("Type a position and press Enter: it becomes the query.");
    if (!entered) return;
    Index pos = -1;
    std::from_chars(position_.data(), position_.data() + position_.size(), pos);
    position_.clear();
    if (pos < 0) return;
    pos = std::min(pos, document.info().n_tokens - 1);
    context.session.select("token go to", [&](Selection& s) { s.query = pos; });
    show_ = pos;
  }

  void draw_words(PanelContext& context) {
    const Look& look = context.look;
    const Selection& selected = context.session.selection();
    const UnderlineColours colours = underline_colours(look, selected.selector, selected.other);
    ImGui::AlignTextToFramePadding();
    if (!row_problem_.empty()) {
      say(look.error, row_problem_);
      return;
    }
    ImGui::BeginGroup();
    say_kept(context, kept_, colours.kept, /*dashed=*/false);
    if (options_.compare) {
      ImGui::SameLine(0, look.px(14));
      say_kept(context, other_, colours.other, /*dashed=*/true);
    }
    ImGui::EndGroup();
  }

  void say_kept(PanelContext& context, KeptSlot& kept, plot::Colour colour, bool dashed) {
    ImGui::AlignTextToFramePadding();
    underline_sample(context.look, colour, dashed);
    ImGui::SameLine(0, context.look.px(5));
    ImGui::AlignTextToFramePadding();
    if (!kept.problem.empty()) {
      say(context.look.warning, kept.problem);
    } else if (!kept.rows) {
      say(context.look.muted, fmt::format("computing what {} keeps...", kept.keys.method));
    } else {
      say(context.look.ink, kept_words(kept.keys, context.session.selection().query) +
                                (kept.busy ? " (computing...)" : ""));
    }
  }

  /// One line, cut where the window ends; whole in a tooltip.
  static void say(plot::Colour colour, const std::string& words) {
    ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
    ImGui::TextUnformatted(words.c_str());
    ImGui::PopStyleColor();
    if (ImGui::GetItemRectMax().x > ImGui::GetWindowPos().x + ImGui::GetWindowWidth()) {
      help_tooltip(words);
    }
  }

  // ---- the text ----

  void draw_text(PanelContext& context, const Document& document) {
    if (!laid_out_) {
      const SlotAction action = job_place(context, text_status_, /*has_value=*/false,
                                          /*fresh=*/false);
      if (action == SlotAction::cancel) texts_.cancel();
      if (action == SlotAction::retry) texts_.retry();
      return;
    }
    Session& session = context.session;
    const Selection selected = session.selection();
    const Shading shading = row_ ? Shading(*row_, options_.scale, options_.mask_sinks) : Shading();
    TokenMarks marks;
    marks.query = selected.query;
    marks.key = selected.key;
    marks.visible = {row_ && row_->row.query == selected.query ? row_->row.visible.begin : 0,
                     selected.query + 1};
    if (row_) marks.shading = &shading;
    if (kept_.rows) marks.kept = &kept_.keys;
    if (options_.compare && other_.rows) marks.other = &other_.keys;
    if (found_) marks.found = &found_->positions;

    if (seen_query_ != selected.query) show_ = selected.query;
    if (seen_key_ != selected.key && selected.key) show_ = selected.key;
    const TokenEvents events =
        canvas_.draw(context, *laid_out_->texts, laid_out_->lines, marks,
                     underline_colours(context.look, selected.selector, selected.other), show_);
    show_.reset();
    seen_query_ = selected.query;
    seen_key_ = selected.key;
    if (events.hovered) tooltip(document, *events.hovered);
    if (events.query) {
      session.select("token click", [&](Selection& s) { s.query = *events.query; });
      seen_query_ = session.selection().query;
    }
    if (events.key) {
      session.select("token key click", [&](Selection& s) { s.key = *events.key; });
      seen_key_ = session.selection().key;
    }
  }

  void tooltip(const Document& document, Index pos) const {
    std::vector<std::pair<std::string, std::string>> lines;
    lines.emplace_back("position", fmt::format("{}", pos));
    lines.emplace_back(
        "id", fmt::format("{}", document.source().tokens()[static_cast<std::size_t>(pos)]));
    if (document.has_text()) {
      lines.emplace_back("text", fmt::format("“{}”", document.token_text(pos)));
    }
    if (row_) {
      const Index rank = row_->rank_of(pos);
      if (rank == 0) {
        lines.emplace_back(
            "weight", pos > row_->row.query ? "none: after the query" : "none: outside the window");
      } else {
        lines.emplace_back("weight", weight_words(row_->row.prob(pos)));
        lines.emplace_back("rank", fmt::format("{} of {}", rank, row_->rank.size()));
        tell_kept(lines, kept_, pos);
        if (options_.compare) tell_kept(lines, other_, pos);
      }
    }
    detail_tooltip(lines);
  }

  static void tell_kept(std::vector<std::pair<std::string, std::string>>& lines,
                        const KeptSlot& kept, Index pos) {
    if (!kept.rows || kept.keys.row == nullptr) return;
    lines.emplace_back(kept.keys.method, kept.keys.holds(pos) ? "kept" : "left out");
  }

  TokensOptions options_;
  std::weak_ptr<const Document> document_;
  std::optional<std::uint64_t> revision_;
  bool compared_ = false;
  bool busy_ = false;

  Slot<TokenTexts> texts_;
  JobStatus text_status_;
  std::shared_ptr<const Advances> advances_;
  std::shared_ptr<const TokenTexts> advances_of_;
  std::uint64_t generation_ = 0;
  Slot<LaidOut> lines_;
  std::shared_ptr<const LaidOut> laid_out_;
  TokenCanvas canvas_;

  Slot<RankedRow> rows_;
  std::shared_ptr<const RankedRow> row_;  // of the open document; perhaps of the selection before
  std::string row_problem_;
  KeptSlot kept_;
  KeptSlot other_;

  std::string needle_;
  Slot<Found> search_;
  std::shared_ptr<const Found> found_;
  std::string position_;  // what is typed into "position"
  std::optional<Index> seen_query_;
  std::optional<Index> seen_key_;
  std::optional<Index> show_;
};

std::unique_ptr<Panel> make_tokens_panel() {
  return std::make_unique<TokensPanel>();
}

}  // namespace kvscope::gui
