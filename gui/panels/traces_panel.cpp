// The open traces: which is selected and which is second, what is odd about them, their layers and
// heads, their facts.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <numeric>

#include "analysis/base/describe_trace.hpp"
#include "analysis/figures/maps.hpp"
#include "core/base/nan.hpp"
#include "gui/model/results/compact_figure.hpp"
#include "gui/model/traces/tour_facts.hpp"
#include "gui/model/traces/trace_facts.hpp"
#include "gui/panels/accent_marks.hpp"
#include "gui/panels/panel_base.hpp"
#include "gui/panels/widgets.hpp"
#include "gui/render/fonts.hpp"

namespace kvscope::gui {

namespace {

using plot::with_alpha;

constexpr std::size_t kMostSentences = 8;

void coloured(plot::Colour colour, const std::string& text) {
  ImGui::PushStyleColor(ImGuiCol_Text, packed(colour));
  ImGui::TextUnformatted(text.c_str());
  ImGui::PopStyleColor();
}

/// A small word to press, without a frame; in the accent colour while it is on.
bool word_button(const PanelContext& context, const char* label, bool on) {
  ImGui::PushStyleColor(ImGuiCol_Button, packed(on ? with_alpha(context.look.accent, 0.22)
                                                   : with_alpha(context.look.raised, 0.0)));
  ImGui::PushStyleColor(ImGuiCol_Text, packed(on ? context.look.accent : context.look.muted));
  const bool pressed = ImGui::SmallButton(label);
  ImGui::PopStyleColor(2);
  return pressed;
}

/// Layers x query heads of the model: how much of its attention a head retrieves; what was not
/// recorded is masked. Rules part the KV groups; kinds of layers stand beside their numbers.
plot::Figure grid_figure(const HeadGrid& grid,
                         const std::map<std::pair<Index, Index>, double>& shades) {
  std::vector<double> layers(grid.layers.size());
  std::vector<double> heads(grid.recorded_heads.size());
  std::iota(layers.begin(), layers.end(), 0.0);
  std::iota(heads.begin(), heads.end(), 0.0);
  const auto n_heads = static_cast<Index>(heads.size());
  std::vector<double> values;
  for (const GridLayer& layer : grid.layers) {
    for (Index head = 0; head < n_heads; ++head) {
      const auto shade = shades.find({layer.layer, head});
      const double measured = shade == shades.end() ? kNan : shade->second;
      const double value = shades.empty() ? 0.0 : measured;  // before the atlas: of no colour
      values.push_back(grid.is_recorded(layer.layer, head) ? value : kNan);
    }
  }
  plot::ColourAxis colour{.axis = {.range = plot::Range{}}, .show_bar = false};
  if (shades.empty()) {
    colour.axis.range = plot::Range{-1.0, 1.0};
    colour.map = plot::ColourMap::diverging;
  }
  plot::Panel panel = figures::head_panel(layers, heads, values, colour);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!grid.layers[i].marks.empty()) panel.y.ticks[i].label += " " + grid.layers[i].marks;
  }
  for (Index head = grid.group; grid.group > 1 && head < n_heads; head += grid.group)
    panel.marks.emplace_back(plot::Rule{.kind = plot::Rule::Kind::vertical,
                                        .at = static_cast<double>(head),
                                        .tone = {plot::Role::neutral, 0}});
  return compact_figure({.panels = {std::move(panel)}}, "query head", "layer");
}

}  // namespace

class TracesPanel final : public Panel {
 public:
  PanelInfo info() const override {
    return {"traces", "Traces",
            "The open traces. Click one to show it, a cell to go to that layer and head."};
  }

  void draw(PanelContext& context) override {
    const auto document = context.session.document();
    update_atlas(context.session.bench(), document.get());
    drawn_.begin();
    if (document == nullptr) {
      grid_ = {};
      grid_of_.clear();
      if (context.session.is_opening()) {
        coloured_words(context.look.muted, "Opening...");
      } else {
        needs_trace(context);
      }
      return;
    }
    draw_list(context);
    draw_warnings(context, *document);
    draw_grid(context, *document);
    draw_facts(context, *document);
  }

