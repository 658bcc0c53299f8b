// What dropped keys cost an answer, token by token, and the layers, heads and keys that are to
// blame: a click puts them back, and the program answers again.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <imgui.h>

#include <algorithm>

#include "core/base/csv_text.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/number_text.hpp"
#include "core/trace/result.hpp"
#include "gui/model/results/answer_view.hpp"
#include "gui/model/tokens/token_text.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/result_parts.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr std::size_t kMostBlamed = 40;  // lines of a list

class AnswerPanel final : public AskingPanel {
 public:
  PanelInfo info() const override {
    return {"answer", "Put back",
            "What dropped keys cost an answer (kvscope explain): a click on a blamed "
            "layer, head or key puts it back, and the next tokens change.",
            Extent::trace};
  }

  void draw(PanelContext& context) override {
    busy_ = false;
    places_.clear();
    choose_result(context.session);
    if (!result_) {
      empty_place(context, "No explanation of an answer is open",
                  "kvscope explain --out FILE.h5 makes one (Run: explain); it opens here.");
      return;
    }
    if (!problem_.empty() || prompts_.empty()) {
      empty_place(context, "This result explains no answer", problem_);
      return;
    }
    choose_prompt(context);
    const ExplainedPrompt& prompt = prompts_[prompt_];
    coloured_words(context.look.muted, prompt.sentence);
    ask_answer(context);
    ImGui::Dummy({0, context.look.px(4)});
    draw_answers(context, prompt);
    ImGui::Dummy({0, context.look.px(6)});
    draw_blamed(context, prompt);
  }

