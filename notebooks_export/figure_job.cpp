#include "notebooks_export/figure_job.hpp"

#include <fmt/format.h>

#include "core/base/version.hpp"
#include "notebooks_export/open_result.hpp"
#include "traces/hash.hpp"

namespace kvscope {

FigureOutcome run_figure_job(const FigureJob& job, const std::string& command_line) {
  const FigureKind kind = find_figure_kind(job.figure);
  std::vector<std::unique_ptr<ResultView>> results;
  FigureInput input{{}, job.options};
  for (const auto& file : job.results) {
    results.push_back(open_result(file));
    input.results.push_back(results.back().get());
  }
  const plot::Figure figure = make_figure(kind, input);
  FigureOutcome outcome;
  outcome.files = render_figure(figure, job.render, job.formats, job.stem);
  outcome.notes = render_notes(figure, job.render);

  FigureManifest& manifest = outcome.manifest;
  manifest.figure = job.figure;
  manifest.stem = job.stem;
  manifest.options = job.options;
  manifest.render = job.render;
  manifest.formats = job.formats;
  manifest.caption = figure.caption;
  for (std::size_t i = 0; i < results.size(); ++i) {
    manifest.inputs.push_back(
        describe_input(*results[i], job.results[i].string(), hash_file(job.results[i])));
  }
  for (const OutputFile& file : outcome.files) {
    manifest.files.push_back(
        {file.name, file.bytes.size(), fmt::format("xxh128:{}", hash_text(file.bytes))});
  }
  manifest.command = command_line;
  manifest.writer = writer_name();
  return outcome;
}

}  // namespace kvscope
