#include "traces/layout.hpp"

#include <algorithm>

#include "core/base/enum_names.hpp"
#include "core/base/error.hpp"
#include "traces/first_look.hpp"
#include "traces/hash.hpp"
#include "traces/header.hpp"

namespace kvscope {

namespace {

constexpr Index kTargetChunkBytes = Index{1} << 20;
constexpr Index kMaxChunkRows = 512;

/// One head and up to 512 positions, fewer where rows are long.
h5::Dims chunk_of(const schema::ArraySpec& array) {
  const Index row_bytes = array.row_size() * static_cast<Index>(h5::size_of(array.type));
  h5::Dims chunk = array.dims;
  if (array.has_heads) chunk[0] = 1;
  const Index rows =
      std::clamp<Index>(kTargetChunkBytes / std::max<Index>(row_bytes, 1), 1, kMaxChunkRows);
  Index& positions = chunk[array.growing_axis()];
  positions = std::min(positions, row_bytes <= 8 ? kMaxChunkRows * 64 : rows);
  return chunk;
}

std::size_t cache_bytes(const h5::Dims& chunk, h5::Type type) {
  return std::max<std::size_t>(static_cast<std::size_t>(h5::count(chunk)) * h5::size_of(type) * 2,
                               1 << 20);
}

bool holds_reals(h5::Type type) {
  return h5::dtype_of(type).has_value();
}

void create_arrays(TraceLayout& layout, std::optional<int> gzip_level) {
  for (const auto& array : layout.arrays) {
    h5::DatasetOptions options;
    if (gzip_level && array.dims.size() > 1 && h5::count(array.dims) > 0) {
      options.chunk = chunk_of(array);
      options.gzip_level = gzip_level;
      options.chunk_cache_bytes = cache_bytes(options.chunk, array.type);
    }
    h5::Dataset dataset = layout.file.create_dataset(array.path, array.type, array.dims, options);
    schema::describe(layout.file, dataset, array.axes, array.units);
    if (holds_reals(array.type)) {
      // A writer refuses NaN and Inf with the name of the element, so there are none.
      dataset.set_integer("n_nan", 0);
      dataset.set_integer("n_inf", 0);
    }
    layout.data_list.add(std::move(dataset));
  }
}

void create_bookkeeping(TraceLayout& layout) {
  const Index n_calls = static_cast<Index>(layout.info.calls.size());
  for (const auto& array : layout.arrays) {
    const h5::Dims dims = array.has_heads ? h5::Dims{n_calls, array.n_heads()} : h5::Dims{n_calls};
    h5::Dataset table = layout.file.create_dataset(array.checksum_path, h5::Type::u64, dims);
    schema::describe(table, array.has_heads ? "unit,head" : "unit", "xxh3-64");
    layout.checksum_list.add(std::move(table));
  }
  if (layout.info.token_text_capacity > 0) {
    layout.token_bytes = layout.file.create_dataset(schema::kTokenBytes, h5::Type::u8,
                                                    {layout.info.token_text_capacity});
    schema::describe(layout.file, *layout.token_bytes, "byte", "1");
    layout.token_offsets = layout.file.create_dataset(schema::kTokenOffsets, h5::Type::i64,
                                                      {layout.info.n_tokens + 1});
    schema::describe(layout.file, *layout.token_offsets, "edge", "byte");
    layout.text_checksums =
        layout.file.create_dataset(schema::kTextChecksums, h5::Type::u64, {n_calls});
    schema::describe(*layout.text_checksums, "unit", "xxh3-64");
  }
  if (!layout.info.model_config.empty() || !layout.info.layer_kinds.empty()) {
    h5::Dataset model = layout.file.create_dataset(schema::kModelChecksum, h5::Type::u64, {1});
    schema::describe(model, "one", "xxh3-64");
    const std::uint64_t value = model_checksum(layout.info);
    model.write({0}, {1}, &value);
  }
  if (const std::vector<float>& moved = layout.info.moved_scores; !moved.empty()) {
    const h5::Dims dims = {static_cast<Index>(moved.size())};
    layout.moved_scores = layout.file.create_dataset(schema::kMovedScores, h5::Type::f32, dims);
    schema::describe(layout.file, *layout.moved_scores, "slot", "nat");
    layout.moved_scores->write({0}, dims, moved.data());
  }
  layout.file.open_group("/checksums").set_text("algorithm", "xxh3-64");
  layout.progress = layout.file.create_dataset(schema::kProgress, h5::Type::i64, {1});
  schema::describe(layout.file, *layout.progress, "one", "unit");
  const std::int64_t none = 0;
  layout.progress->write({0}, {1}, &none);
}

h5::Dataset open_checked(const h5::File& file, const std::string& path, h5::Type type,
                         const h5::Dims& dims) {
  h5::Dataset dataset = file.open_dataset(path);
  if (dataset.type() != type) {
    throw FormatError("{}: type {}, expected {}", dataset.where(), enum_name(dataset.type()),
                      enum_name(type));
  }
  if (dataset.dims() != dims) {
    throw FormatError("{}: shape {}, expected {}", dataset.where(), h5::to_string(dataset.dims()),
                      h5::to_string(dims));
  }
  return dataset;
}

}  // namespace

std::optional<std::size_t> TraceLayout::find(const std::string& path) const {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].path == path) return i;
  }
  return std::nullopt;
}

