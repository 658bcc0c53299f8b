// The results panel's pictures: the command line's figures.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/plot/rich_text.hpp"
#include "core/base/fields_json.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"
#include "gui/panels/result_parts.hpp"
#include "gui/panels/widgets.hpp"

namespace kvscope::gui {

namespace {

constexpr float kChoicesWidth = 200.0f;  // points, right of the figure
constexpr float kBesideFrom = 640.0f;    // narrower panels have them in a popup

/// A column at the right for choices, or a button that opens them; false: nothing to draw into.
/// The figure goes to the left of it, as large as close() says.
class Choices {
 public:
  explicit Choices(const PanelContext& context)
      : beside_(ImGui::GetContentRegionAvail().x >= context.look.px(kBesideFrom)),
        width_(context.look.px(kChoicesWidth)) {
    if (beside_) {
      const ImVec2 room = ImGui::GetContentRegionAvail();
      start_ = ImGui::GetCursorPos();
      ImGui::SetCursorPosX(start_.x + room.x - width_);
      ImGui::BeginChild("choices", {width_, room.y}, false, ImGuiWindowFlags_NavFlattened);
      open_ = true;
      return;
    }
    if (ImGui::Button("Choices ▾")) ImGui::OpenPopup("choices");
    open_ = ImGui::BeginPopup("choices");
    if (open_) ImGui::PushItemWidth(width_);
    if (open_)
      ImGui::BeginChild("list", {width_ + ImGui::GetStyle().ScrollbarSize, context.look.px(320)});
  }
  bool open() const { return open_; }
  /// The cursor is where the figure begins; returns its size.
  ImVec2 close() {
    if (beside_) {
      ImGui::EndChild();
      ImGui::SetCursorPos(start_);
    } else if (open_) {
      ImGui::EndChild();
      ImGui::PopItemWidth();
      ImGui::EndPopup();
    }
    ImVec2 size = ImGui::GetContentRegionAvail();
    if (beside_) size.x -= width_ + ImGui::GetStyle().ItemSpacing.x;
    return {std::max(size.x, 1.0f), std::max(size.y, 1.0f)};
  }