  std::optional<std::string> csv() const override {
    if (!result_ || prompts_.empty()) return std::nullopt;
    std::string csv =
        "token,dense,under_method,put_back,dense_surprise,surprise,put_back_surprise\n";
    const auto& tokens = shown_tokens();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const AnswerToken& token = tokens[i];
      csv += fmt::format("{},{},{},{},{},{},{}\n", i + 1, csv_field(token.dense),
                         csv_field(token.sparse), csv_field(token.mended), token.dense_surprise,
                         token.sparse_surprise,
                         answer_ ? fmt::format("{}", token.mended_surprise) : std::string());
    }
    return csv;
  }
  Places landmarks() const override { return places_; }

 private:
  void choose_result(const Session& session) {
    ResultPtr found;
    for (const ResultPtr& result : session.results()) {
      if (result->info().kind == kAnswerKind) found = result;
    }
    if (found == result_) return;
    result_ = found;
    prompts_.clear();
    problem_.clear();
    choose(0);
    slot_.clear();
    if (!result_) return;
    const auto& config = result_->info().config;
    method_ = kvscope::text_at(config, "selector") + " " + kvscope::text_at(config, "budget");
    try {
      prompts_ = explained_prompts(*result_);
      const auto is_explained = [](const ExplainedPrompt& one) { return !one.layers.empty(); };
      const auto first = std::ranges::find_if(prompts_, is_explained);
      if (first != prompts_.end()) choose(static_cast<std::size_t>(first - prompts_.begin()));
    } catch (const Error& error) {
      problem_ = error.what();
    }
  }

  void choose(std::size_t prompt) {
    prompt_ = prompt;
    back_.clear();
    answer_.reset();
  }

  void choose_prompt(PanelContext& context) {
    ImGui::SetNextItemWidth(context.look.px(220));
    if (ImGui::BeginCombo("##prompt", prompts_[prompt_].name.c_str())) {
      for (std::size_t i = 0; i < prompts_.size(); ++i) {
        const std::string words = fmt::format("{}##{}", prompts_[i].name, i);
        if (ImGui::Selectable(words.c_str(), i == prompt_) && i != prompt_) choose(i);
      }
      ImGui::EndCombo();
    }
    ImGui::SameLine();
    ImGui::BeginDisabled(back_.empty());
    if (ImGui::Button("Take all out again")) choose(prompt_);
    ImGui::EndDisabled();
    ImGui::SameLine();
    std::vector<std::string> names;
    for (const PutBack& what : back_) names.push_back(what.words());
    ImGui::AlignTextToFramePadding();
    one_line(names.empty() ? "Nothing is put back."
                           : fmt::format("Back: {}", fmt::join(names, "; ")));
  }

  void ask_answer(PanelContext& context) {
    if (back_.empty()) {
      slot_.retry();
      return;
    }
    std::vector<std::string> words;
    try {
      words = put_back_words(*result_, prompt_, back_);
    } catch (const Error& error) {
      coloured_words(context.look.error, error.what());
      return;
    }
    const auto view = ask(context, slot_,
                          fmt::format("{}put-back/{}", result_key(result_), fmt::join(words, " ")),
                          {"Putting keys back", Lane::programs},
                          [program = context.runs.program(), words](JobContext& job) {
                            return run_put_back(program, words, job);
                          });
    answer_ = view.fresh ? view.value : nullptr;
    if (!view.fresh) report_job(context, slot_, view.status, /*has_value=*/true, /*fresh=*/false);
    if (view.failed()) coloured_words(context.look.error, view.status.error);
  }

  const std::vector<AnswerToken>& shown_tokens() const {
    return answer_ ? answer_->tokens : prompts_[prompt_].tokens;
  }

  // ---- the answer ----

  void draw_answers(PanelContext& context, const ExplainedPrompt& prompt) {
    const auto& tokens = shown_tokens();
    draw_line(context, "full attention", tokens, &AnswerToken::dense, prompt.token);
    draw_line(context, method_.c_str(), tokens, &AnswerToken::sparse, prompt.token);
    if (answer_) draw_line(context, "put back", tokens, &AnswerToken::mended, prompt.token);
    if (!answer_) return;
    coloured_words(context.look.muted, "Each fed its own tokens:");
    wrapped_words(fmt::format("the method: “{}”", printable(answer_->sparse)));
    wrapped_words(fmt::format("put back: “{}”", printable(answer_->mended)));
  }

  /// One answer in running text; what differs from full attention is marked, the explained token
  /// framed.
  void draw_line(PanelContext& context, const char* name, const std::vector<AnswerToken>& tokens,
                 std::string AnswerToken::*text, std::size_t explained) {
    const Look& look = context.look;
    const float indent =
        std::max(look.px(110), ImGui::CalcTextSize(method_.c_str()).x + look.px(12));
    ImGui::TextDisabled("%s", name);
    ImGui::SameLine(indent);
    const float right = ImGui::GetWindowContentRegionMax().x;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::string words = printable(tokens[i].*text);
      const float width = ImGui::CalcTextSize(words.c_str()).x;
      if (i > 0) {
        ImGui::SameLine(0, 0);
        if (ImGui::GetCursorPosX() + width > right) {
          ImGui::NewLine();
          ImGui::SameLine(indent);
        }
      }
      const ImVec2 at = ImGui::GetCursorScreenPos();
      const ImVec2 end{at.x + width, at.y + ImGui::GetTextLineHeight()};
      const bool differs = tokens[i].*text != tokens[i].dense;
      if (differs)
        ImGui::GetWindowDrawList()->AddRectFilled(
            at, end, packed(plot::with_alpha(plot::colour_from_rgb(0xE69F00), 0.45)));
      if (i == explained)
        ImGui::GetWindowDrawList()->AddRect(at, end, packed(look.accent), 0.0f, 0, look.px(1.5f));
      ImGui::TextUnformatted(words.c_str());
      if (ImGui::IsItemHovered()) detail_tooltip(token_lines(tokens[i], i));
    }
  }

  HoverLines token_lines(const AnswerToken& token, std::size_t place) const {
    const auto said = [](const std::string& text, double surprise) {
      return fmt::format("“{}”, surprise of full attention's {} nats", printable(text),
                         number_text(surprise, 3));
    };
    HoverLines lines = {{"token", fmt::format("{}", place + 1)},
                        {"full attention", said(token.dense, token.dense_surprise)},
                        {"the method", said(token.sparse, token.sparse_surprise)}};
    if (answer_) lines.emplace_back("put back", said(token.mended, token.mended_surprise));
    return lines;
  }

  // ---- who is to blame ----

  void draw_blamed(PanelContext& context, const ExplainedPrompt& prompt) {
    const float width = ImGui::GetContentRegionAvail().x / 3.0f - context.look.px(4);
    const float height = std::max(context.look.px(80), ImGui::GetContentRegionAvail().y);
    draw_list(context, "layers", prompt.layers, {width, height});
    ImGui::SameLine();
    draw_list(context, "heads", prompt.heads, {width, height});
    ImGui::SameLine();
    draw_list(context, "keys", prompt.keys, {width, height});
  }

  void draw_list(PanelContext& context, const char* name, const std::vector<BlamedKeys>& all,
                 ImVec2 size) {
    ImGui::BeginChild(name, size, false, ImGuiWindowFlags_NavFlattened);
    ImGui::TextDisabled("%s", fmt::format("{}: comes back", name).c_str());
    for (std::size_t i = 0; i < std::min(all.size(), kMostBlamed); ++i) {
      const BlamedKeys& one = all[i];
      const auto same = [&](const PutBack& what) {
        return what.layer == one.what.layer && what.q_head == one.what.q_head &&
               what.key == one.what.key;
      };
      const auto found = std::ranges::find_if(back_, same);
      const bool is_back = found != back_.end();
      std::string words = fmt::format("{}  {}", recovered_text(one.recovered), one.what.words());
      if (!one.text.empty()) words += fmt::format(" “{}”", printable(one.text));
      words += fmt::format("##{}", i);
      if (ImGui::Selectable(words.c_str(), is_back)) {
        is_back ? static_cast<void>(back_.erase(found)) : back_.push_back(one.what);
        if (back_.empty()) answer_.reset();
        context.requests.redraw = true;
      }
      help_tooltip(
          fmt::format("{}: alone it brings {} of the loss back; the model then says “{}”. "
                      "A click puts it back (or takes it out again) and runs on.",
                      one.what.words(), recovered_text(one.recovered), printable(one.says)));
      const ImVec2 low = ImGui::GetItemRectMin();
      const ImVec2 high = ImGui::GetItemRectMax();
      places_.emplace_back("put back " + one.what.words(),
                           ImVec2{low.x + context.look.px(20), 0.5f * (low.y + high.y)});
    }
    ImGui::EndChild();
  }

  ResultPtr result_;
  std::string method_;  // with its budget
  std::vector<ExplainedPrompt> prompts_;
  std::string problem_;
  std::size_t prompt_ = 0;
  std::vector<PutBack> back_;
  AsyncValue<PutBackAnswer> slot_;
  std::shared_ptr<const PutBackAnswer> answer_;  // null: nothing is back, or it is computed
  Places places_;
};

}  // namespace

std::unique_ptr<Panel> make_answer_panel() {
  return std::make_unique<AnswerPanel>();
}

}  // namespace kvscope::gui