  Places landmarks() const override {
    Places places;
    for (const GridLayer& layer : grid_.layers) {
      for (std::size_t head = 0; head < grid_.recorded_heads.size(); ++head) {
        places.add(fmt::format("head {} {}", layer.layer, head),
                   drawn_.place(0, static_cast<double>(head) + 0.5,
                                static_cast<double>(layer.layer) + 0.5));
      }
    }
    return places;
  }

 private:
  void draw_list(PanelContext& context) {
    Session& session = context.session;
    std::optional<Index> closed;
    std::optional<Index> chosen;
    const auto& documents = session.documents();
    for (std::size_t i = 0; i < documents.size(); ++i) {
      ImGui::PushID(static_cast<int>(i));
      draw_entry(context, static_cast<Index>(i), *documents[i], chosen, closed);
      ImGui::PopID();
    }
    if (session.is_opening()) coloured(context.look.muted, "Opening...");
    if (chosen) choose_trace(session, *chosen);
    if (closed) session.close_trace(*closed);
  }

  /// What was looked at becomes the second trace where the second one is chosen: they change
  /// places.
  static void choose_trace(Session& session, Index trace) {
    const Index before = session.selection().trace;
    if (trace == before) return;
    const bool swaps = session.second_index() == trace;
    session.select("trace list", [&](Selection& s) { s.trace = trace; });
    if (swaps) session.set_second(before);
  }

  void draw_entry(PanelContext& context, Index index, const Document& document,
                  std::optional<Index>& chosen, std::optional<Index>& closed) {
    const Look& look = context.look;
    Session& session = context.session;
    const bool is_selected = session.selection().trace == index;
    const bool is_second = session.second_index() == index && !is_selected;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x;
    const float pad = look.px(6);
    ImGui::PushFont(context.fonts.small());
    const float small_line = ImGui::GetTextLineHeight();
    const ImVec2 frame = ImGui::GetStyle().FramePadding;
    const float tools = ImGui::CalcTextSize("2nd×").x + 4 * frame.x + look.px(4);
    ImGui::PopFont();
    const float height = ImGui::GetTextLineHeight() + small_line + look.px(8);
    if (ImGui::InvisibleButton("entry", {std::max(1.0f, width - tools), height})) chosen = index;
    landmark(fmt::format("trace {}", index));
    const bool hovered = ImGui::IsItemHovered();
    if (hovered) entry_tooltip(document);
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 end{at.x + width, at.y + height};
    if (is_selected) {
      list->AddRectFilled(at, end, packed(with_alpha(look.accent, 0.13)), look.px(4));
      list->AddRectFilled(at, {at.x + look.px(3), end.y}, packed(look.accent), look.px(1.5f));
    } else if (hovered) {
      list->AddRectFilled(at, end, packed(with_alpha(look.accent, 0.07)), look.px(4));
    }
    const float room = width - tools - pad - look.px(2);
    list->AddText({at.x + pad, at.y + look.px(3)}, packed(look.ink),
                  fitting(document.name(), room).c_str());
    ImGui::PushFont(context.fonts.small());
    const bool is_whole = document.info().status == TraceStatus::complete;
    list->AddText({at.x + pad, at.y + look.px(4) + ImGui::GetFontSize() * 1.18f},
                  packed(is_whole ? look.muted : look.warning),
                  fitting(trace_summary(document), width - 2 * pad).c_str());
    ImGui::SetCursorScreenPos({end.x - tools, at.y + look.px(4)});
    if (is_selected) {
      ImGui::Dummy({ImGui::CalcTextSize("2nd").x + 2 * frame.x, small_line});
    } else {
      const bool pressed = word_button(context, "2nd", is_second);
      landmark(fmt::format("second {}", index));
      if (pressed) {
        session.set_second(is_second ? std::nullopt : std::optional<Index>(index));
      }
      help_tooltip(is_second ? "This is the second trace: the draft model of SpecAttn and layer "
                               "maps, or the one compared with. Click to leave it out."
                             : "Use as the second trace: the draft model of SpecAttn and layer "
                               "maps, or the one compared with.");
    }
    ImGui::SameLine(0, 0);
    if (word_button(context, "×", false)) closed = index;
    landmark(fmt::format("close {}", index));
    help_tooltip("Close this trace");
    ImGui::PopFont();
    ImGui::SetCursorScreenPos({at.x, end.y + look.px(2)});
  }