Index TraceLayout::n_committed() const {
  const Index n_calls = static_cast<Index>(info.calls.size());
  if (!progress) return info.status == TraceStatus::recording ? 0 : n_calls;
  return std::clamp<Index>(progress->read_all<std::int64_t>()[0], 0, n_calls);
}

TraceLayout create_layout(const std::filesystem::path& path, const TraceInfo& info,
                          std::optional<int> gzip_level) {
  TraceLayout layout;
  layout.info = info;
  layout.arrays = schema::trace_arrays(info);
  layout.file = h5::File::create(path);
  write_header(layout.file, info);
  create_bookkeeping(layout);
  create_arrays(layout, gzip_level);
  layout.file.write_dimensions();
  return layout;
}

h5::Dataset& DatasetList::at(const h5::File& file, std::size_t i) const {
  const std::lock_guard lock(*mutex_);
  Item& item = all_[i];
  if (!item.opened) item.opened.emplace(open_checked(file, item.path, item.type, item.dims));
  return *item.opened;
}

h5::Dataset DatasetList::open(const h5::File& file, std::size_t i) const {
  const Item& item = all_[i];
  return open_checked(file, item.path, item.type, item.dims);
}

void DatasetList::check_all(const h5::File& file) const {
  const std::lock_guard lock(*mutex_);
  for (const Item& item : all_) {
    if (!item.opened) open_checked(file, item.path, item.type, item.dims);
  }
}

TraceLayout open_layout(h5::File file, CheckArrays check) {
  TraceLayout layout;
  layout.file = std::move(file);
  layout.info = read_header(layout.file, layout.warnings);
  layout.arrays = schema::trace_arrays(layout.info);
  for (const auto& array : layout.arrays)
    layout.data_list.expect(array.path, array.type, array.dims);
  if (check == CheckArrays::all) layout.data_list.check_all(layout.file);
  const Index n_calls = static_cast<Index>(layout.info.calls.size());
  const bool has_checksums = layout.file.has("/checksums");
  if (has_checksums) {
    for (const auto& array : layout.arrays) {
      const h5::Dims dims =
          array.has_heads ? h5::Dims{n_calls, array.n_heads()} : h5::Dims{n_calls};
      layout.checksum_list.expect(array.checksum_path, h5::Type::u64, dims);
    }
  } else if (layout.file.text("features").find("checksums") != std::string::npos) {
    throw FormatError("{}: group /checksums is missing", layout.file.name());
  } else {
    layout.warnings.emplace_back(
        "the file has no checksums: damage to its numbers cannot be noticed");
  }
  if (layout.info.token_text_capacity > 0) {
    layout.token_bytes = open_checked(layout.file, schema::kTokenBytes, h5::Type::u8,
                                      {layout.info.token_text_capacity});
    layout.token_offsets =
        open_checked(layout.file, schema::kTokenOffsets, h5::Type::i64, {layout.info.n_tokens + 1});
    if (has_checksums) {
      layout.text_checksums =
          open_checked(layout.file, schema::kTextChecksums, h5::Type::u64, {n_calls});
    }
  }
  if (!layout.info.moved_scores.empty())
    layout.moved_scores = layout.file.open_dataset(schema::kMovedScores);
  if (layout.file.has(schema::kProgress)) {
    layout.progress = open_checked(layout.file, schema::kProgress, h5::Type::i64, {1});
  }
  if (check == CheckArrays::all) layout.checksum_list.check_all(layout.file);
  return layout;
}

TraceLayout open_layout(const std::filesystem::path& path) {
  const FirstLook look(
      path, [](const std::filesystem::path& file, unsigned) { open_layout(h5::File::open(file)); });
  return open_layout(h5::File::open(path),
                     look.is_good() ? CheckArrays::when_used : CheckArrays::all);
}

}  // namespace kvscope
