// ResultFile of result_file.hpp: reads a result, of which nothing is believed.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/lists.hpp"
#include "traces/first_look.hpp"
#include "traces/result_file.hpp"
#include "traces/result_schema.hpp"
#include "traces/schema.hpp"

namespace kvscope {

namespace {

namespace names = result_schema;

constexpr int kMaxDepth = 6;  // of array names with slashes; links may form circles
constexpr std::size_t kMaxArrays = 10000;

nlohmann::ordered_json read_json(const h5::File& file, const char* path) {
  return parse_ordered_json(file.read_text(path), fmt::format("{}, {}", file.name(), path));
}

void check_version(const h5::File& file) {
  const std::string format = file.has_attribute("format") ? file.text("format") : "";
  if (format == schema::kFormat) {
    throw FormatError(
        "{}: expected a result, found a recording (a trace); kvscope sweep and kvscope "
        "analyze make results of it, and kvscope figures says which for each figure",
        file.name());
  }
  if (format != names::kFormat) {
    throw FormatError("{}: not a kvscope result: the root attribute 'format' is not '{}'",
                      file.name(), names::kFormat);
  }
  const std::string version = file.text("version");
  int major = 0;
  const auto parsed = std::from_chars(version.data(), version.data() + version.size(), major);
  if (parsed.ec != std::errc() || major < 1 || parsed.ptr == version.data() + version.size() ||
      *parsed.ptr != '.')
    throw FormatError("{}: version '{}', expected major.minor", file.name(), version);
  if (major > names::kMajor) {
    throw FormatError(
        "{}: written in result version {}, this program reads up to {}.x; use a newer kvscope",
        file.name(), version, names::kMajor);
  }
}

ResultInfo read_info(const h5::File& file) {
  ResultInfo info;
  info.kind = file.text("kind");
  const auto texts = [&](const char* name) {
    return file.has_attribute(name) ? file.texts(name) : std::vector<std::string>{};
  };
  info.trace_uuids = texts("trace_uuids");
  info.trace_hashes = texts("trace_hashes");
  info.trace_files = texts("trace_files");
  info.config = read_json(file, names::kConfig);
  info.config_hash = file.text("config_hash");
  info.command_line = file.text("command_line");
  info.writer = file.text("writer");
  info.created = file.text("created");
  return info;
}

ResultType result_type(const h5::Dataset& dataset) {
  const std::string_view name = enum_name(dataset.type());
  if (const auto type = enum_from_name<ResultType>(name)) return *type;
  throw FormatError("{}: type {} does not occur in results", dataset.where(), name);
}

ResultArray describe_array(const h5::File& file, const std::string& path) {
  const h5::Dataset dataset = file.open_dataset(path);
  ResultArray array;
  array.name = path.substr(1);
  array.type = result_type(dataset);
  for (const Index d : dataset.dims())
    array.shape.dim[static_cast<std::size_t>(array.shape.rank++)] = d;
  if (const std::string axes = dataset.text("axes"); !axes.empty())
    array.axes = split_words(axes, ',');
  array.units = dataset.text("units");
  array.long_name = dataset.text("long_name");
  return array;
}

/// All arrays below a group. Links may form circles, so every group is entered once.
class ArrayCollector {
 public:
  ArrayCollector(const h5::File& file, std::vector<ResultArray>& out) : file_(file), out_(out) {}

  void collect(const std::string& group, int depth) {
    const std::string where = group.empty() ? "/" : group;
    if (!seen_.insert(file_.object_number(where)).second) {
      throw FormatError("{}: group {} has several names, which no result needs", file_.name(),
                        where);
    }
    for (const auto& name : file_.list(where)) {
      const std::string path = fmt::format("{}/{}", group, name);
      const bool is_array =
          path != names::kConfig && path != names::kSummary && path != names::kPlots;
      if (!is_array || !file_.has(path) || file_.is_dimension(path)) continue;
      if (file_.is_group(path)) {
        if (depth < kMaxDepth) collect(path, depth + 1);
        continue;
      }
      if (out_.size() >= kMaxArrays)
        throw FormatError("{}: more than {} arrays", file_.name(), kMaxArrays);
      out_.push_back(describe_array(file_, path));
    }
  }

 private:
  const h5::File& file_;
  std::vector<ResultArray>& out_;
  std::set<std::uint64_t> seen_;
};

std::vector<ResultPlot> read_plots(const h5::File& file) {
  std::vector<ResultPlot> plots;
  for (const auto& name : file.list(names::kPlots)) {
    const std::string path = fmt::format("{}/{}", names::kPlots, name);
    if (!file.is_group(path)) continue;
    const h5::Group group = file.open_group(path);
    ResultPlot plot;
    plot.name = group.text("name");
    plot.signal = group.text("signal_array");
    if (group.has_attribute("axes_arrays")) plot.axes = group.texts("axes_arrays");
    plot.title = file.read_text(path + "/title");
    plots.push_back(std::move(plot));
  }
  return plots;
}

}  // namespace

struct ResultFile::Impl {
  h5::File file;
  ResultInfo info;
  std::vector<ResultArray> arrays;
  std::vector<ResultPlot> plots;
  nlohmann::ordered_json summary;
};

ResultFile::ResultFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResultFile::ResultFile(ResultFile&&) noexcept = default;
ResultFile& ResultFile::operator=(ResultFile&&) noexcept = default;
ResultFile::~ResultFile() = default;

ResultFile ResultFile::open(const std::filesystem::path& path) {
  const auto open_here = [](const std::filesystem::path& file) {
    auto impl = std::make_unique<Impl>();
    impl->file = h5::File::open(file);
    check_version(impl->file);
    impl->info = read_info(impl->file);
    ArrayCollector(impl->file, impl->arrays).collect("", 0);
    impl->plots = read_plots(impl->file);
    impl->summary = read_json(impl->file, names::kSummary);
    return impl;
  };
  const FirstLook look(
      path, [](const std::filesystem::path& file, unsigned) { decltype(open_here){}(file); });
  return ResultFile(open_here(path));
}

std::string ResultFile::name() const {
  return impl_->file.name();
}
const ResultInfo& ResultFile::info() const {
  return impl_->info;
}
const std::vector<ResultArray>& ResultFile::arrays() const {
  return impl_->arrays;
}
const std::vector<ResultPlot>& ResultFile::plots() const {
  return impl_->plots;
}
const nlohmann::ordered_json& ResultFile::summary() const {
  return impl_->summary;
}

std::vector<double> ResultFile::read(std::string_view array) const {
  return with_type(require(array).type, [&]<class T>(T) {
    const std::vector<T> all = read<T>(array);
    return std::vector<double>(all.begin(), all.end());
  });
}

std::size_t ResultFile::count_of(std::string_view name, ResultType type) const {
  for (const ResultArray& array : impl_->arrays) {
    if (array.name != name) continue;
    if (array.type == type) return static_cast<std::size_t>(array.shape.count());
    throw ConfigError("{}: result array '{}' has type {}, asked for {}", impl_->file.name(), name,
                      enum_name(array.type), enum_name(type));
  }
  throw ConfigError("{}: there is no result array '{}'", impl_->file.name(), name);
}

void ResultFile::read_raw(std::string_view name, void* out) const {
  const h5::Dataset dataset = impl_->file.open_dataset(fmt::format("/{}", name));
  dataset.read(h5::Dims(dataset.dims().size(), 0), dataset.dims(), out);
}

}  // namespace kvscope