  static void entry_tooltip(const Document& document) {
    const TraceInfo& info = document.info();
    detail_tooltip(
        {{"file", document.path().string()},
         {"model", info.model_name},
         {"tokens", fmt::format("{}, of them {} in the prompt", info.n_tokens, info.n_prompt)},
         {"status", status_words(info, document.file().planned())}});
  }

  void draw_warnings(PanelContext& context, const Document& document) {
    const auto& warnings = document.warnings();
    const std::size_t n = warnings.size();
    if (n == 0) return;
    // What is new is shown, even if what was there had been put away.
    if (banner_of_ != document.key() || n_seen_ != n) {
      const bool is_same = banner_of_ == document.key();
      folded_ = (is_same && n_seen_ > n && folded_) || document.is_being_recorded();
      banner_of_ = document.key();
      n_seen_ = n;
    }
    const Look& look = context.look;
    // That a recording goes on is news, and one line of it: the heads below stay in sight.
    const bool is_news = document.is_being_recorded();
    const plot::Colour colour = is_news ? look.accent : look.warning;
    ImGui::Dummy({0, look.px(1)});
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x;
    list->ChannelsSplit(2);
    list->ChannelsSetCurrent(1);
    const float pad = look.px(7);
    ImGui::SetCursorScreenPos({at.x + pad, at.y + look.px(4)});
    ImGui::BeginGroup();
    ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + width - 2 * pad);
    const std::string count = is_news  ? std::string("being recorded")
                              : n == 1 ? std::string("1 warning")
                                       : fmt::format("{} warnings", n);
    coloured(colour, count);
    ImGui::SameLine();
    if (word_button(context, folded_ ? "Show" : "Put away", false)) folded_ = !folded_;
    if (!folded_) {
      for (std::size_t i = 0; i < std::min(n, kMostSentences); ++i) {
        coloured_words(look.ink, warnings[i]);
      }
      if (n > kMostSentences) {
        coloured_words(look.muted, fmt::format("and {} more", n - kMostSentences));
      }
    }
    ImGui::PopTextWrapPos();
    ImGui::EndGroup();
    const float bottom = ImGui::GetItemRectMax().y + look.px(4);
    list->ChannelsSetCurrent(0);
    list->AddRectFilled(at, {at.x + width, bottom}, packed(with_alpha(colour, 0.10)), look.px(4));
    list->AddRectFilled(at, {at.x + look.px(3), bottom}, packed(colour), look.px(1.5f));
    list->ChannelsMerge();
    ImGui::SetCursorScreenPos({at.x, bottom + look.px(4)});
  }

  void draw_grid(PanelContext& context, const Document& document) {
    if (grid_of_ != document.key()) {
      grid_of_ = document.key();
      grid_ = head_grid(document.info());
      picture_ = grid_figure(grid_, shades_);
      drawn_.renew();
    }
    ImGui::TextUnformatted("Layers × heads");
    help_tooltip(
        atlas_ ? "Click a cell to go to that layer and query head. Cells are shaded by how much of "
                 "its attention a head retrieves, as the head atlas says."
               : "Click a cell to go to that layer and query head. Cells are shaded once the head "
                 "atlas was computed; grey ones are not measured, or were not recorded.");
    const Look& look = context.look;
    const float width = ImGui::GetContentRegionAvail().x;
    const float cell = std::clamp(width / static_cast<float>(grid_.recorded_heads.size()),
                                  look.px(6), look.px(15));
    const float cells = std::max(look.px(45), cell * static_cast<float>(grid_.layers.size()));
    show_figure(context, drawn_, picture_, {width, cells + look.px(52)},  // with the axis below
                {.ground = look.ground,
                 .paper = look.surface,
                 .text_em = context.fonts.small_em(),
                 .zoomable = false,
                 .takes_wheel = false});
    const auto cell_of = [](Index layer, Index q_head) {
      const auto y = static_cast<double>(layer);
      const auto x = static_cast<double>(q_head);
      return std::optional(std::pair(plot::Range{x, x + 1.0}, plot::Range{y, y + 1.0}));
    };
    frame_heads(context, drawn_, cell_of, -1.0f);
    std::string legend =
        fmt::format("{} {}", grid_.recorded_heads.size(),
                    grid_.group > 1 ? "query heads, rules between KV heads" : "heads");
    for (const auto& [mark, meaning] : grid_.legend)
      legend += fmt::format(" · {} {}", mark, meaning);
    ImGui::PushFont(context.fonts.small());
    coloured_words(look.muted, legend);
    ImGui::PopFont();
    const auto& hit = drawn_.hit();
    if (!hit || !hit->row || !hit->col) return;
    cell_tooltip(*hit->row, *hit->col);
    if (hit->clicked && grid_.is_recorded(*hit->row, *hit->col))
      context.session.select_head("head grid click", *hit->row, *hit->col);
  }

  void cell_tooltip(Index layer, Index head) const {
    const GridLayer& row = grid_.layers[static_cast<std::size_t>(layer)];
    HoverLines lines = {{"layer", fmt::format("{}: {}", layer, fmt::join(row.words, ", "))},
                        {"query head", fmt::format("{}", head)},
                        {"KV head", fmt::format("{}", head / grid_.group)}};
    if (!grid_.is_recorded(layer, head)) {
      lines.emplace_back("recorded", row.is_recorded ? "no: this head was left out"
                                                     : "no: this layer was left out");
    }
    if (atlas_ && shades_.contains({layer, head})) {
      const HoverLines more = head_lines(*atlas_, layer, head);
      lines.insert(lines.end(), more.begin() + 1, more.end());  // the first says which head
    }
    detail_tooltip(lines, Pointed::at_head(layer, head));
  }

  void update_atlas(const Workbench& bench, const Document* document) {
    auto atlas = document == nullptr
                     ? nullptr
                     : bench.cache.find<HeadAtlas>(documents_key(*document, nullptr) + atlas_key_);
    if (atlas == atlas_) return;
    atlas_ = std::move(atlas);
    shades_ = atlas_ ? retrieval_shades(*atlas_) : decltype(shades_)();
    grid_of_.clear();  // it is drawn anew
  }

  void draw_facts(PanelContext& context, const Document& document) {
    if (facts_of_ != document.key()) {
      facts_of_ = document.key();
      const TraceFile& file = document.file();
      facts_ = described_lines(describe_trace(
          {document.info(), file.planned(), document.path().string(), file.file_bytes(), {}}));
    }
    if (ImGui::SmallButton("Verify")) context.runs.add({"verify", document.path().string()});
    landmark("verify");
    help_tooltip(
        "Reads the whole file: checksums, finite numbers, and attention that is computed again. "
        "The answer stands in Runs.");
    ImGui::SameLine();
    if (ImGui::SmallButton("Copy all")) {
      std::string words;
      for (const auto& [name, value] : facts_) words += fmt::format("{:<22} {}\n", name, value);
      ImGui::SetClipboardText(words.c_str());
    }
    help_tooltip("Copies what is below to the clipboard: what \"kvscope info\" says.");
    const float column = ImGui::CalcTextSize("rope_theta").x + context.look.px(8);
    for (const bool is_of_model : {true, false}) {
      constexpr std::string_view kModel = "model.";
      ImGui::PushStyleColor(ImGuiCol_Header, packed(with_alpha(context.look.raised, 0.0)));
      const bool is_open = ImGui::CollapsingHeader(is_of_model ? "Model" : "Recording",
                                                   ImGuiTreeNodeFlags_DefaultOpen);
      ImGui::PopStyleColor();
      for (const auto& [name, value] : facts_) {
        if (!is_open || name.starts_with(kModel) != is_of_model || value.empty()) continue;
        const float left = ImGui::GetCursorPosX();
        coloured(context.look.muted, is_of_model ? name.substr(kModel.size()) : name);
        ImGui::SameLine(left + column, 0);
        ImGui::PushTextWrapPos(0.0f);
        ImGui::TextUnformatted(value.c_str());
        ImGui::PopTextWrapPos();
      }
    }
  }

  const std::string atlas_key_ = head_atlas_key(plain_atlas_options());
  std::shared_ptr<const HeadAtlas> atlas_;  // once the panel has computed it
  std::map<std::pair<Index, Index>, double> shades_;
  std::string grid_of_;
  HeadGrid grid_;
  plot::Figure picture_;  // of the grid
  FigureView drawn_;
  std::string facts_of_;
  std::vector<std::pair<std::string, std::string>> facts_;  // names and values
  std::string banner_of_;
  std::size_t n_seen_ = 0;
  bool folded_ = false;
};

std::unique_ptr<Panel> make_traces_panel() {
  return std::make_unique<TracesPanel>();
}

}  // namespace kvscope::gui
