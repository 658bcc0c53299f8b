#include "notebooks_export/page_figure.hpp"

#include <fmt/format.h>

#include <memory>

#include "analysis/base/base64.hpp"
#include "analysis/figures/possible_figures.hpp"
#include "analysis/plot/rich_text.hpp"
#include "core/base/error.hpp"
#include "core/base/escape.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/figure_export.hpp"
#include "notebooks_export/open_result.hpp"

namespace kvscope {

namespace {

constexpr double kWidth = 4.6;  // inches: its letters can be read at 400 pixels and from far away

/// The drawing on a ground as base64.
std::string drawing(const plot::Figure& figure, plot::Ground ground) {
  RenderOptions options;
  options.width = kWidth;
  options.theme = ground;
  const std::string svg =
      render_figure(figure, options, {FigureFormat::svg}, "figure").front().bytes;
  return text_from_bytes(std::as_bytes(std::span(svg)), LastGroup::padded);
}

/// A page says nothing of whose machine made it.
std::string without_folder(std::string text, const std::filesystem::path& file) {
  const std::string folder = file.parent_path().string() + "/";
  for (std::size_t at; (at = text.find(folder)) != std::string::npos;)
    text.erase(at, folder.size());
  return text;
}

std::string figure_html(const plot::Figure& figure) {
  std::string caption;
  for (const std::string& sentence : figure.caption) caption += plot::plain_text(sentence) + " ";
  return fmt::format(
      "<figure><img class=\"on-light\" alt=\"\" src=\"data:image/svg+xml;base64,{}\">"
      "<img class=\"on-dark\" alt=\"\" src=\"data:image/svg+xml;base64,{}\">"
      "<figcaption>{}</figcaption></figure>\n",
      drawing(figure, plot::Ground::light), drawing(figure, plot::Ground::dark),
      xml_escape(caption));
}

}  // namespace

std::vector<PageFigure> page_figures(std::span<const std::filesystem::path> results) {
  std::vector<ResultPtr> open;
  for (const auto& file : results) open.push_back(open_result(file));
  std::vector<PageFigure> figures;
  for (std::size_t i = 0; i < open.size(); ++i) {
    PageFigure page{results[i].filename().string(), "", ""};
    const std::vector<PossibleFigure> possible = possible_figures(open, open[i]);
    if (const PossibleFigure* chosen = first_drawable(possible)) {
      FigureInput input;
      for (const ResultPtr& result : chosen->chosen) input.results.push_back(result.get());
      try {
        page.html = figure_html(make_figure(chosen->kind, input));
      } catch (const ConfigError& e) {  // the page's other parts stand
        page.note = without_folder(
            fmt::format("{}: no figure {}: {}", page.title, chosen->kind.name, e.what()),
            results[i]);
      }
    } else {
      page.note = possible.empty() ? fmt::format("{}: no figure is about a result of kind {}",
                                                 page.title, open[i]->info().kind)
                                   : fmt::format("{}: {}", page.title, possible.front().missing);
    }
    figures.push_back(std::move(page));
  }
  return figures;
}

}  // namespace kvscope
