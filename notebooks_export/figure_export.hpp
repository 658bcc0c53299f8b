// From a figure to the files of a paper: drawings in every format, the numbers behind them, and how
// they came about.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/plot/figure.hpp"
#include "analysis/plot/layout.hpp"
#include "analysis/plot/theme.hpp"
#include "core/base/fields.hpp"
#include "notebooks_export/pgfplots.hpp"

namespace kvscope {

enum class FigureFormat { svg, pdf, png, tex };

/// How a figure is put on the page.
struct RenderOptions {
  plot::Venue venue =
      option(venue, "venue", plot::Venue::icml,
             "widths and letter sizes of acl, icml, neurips, iclr, ieee or a slide");
  plot::Ground theme = option(theme, "theme", plot::Ground::light, "light or dark ground");
  double width =
      option(width, "width", 0.0, "inches; 0 is the venue's column, or its page for wide figures",
             in(0.0, 60.0, "in"));
  double height =
      option(height, "height", 0.0, "inches; 0 follows from the panels", in(0.0, 60.0, "in"));
  Index columns =
      option(columns, "columns", 0,
             "panels side by side; 0 is as many as are legible, up to the figure's own", in(0, 16));
  double dpi = option(dpi, "dpi", 300.0, "pixels per inch of the PNG", in(20.0, 2400.0));
};

/// STEM.svg, .pdf, .png, .tex (with its images STEM-N.png) as asked, and STEM.csv, but for maps of
/// so many cells that the result itself is the better table. `notes`: what to say of that, and of a
/// drawing higher than a page or a slide. Throws ConfigError for a figure that cannot be drawn,
/// IoError without the font.
std::vector<OutputFile> render_figure(const plot::Figure& figure, const RenderOptions& options,
                                      const std::vector<FigureFormat>& formats,
                                      const std::string& stem,
                                      std::vector<std::string>* notes = nullptr);

/// Writes all files or none: first under temporary names, then renamed. The folder is made if its
/// parent exists. Throws IoError if a file exists (unless overwrite) or cannot be written.
void write_output_files(const std::filesystem::path& folder, const std::vector<OutputFile>& files,
                        bool overwrite);

}  // namespace kvscope
