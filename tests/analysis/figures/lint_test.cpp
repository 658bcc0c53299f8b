// Every figure kind through the lint, at the width of a column and of a page, on both grounds; and
// the lint itself, by faults that are planted.
#include "core/base/error.hpp"
#include "core/trace/result.hpp"
#include "tests/analysis/figures/samples.hpp"

namespace kvscope::lint_test {

using testing::Width;

/// Those that the kind takes: each result alone, and with each that may stand beside it.
std::vector<std::vector<const MemoryResult*>> inputs_of(
    const FigureKind& kind, const std::vector<std::unique_ptr<MemoryResult>>& samples) {
  std::vector<std::vector<const MemoryResult*>> inputs;
  for (const auto& first : samples) {
    if (!accepts_kind(kind.kinds[0], first->info().kind)) continue;
    if (kind.kinds.size() == 1 || kind.kinds[1].ends_with('?')) inputs.push_back({first.get()});
    if (kind.kinds.size() == 1) continue;
    for (const auto& second : samples) {
      if (accepts_kind(kind.kinds[1], second->info().kind))
        inputs.push_back({first.get(), second.get()});
    }
  }
  return inputs;
}

TEST_CASE("no figure has a fault, in a column and across a page, on paper and on screen") {
  const auto samples = testing::samples();
  for (const FigureKind& kind : figure_kinds()) {
    std::size_t n_drawn = 0;
    std::string refusals;
    for (const auto& input : inputs_of(kind, samples)) {
      const FigureInput given{.results = {input.begin(), input.end()}};
      plot::Figure figure;
      try {
        figure = make_figure(kind, given);
      } catch (const Error& error) {  // a table of something else
        refusals += std::string(error.what()) + "\n";
        continue;
      }
      ++n_drawn;
      for (const Width width : {Width::column, Width::page}) {
        for (const plot::Ground ground : {plot::Ground::light, plot::Ground::dark}) {
          for (const std::string& fault : testing::faults_of(figure, width, ground)) {
            FAIL_CHECK(kind.name << (width == Width::column ? ", column, " : ", page, ")
                                 << (ground == plot::Ground::light ? "light: " : "dark: ")
                                 << fault);
          }
        }
      }
    }
    INFO(kind.name << " takes " << kind.kinds[0] << "; refused: " << refusals);
    CHECK(n_drawn > 0);  // a kind of result that samples.cpp lacks
  }
}

plot::Figure sound_figure() {
  plot::Panel panel{.x = {.label = "x"}, .y = {.label = "y"}, .legend = plot::LegendPlace::inside};
  panel.marks.emplace_back(plot::Line{.label = "Quest",
                                      .x = {0, 1, 2, 3, 4},
                                      .y = {1, 2, 3, 4, 5},
                                      .low = {0.9, 1.9, 2.9, 3.9, 4.9},
                                      .high = {1.1, 2.1, 3.1, 4.1, 5.1}});
  return {.name = "sound", .panels = {panel}};
}

TEST_CASE("the lint finds what is wrong, and nothing in a sound figure") {
  CHECK(testing::faults_of(sound_figure()).empty());
  plot::Figure full = sound_figure();  // its legend finds no room inside, and stands above
  plot::Scatter cloud{.tone = {plot::Role::series, 2}};
  for (int i = 0; i < 900; ++i) cloud.add(4.0 * (i % 30) / 29.0, 1 + 4.0 * (i / 30) / 29.0);
  full.panels[0].marks.emplace_back(cloud);
  full.panels[0].title = "a title that is much longer than the panel below it is wide, in a column";
  CHECK(testing::faults_of(full).empty());
  const auto line = [](plot::Figure& f) -> plot::Line& {
    return std::get<plot::Line>(f.panels[0].marks[0]);
  };
  const struct {
    std::function<void(plot::Figure&)> plant;
    const char* found;
  } faults[] = {
      {[&](auto& f) { line(f).y[2] = 3.5; }, "3.5 lies outside of 2.9 to 3.1"},
      {[&](auto& f) {
         f.panels[0].y.range = plot::Range{0.0, 4.5};
       },
       "not in ink"},
      {[&](auto& f) {
         f.panels[0].y.scale = plot::ScaleKind::log10;
         line(f).low[0] = 0.0;
       },
       "at 0: the interval is not in ink"},
      {[&](auto& f) {
         f.panels[0].marks.emplace_back(plot::Note{"in the way", 0.45, 0.45});
       },
       "\"in the way\" lies over marks"},
      {[&](auto& f) {
         f.panels[0].marks.emplace_back(plot::Note{"one note", 0.0, 0.0});
         f.panels[0].marks.emplace_back(plot::Note{"another", 0.02, 0.02});
       },
       "\"another\" lies over \"one note\""},
      {[&](auto& f) {
         const std::string words(60, 'w');
         f.panels[0].marks.emplace_back(plot::Note{words, 0.0, 0.0});
       },
       "words do not fit into their panel"},
      {[&](auto& f) { line(f).label = std::string(80, 'w'); }, "leaves the page"},
      {[&](auto& f) {
         f.panels[0].colour = plot::ColourAxis{};
         f.panels[0].marks.emplace_back(plot::HeatMap{1, 1, {0.5F}, {0.0, 4.0}, {1.0, 5.0}, false});
         f.panels[0].marks.emplace_back(plot::Note{"on a map", 0.5, 0.5});
       },
       "\"on a map\" has a contrast of"},
      {[&](auto& f) { f.panels[0].aspect = 4.0; }, "are higher than a page"},
      {[&](auto& f) {
         for (int i = 0; i < 5; ++i)
           f.panels[0].x.ticks.push_back({static_cast<double>(i), "a name of some length"});
       },
       "is left out"},
  };
  for (const auto& fault : faults) {
    plot::Figure figure = sound_figure();
    fault.plant(figure);
    std::string found;
    for (const std::string& one : testing::faults_of(figure)) found += one + "\n";
    CHECK_HAS(found, fault.found);
  }
}

}  // namespace kvscope::lint_test