 private:
  bool beside_;
  float width_;
  ImVec2 start_;
  bool open_ = false;
};

std::string axis_name(const plot::Axis& axis, const char* otherwise) {
  return axis.label.empty() ? otherwise : plot::plain_text(axis.label);
}

std::string label_of(const plot::Mark& mark) {
  return std::visit(
      [](const auto& m) -> std::string {
        if constexpr (requires { m.label; }) {
          return plot::plain_text(m.label);
        } else {
          return {};
        }
      },
      mark);
}

}  // namespace

HoverLines hit_lines(const plot::Figure& figure, const FigureHit& hit) {
  if (hit.panel >= figure.panels.size()) return {};
  const plot::Panel& panel = figure.panels[hit.panel];
  HoverLines lines;
  if (!panel.title.empty()) lines.emplace_back("panel", plot::plain_text(panel.title));
  if (hit.mark && *hit.mark < panel.marks.size()) {
    if (const std::string label = label_of(panel.marks[*hit.mark]); !label.empty()) {
      lines.emplace_back("series", label);
    }
  }
  const double x = hit.point ? hit.point_x : hit.x;
  const double y = hit.point ? hit.point_y : hit.y;
  const RowTarget target =
      hit.row && hit.col ? target_of_cell(panel, *hit.row, *hit.col) : RowTarget{};
  if (!target.empty()) {
    lines.emplace_back("cell", target.words());
  } else {
    lines.emplace_back(axis_name(panel.x, "x"), fmt::format("{:.6g}", x));
    lines.emplace_back(axis_name(panel.y, "y"), fmt::format("{:.6g}", y));
  }
  if (hit.value) {
    lines.emplace_back(panel.colour ? axis_name(panel.colour->axis, "value") : "value",
                       std::isnan(*hit.value) ? "no value" : fmt::format("{:.6g}", *hit.value));
  }
  if (hit.mark && hit.point && *hit.mark < panel.marks.size()) {
    const auto* line = std::get_if<plot::Line>(&panel.marks[*hit.mark]);
    if (line != nullptr && *hit.point < line->low.size()) {
      lines.emplace_back(
          "band", fmt::format("{:.6g} to {:.6g}", line->low[*hit.point], line->high[*hit.point]));
    }
  }
  return lines;
}

void ResultFigures::update(const Session& session, const ResultPtr& result) {
  if (possible_for_ == result && possible_at_ == session.revision()) return;
  const auto before = std::move(possible_);
  possible_ = possible_figures(session.results(), result);
  // What was chosen in other places stays as long as it is open.
  for (PossibleFigure& figure : possible_) {
    for (const PossibleFigure& old : before) {
      if (old.kind.name != figure.kind.name || possible_for_ != result) continue;
      for (std::size_t i = 0; i < std::min(old.chosen.size(), figure.chosen.size()); ++i) {
        const auto& candidates = figure.candidates[i];
        const bool is_there = std::ranges::find(candidates, old.chosen[i]) != candidates.end();
        if (is_there) figure.chosen[i] = old.chosen[i];
      }
    }
  }
  if (possible_for_ != result) failed_kinds_.clear();
  possible_for_ = result;
  possible_at_ = session.revision();
}

void ResultFigures::draw_choices(PanelContext& context, PossibleFigure& figure) {
  for (std::size_t i = 0; i < figure.chosen.size(); ++i) {
    const auto& candidates = figure.candidates[i];
    if (figure.kind.kinds.size() < 2 || candidates.empty()) continue;
    ImGui::TextDisabled("%s", fmt::format("{} result", figure.chosen[i]->info().kind).c_str());
    ImGui::SetNextItemWidth(-1.0f);
    if (ImGui::BeginCombo(fmt::format("##result{}", i).c_str(),
                          file_name(figure.chosen[i]).c_str())) {
      for (const ResultPtr& candidate : candidates) {
        const std::string label =
            fmt::format("{}##{}", file_name(candidate), result_key(candidate));
        if (ImGui::Selectable(label.c_str(), candidate == figure.chosen[i])) {
          figure.chosen[i] = candidate;
        }
      }
      ImGui::EndCombo();
    }
  }
  field_controls(options_, [&known = figure.kind.options](const Field& field) {
    const bool matters =
        field.name == "title" || std::ranges::find(known, field.name) != known.end();
    return matters ? field : Field{};
  });
  ImGui::Dummy({0, context.look.px(4)});
  if (!shown_ || !figure.missing.empty()) return;
  for (const std::string& sentence : shown_->figure.caption)
    coloured_words(context.look.muted, sentence);
}

bool ResultFigures::show(PanelContext& context, const std::string& key, ImVec2 size,
                         const FigureInput& input, const PossibleFigure& figure) {
  const auto view =
      slot_.ask(context.session.bench(), key, {"Figure " + kind_, Lane::quick, /*urgent=*/true},
                [input, kind = figure.kind, keep = figure.chosen](JobContext&) {
                  return MadeFigure{make_figure(kind, input)};
                });
  busy_ = view.is_pending();
  // A failure names the choice that is wrong: an older picture would hide it.
  failed_ = view.failed();
  if (failed_) {
    if (shown_) context.requests.redraw = true;  // its caption, drawn before, goes
    shown_.reset();
    if (error_place(context, view.status.error)) slot_.retry();
    return false;
  }
  if (!async_place(context, slot_, view)) return false;
  if (shown_ != view.value) figure_.renew();
  shown_ = view.value;
  show_figure(context, figure_, shown_->figure, size);
  return true;
}

bool ResultFigures::try_next() {
  failed_kinds_.insert(kind_);
  const auto next = std::ranges::find_if(possible_, [&](const PossibleFigure& figure) {
    return figure.missing.empty() && !failed_kinds_.contains(figure.kind.name);
  });
  if (next == possible_.end()) return false;
  kind_ = next->kind.name;
  return true;
}

void ResultFigures::draw(PanelContext& context, const ResultPtr& result) {
  busy_ = failed_ = false;
  figure_.begin();
  update(context.session, result);
  if (possible_.empty()) {
    failed_ = true;
    empty_place(context, "No figure of the command line is about such a result",
                fmt::format("It is of kind \"{}\". Table lists its numbers.", result->info().kind));
    return;
  }
  std::vector<std::string> names;
  for (const PossibleFigure& figure : possible_) names.push_back(figure.kind.name);
  const bool is_known = std::ranges::find(names, kind_) != names.end();
  if (!is_known && !try_next()) kind_ = names.front();
  choose("##figure", kind_, names, context.look.px(150));
  PossibleFigure& figure = *std::ranges::find_if(
      possible_, [&](const PossibleFigure& candidate) { return candidate.kind.name == kind_; });
  ImGui::SameLine();
  if (kind_ == "answer") {
    if (ImGui::Button("Put keys back")) context.requests.show_panel = "answer";
    help_tooltip("Puts blamed layers, heads or keys back and answers again.");
    ImGui::SameLine();
  }
  ImGui::TextDisabled("%s", figure.kind.shows.c_str());

  // Words for a figure that has no such choice are kept for the next one, but not handed over.
  FigureOptions mine;
  std::string key = "result-figure/" + kind_;
  FigureInput input;
  for (const ResultPtr& chosen : figure.chosen) {
    input.results.push_back(chosen.get());
    key += "/" + result_key(chosen);
  }
  Choices choices(context);
  if (choices.open()) draw_choices(context, figure);
  const ImVec2 size = choices.close();
  if (!figure.missing.empty()) {
    failed_ = true;
    empty_place(context, "Another result is needed", figure.missing);
    return;
  }
  const auto given = fields_to_json(options_);
  auto wanted = fields_to_json(mine);
  for (const std::string& option : figure.kind.options) wanted[option] = given[option];
  wanted["title"] = given["title"];
  fields_from_json(wanted, mine);
  input.options = mine;
  key += json_text(wanted);
  const bool is_shown = show(context, key, size, input, figure);
  const auto& hit = is_shown ? figure_.hit() : std::nullopt;
  if (!hit) return;
  const RowTarget target =
      hit->row && hit->col ? target_of_cell(shown_->figure.panels[hit->panel], *hit->row, *hit->col)
                           : RowTarget{};
  detail_tooltip(hit_lines(shown_->figure, *hit), Pointed::at(target));
  if (hit->clicked) go_to(context.session, target, "results click");
}

nlohmann::ordered_json ResultFigures::options() const {
  auto json = fields_to_json(options_);
  json["figure"] = kind_;
  return json;
}

void ResultFigures::set_options(const nlohmann::ordered_json& json) {
  fields_from_json(json, options_);
  if (json.contains("figure") && json["figure"].is_string()) kind_ = json["figure"];
}

}  // namespace kvscope::gui
