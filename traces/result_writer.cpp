// create_result_file of result_file.hpp: writes a result under a temporary name.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/new_file.hpp"
#include "core/base/version.hpp"
#include "core/trace/result.hpp"
#include "traces/hash.hpp"
#include "traces/result_file.hpp"
#include "traces/result_schema.hpp"

namespace kvscope {

namespace {

namespace names = result_schema;

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, ","));
}

/// JSON text with keys in sorted order: equal options give equal text, whatever order they were
/// listed in.
std::string canonical_json(const nlohmann::ordered_json& value) {
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class ResultFileWriter final : public ResultWriter {
 public:
  ResultFileWriter(std::filesystem::path out, bool overwrite)
      : out_(std::move(out)), pending_(out_, overwrite, FileKind::result) {}

  void begin(const ResultInfo& info) override;
  void declare(const ResultArray& array) override;
  void add_plot(const ResultPlot& plot) override { plots_.push_back(plot); }
  void finish(const nlohmann::ordered_json& summary) override;

 protected:
  void write_raw(std::string_view name, ResultType type, Index first, const void* data,
                 Index n_elements) override;

 private:
  struct Array {
    ResultArray spec;
    h5::Dataset dataset;
    std::vector<bool> is_written;  // per row of the first axis
  };
  Array& array_at(std::string_view name);
  void check_plot(const ResultPlot& plot);
  void write_plots();
  void check_written(const nlohmann::ordered_json& summary) const;

  std::filesystem::path out_;
  NewFile pending_;  // before the HDF5 objects, which are closed first
  bool open_ = false;
  h5::File file_;
  std::vector<Array> arrays_;
  std::vector<ResultPlot> plots_;
  std::vector<std::pair<std::string, h5::Dims>> written_;
};

void ResultFileWriter::begin(const ResultInfo& info) {
  if (open_) throw ConfigError("{}: begin was called twice", out_.string());
  file_ = h5::File::create(pending_.temporary());
  open_ = true;
  file_.set_text("format", names::kFormat);
  file_.set_text("version", names::kVersion);
  file_.set_text("NX_class", "NXroot");
  file_.set_text("kind", info.kind);
  file_.set_text("writer", info.writer.empty() ? writer_name() : info.writer);
  file_.set_text("created", info.created.empty() ? timestamp() : info.created);
  file_.set_text("command_line", info.command_line.substr(0, 16384));
  file_.set_text("config_hash", fmt::format("xxh128:{}", hash_text(canonical_json(info.config))));
  if (!info.trace_uuids.empty()) file_.set_texts("trace_uuids", info.trace_uuids);
  if (!info.trace_hashes.empty()) file_.set_texts("trace_hashes", info.trace_hashes);
  if (!info.trace_files.empty()) file_.set_texts("trace_files", info.trace_files);
  std::vector<std::string> inputs;
  for (const auto& input : inputs_of(info)) inputs.push_back(json_text(input));
  if (!inputs.empty()) file_.set_texts("inputs", inputs);
  file_.write_text(names::kConfig, json_text(info.config, 1));
}

void ResultFileWriter::declare(const ResultArray& array) {
  if (!open_) throw ConfigError("{}: declare before begin", out_.string());
  const std::string top = array.name.substr(0, array.name.find('/'));
  const bool reserved = top == "config" || top == "summary" || top == "plots";
  const bool odd = array.name.empty() || top.empty() || array.name.back() == '/' ||
                   array.name.find("//") != std::string::npos;
  if (reserved || odd) throw ConfigError("result array '{}': this name cannot be used", array.name);
  if (static_cast<int>(array.axes.size()) != array.shape.rank) {
    throw ConfigError("result array '{}': {} axis names for shape {}", array.name,
                      array.axes.size(), to_string(array.shape));
  }
  for (const Array& other : arrays_) {
    if (other.spec.name == array.name)
      throw ConfigError("result array '{}' is declared twice", array.name);
  }
  Array entry;
  entry.spec = array;
  entry.is_written.resize(static_cast<std::size_t>(array.shape.rank > 0 ? array.shape[0] : 1));
  entry.dataset = file_.create_dataset(fmt::format("/{}", array.name), names::file_type(array.type),
                                       names::to_dims(array.shape));
  entry.dataset.set_text("axes", joined(array.axes));
  entry.dataset.set_text("dtype_logical", enum_name(array.type));
  entry.dataset.set_text("units", array.units);
  entry.dataset.set_text("long_name", array.long_name.empty() ? array.name : array.long_name);
  entry.dataset.set_text("encoding-type", "array");
  entry.dataset.set_text("encoding-version", "0.2.0");
  arrays_.push_back(std::move(entry));
}

ResultFileWriter::Array& ResultFileWriter::array_at(std::string_view name) {
  for (Array& array : arrays_) {
    if (array.spec.name == name) return array;
  }
  throw ConfigError("result array '{}' is not declared", name);
}

void ResultFileWriter::write_raw(std::string_view name, ResultType type, Index first,
                                 const void* data, Index n_elements) {
  Array& array = array_at(name);
  if (array.spec.type != type) {
    throw ConfigError("result array '{}': values of type {}, declared {}", name, enum_name(type),
                      enum_name(array.spec.type));
  }
  h5::Dims size = names::to_dims(array.spec.shape);
  h5::Dims offset(size.size(), 0);
  const Index n_rows_total = static_cast<Index>(array.is_written.size());
  const Index per_row = n_rows_total > 0 ? array.spec.shape.count() / n_rows_total : 0;
  const Index n_rows = per_row > 0 ? n_elements / per_row : n_rows_total - first;
  if (first < 0 || n_rows * per_row != n_elements || n_rows < 0 || first > n_rows_total - n_rows) {
    throw ShapeError("result array '{}' {}: cannot put {} values at row {}", name,
                     to_string(array.spec.shape), n_elements, first);
  }
  if (!size.empty()) {
    offset[0] = first;
    size[0] = n_rows;
  }
  array.dataset.write(offset, size, data);
  std::fill_n(array.is_written.begin() + first, n_rows, true);
}

void ResultFileWriter::check_plot(const ResultPlot& plot) {
  const ResultArray& signal = array_at(plot.signal).spec;
  if (static_cast<int>(plot.axes.size()) != signal.shape.rank) {
    throw ConfigError("plot '{}': {} axes for signal '{}' of shape {}", plot.name, plot.axes.size(),
                      plot.signal, to_string(signal.shape));
  }
  for (int a = 0; a < signal.shape.rank; ++a) {
    const std::string& axis = plot.axes[static_cast<std::size_t>(a)];
    if (axis == ".") continue;
    const Shape& shape = array_at(axis).spec.shape;
    if (shape.rank == 1 && shape[0] == signal.shape[a]) continue;
    throw ConfigError("plot '{}': axis '{}' has shape {}, expected [{}]", plot.name, axis,
                      to_string(shape), signal.shape[a]);
  }
}

/// NeXus: root -> NXentry -> NXdata, each level naming the one to show first. Signal and axes are
/// hard links, so a viewer needs to look nowhere else.
void ResultFileWriter::write_plots() {
  if (plots_.empty()) return;
  h5::Group entry = file_.create_group(names::kPlots);
  entry.set_text("NX_class", "NXentry");
  entry.set_text("default", names::flat_name(plots_.front().name));
  file_.set_text("default", "plots");
  for (const ResultPlot& plot : plots_) {
    check_plot(plot);
    const std::string path = fmt::format("{}/{}", names::kPlots, names::flat_name(plot.name));
    h5::Group group = file_.create_group(path);
    std::vector<std::string> axes;
    for (const auto& axis : plot.axes) axes.push_back(names::flat_name(axis));
    group.set_text("NX_class", "NXdata");
    group.set_text("signal", names::flat_name(plot.signal));
    if (!axes.empty()) group.set_texts("axes", axes);
    // Under their own names, for readers of this format.
    group.set_text("signal_array", plot.signal);
    if (!axes.empty()) group.set_texts("axes_arrays", plot.axes);
    group.set_text("name", plot.name);
    file_.write_text(path + "/title", plot.title.empty() ? plot.name : plot.title);
    file_.link(fmt::format("/{}", plot.signal),
               fmt::format("{}/{}", path, names::flat_name(plot.signal)));
    for (const auto& axis : plot.axes) {
      const std::string link = fmt::format("{}/{}", path, names::flat_name(axis));
      if (axis != "." && !file_.has(link)) file_.link(fmt::format("/{}", axis), link);
    }
    for (std::size_t a = 0; a < plot.axes.size(); ++a) {
      const std::string name = axes[a] + "_indices";
      if (plot.axes[a] != "." && !group.has_attribute(name))
        group.set_integer(name, static_cast<Index>(a));
    }
  }
}

/// Opens what was just closed, as a reader will: a file that does not read gets no name.
void ResultFileWriter::check_written(const nlohmann::ordered_json& summary) const {
  const h5::File file = h5::File::open(pending_.temporary());
  if (file.read_text(names::kSummary) != json_text(summary, 1))
    throw IoError("cannot write {}: what was read back is not what was written", out_.string());
  for (const auto& [name, dims] : written_) {
    if (file.open_dataset("/" + name).dims() == dims) continue;
    throw IoError("cannot write {}: the array {} cannot be read back", out_.string(), name);
  }
}

void ResultFileWriter::finish(const nlohmann::ordered_json& summary) {
  if (!open_) throw ConfigError("{}: finish before begin", out_.string());
  for (const Array& array : arrays_) {
    const auto missing = std::find(array.is_written.begin(), array.is_written.end(), false);
    if (missing == array.is_written.end() || array.spec.shape.count() == 0) continue;
    throw ConfigError("result array '{}' {}: row {} was never written", array.spec.name,
                      to_string(array.spec.shape), missing - array.is_written.begin());
  }
  write_plots();
  file_.write_text(names::kSummary, json_text(summary, 1));
  for (const Array& array : arrays_) file_.name_axes(array.dataset, array.spec.axes);
  file_.write_dimensions();
  for (const Array& array : arrays_)
    written_.emplace_back(array.spec.name, names::to_dims(array.spec.shape));
  arrays_.clear();
  file_.close();
  check_written(summary);
  pending_.publish();
  open_ = false;
}

}  // namespace

std::unique_ptr<ResultWriter> create_result_file(const std::filesystem::path& out, bool overwrite) {
  return std::make_unique<ResultFileWriter>(out, overwrite);
}

}  // namespace kvscope
