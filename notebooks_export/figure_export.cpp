#include "notebooks_export/figure_export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/plot/clean_figure.hpp"
#include "analysis/plot/draw.hpp"
#include "analysis/plot/legible.hpp"
#include "core/base/error.hpp"
#include "core/base/new_file.hpp"
#include "notebooks_export/cairo_canvas.hpp"
#include "notebooks_export/figure_csv.hpp"
#include "notebooks_export/svg_canvas.hpp"

namespace kvscope {

namespace fs = std::filesystem;

namespace {

std::string draw(const plot::Figure& figure, const plot::Layout& layout, const plot::Theme& theme,
                 std::unique_ptr<PageCanvas> canvas) {
  plot::draw_figure(figure, layout, theme, *canvas);
  return canvas->finish();
}

/// The layout with as many panels side by side as can be read, or as were asked for; sets the
/// figure's columns. Throws ConfigError if that is not legible.
plot::Layout legible_layout(plot::Figure& figure, const RenderOptions& options,
                            const plot::Theme& theme) {
  const bool asked = options.columns > 0;
  if (asked) figure.columns = static_cast<int>(options.columns);
  const bool is_single = asked && figure.columns == 1 && options.width == 0.0;
  const double natural =
      figure.span == plot::Span::full && !is_single ? theme.full_width : theme.column_width;
  const double width = options.width > 0.0 ? 72.0 * options.width : natural;
  const std::optional<double> height =
      options.height > 0.0 ? std::optional(72.0 * options.height) : std::nullopt;
  return plot::legible_layout(figure, width, height,
                              asked ? plot::Columns::as_asked : plot::Columns::at_most, theme,
                              figure_font_metrics());
}

/// Lines of a CSV that no table program opens any more: 50 MB.
constexpr std::size_t kMostCsvCells = 250'000;

/// Cells with a value: a line each.
std::size_t n_cells(const plot::Figure& figure) {
  std::size_t n = 0;
  for (const plot::Panel& panel : figure.panels) {
    for (const plot::Mark& mark : panel.marks) {
      const auto* map = std::get_if<plot::HeatMap>(&mark);
      if (map == nullptr) continue;
      n += static_cast<std::size_t>(std::count_if(map->values.begin(), map->values.end(),
                                                  [](float v) { return std::isfinite(v); }));
    }
  }
  return n;
}

std::vector<std::string> notes_of(const plot::Figure& figure, const plot::Layout& layout,
                                  const RenderOptions& options) {
  const double height = layout.size.h / 72.0;
  const bool is_slide = options.venue == plot::Venue::slide;
  const double most = is_slide ? 5.7 : 9.0;  // of 10 inches by 16:9, of letter paper
  std::vector<std::string> notes;
  if (options.height == 0.0 && height > most) {
    notes.push_back(fmt::format(
        "figure {} is {:.1f} in high, more than a {} takes: draw fewer --layers or methods, or "
        "more --columns side by side",
        figure.name, height, is_slide ? "slide" : "page"));
  }
  if (n_cells(figure) > kMostCsvCells) {
    notes.push_back(
        fmt::format("figure {} has {} cells: no CSV of them is written, the result has the numbers",
                    figure.name, n_cells(figure)));
  }
  return notes;
}

}  // namespace

std::vector<OutputFile> render_figure(const plot::Figure& asked, const RenderOptions& options,
                                      const std::vector<FigureFormat>& formats,
                                      const std::string& stem, std::vector<std::string>* notes) {
  check_fields(options);
  plot::Figure figure = plot::clean_figure(asked);
  const plot::Theme theme = plot::make_theme(options.venue, options.theme);
  const plot::Layout layout = legible_layout(figure, options, theme);
  if (notes != nullptr) *notes = notes_of(figure, layout, options);
  const std::string title = figure.title.empty() ? figure.name : figure.title;
  std::vector<OutputFile> files;
  for (FigureFormat format : formats) {
    const std::string name = fmt::format("{}.{}", stem, enum_name(format));
    switch (format) {
      case FigureFormat::svg:
        files.push_back({name, draw(figure, layout, theme, make_svg_canvas(layout.size, title))});
        break;
      case FigureFormat::pdf:
        files.push_back({name, draw(figure, layout, theme, make_pdf_canvas(layout.size, title))});
        break;
      case FigureFormat::png:
        files.push_back(
            {name, draw(figure, layout, theme, make_png_canvas(layout.size, options.dpi))});
        break;
      case FigureFormat::tex:
        for (OutputFile& file : pgfplots_files(figure, layout, theme, stem)) {
          files.push_back(std::move(file));
        }
        break;
    }
  }
  if (n_cells(figure) <= kMostCsvCells) files.push_back({stem + ".csv", figure_csv(figure)});
  return files;
}

void write_output_files(const fs::path& folder, const std::vector<OutputFile>& files,
                        bool overwrite) {
  const fs::path where = folder.empty() ? fs::path(".") : folder;
  for (const OutputFile& file : files) {
    const fs::path to = where / file.name;
    std::error_code error;
    if (fs::is_directory(to, error)) throw IoError("{} is a folder", to.string());
    if (!overwrite && fs::exists(to, error))
      throw IoError("{} exists; --overwrite replaces it", to.string());
  }
  std::error_code error;
  const bool is_new = !fs::is_directory(where, error);
  if (is_new && !fs::create_directory(where, error)) {
    throw IoError("cannot make the folder {}: {}", where.string(),
                  error ? error.message() : "a file has this name");
  }
  try {
    std::vector<NewFile> pending;
    pending.reserve(files.size());
    for (const OutputFile& file : files) {
      const bool is_manifest = file.name.ends_with(".json");
      pending
          .emplace_back(where / file.name, overwrite,
                        is_manifest ? std::optional(FileKind::manifest) : std::nullopt)
          .write(file.bytes);
    }
    for (NewFile& file : pending) file.publish();
  } catch (...) {
    if (is_new) fs::remove(where, error);  // if it is empty
    throw;
  }
}

}  // namespace kvscope
