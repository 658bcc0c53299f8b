#include "core/trace/result.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"

namespace kvscope {

namespace {

/// Adds the input that `from` tells of; `name` and `hash` are keys there, the first that is a text.
void add_input(nlohmann::ordered_json& inputs, std::string_view what,
               const nlohmann::ordered_json& from, std::initializer_list<const char*> name,
               std::initializer_list<const char*> hash) {
  nlohmann::ordered_json input = {{"what", what}};
  const auto copy = [&](const char* to, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (!from.contains(key) || !from.at(key).is_string() || from.at(key) == "") continue;
      input[to] = from.at(key);
      return;
    }
  };
  copy("name", name);
  copy("uuid", {"uuid"});
  copy("hash", hash);
  if (input.size() > 1) inputs.push_back(std::move(input));
}

}  // namespace

nlohmann::ordered_json inputs_of(const ResultInfo& info) {
  nlohmann::ordered_json inputs = nlohmann::ordered_json::array();
  const auto at = [](const std::vector<std::string>& texts, std::size_t i) {
    return i < texts.size() ? texts[i] : std::string();
  };
  for (std::size_t i = 0; i < info.trace_files.size(); ++i) {
    add_input(inputs, "trace",
              {{"name", info.trace_files[i]},
               {"uuid", at(info.trace_uuids, i)},
               {"hash", at(info.trace_hashes, i)}},
              {"name"}, {"hash"});
  }
  const nlohmann::ordered_json& config = info.config;
  if (!config.is_object()) return inputs;
  const auto add = [&](const char* key, std::string_view what,
                       std::initializer_list<const char*> name,
                       std::initializer_list<const char*> hash) {
    if (!config.contains(key)) return;
    const nlohmann::ordered_json& found = config.at(key);
    for (const nlohmann::ordered_json& one :
         found.is_array() ? found : nlohmann::ordered_json::array({found})) {
      if (one.is_object()) add_input(inputs, what, one, name, hash);
    }
  };
  add("draft_traces", "draft trace", {"name"}, {"hash"});
  add("calibration_trace", "calibration trace", {"name"}, {"hash"});
  add_input(inputs, "model", config, {"model"}, {"model_hash"});
  add_input(inputs, "draft model", config, {"draft"}, {"draft_hash"});
  add_input(inputs, "text", config, {"text"}, {"text_checksum"});
  add("more_texts", "text", {"text"}, {"checksum"});
  add_input(inputs, "examples", config, {}, {"examples"});
  add("artifacts", "artifact", {"selector"}, {"checksum"});
  add("hardware", "hardware", {"name"}, {});
  return inputs;
}

const ResultArray* ResultView::find(std::string_view array) const {
  const auto& all = arrays();
  const auto it = std::ranges::find_if(all, [&](const ResultArray& a) { return a.name == array; });
  return it == all.end() ? nullptr : &*it;
}

const ResultArray& ResultView::require(std::string_view array) const {
  if (const ResultArray* found = find(array)) return *found;
  throw ConfigError("{}: this result of kind {} holds no array \"{}\"", name(), info().kind, array);
}

std::vector<double> ResultView::axis(std::string_view array, int axis) const {
  const ResultArray& spec = require(array);
  if (axis >= spec.shape.rank || spec.axes.size() != static_cast<std::size_t>(spec.shape.rank)) {
    throw FormatError("{}: {} has shape {} and {} named axes, expected more axes", name(), array,
                      to_string(spec.shape), spec.axes.size());
  }
  const std::string& axis_name = spec.axes[static_cast<std::size_t>(axis)];
  // "row" has its positions in "row_pos", "step" in "step_pos"
  for (const std::string& candidate : {axis_name, axis_name + "_pos", axis_name + "_begin"}) {
    const ResultArray* coordinates = find(candidate);
    if (coordinates != nullptr && coordinates->shape == Shape{spec.shape[axis]})
      return read(candidate);
  }
  std::vector<double> numbers;
  for (Index i = 0; i < spec.shape[axis]; ++i) numbers.push_back(static_cast<double>(i));
  return numbers;
}

void MemoryResult::begin(const ResultInfo& info) {
  info_ = info;
  summary_ = {};
  arrays_.clear();
  data_.clear();
  plots_.clear();
}

void MemoryResult::declare(const ResultArray& array) {
  if (array.axes.size() != static_cast<std::size_t>(array.shape.rank)) {
    throw ShapeError("result array {}: {} axis names for shape {}", array.name, array.axes.size(),
                     to_string(array.shape));
  }
  for (const ResultArray& other : arrays_) {
    if (other.name == array.name)
      throw ConfigError("result array {} is declared twice", array.name);
  }
  arrays_.push_back(array);
  data_.emplace_back(static_cast<std::size_t>(array.shape.count()) * size_of(array.type));
}

void MemoryResult::add_plot(const ResultPlot& plot) {
  plots_.push_back(plot);
}

void MemoryResult::finish(const nlohmann::ordered_json& summary) {
  summary_ = summary;
}

void MemoryResult::write_raw(std::string_view name, ResultType type, Index first, const void* data,
                             Index n_elements) {
  const auto it = std::find_if(arrays_.begin(), arrays_.end(),
                               [&](const ResultArray& array) { return array.name == name; });
  if (it == arrays_.end() || it->type != type)
    throw ConfigError("result array {} is not declared with this element type", name);
  const Index n_rows = it->shape.rank > 0 ? it->shape[0] : 1;
  const Index row = n_rows > 0 ? it->shape.count() / n_rows : 0;
  if (first < 0 || first * row + n_elements > it->shape.count() ||
      (row > 0 && n_elements % row != 0)) {
    throw ShapeError("result array {}: {} elements from row {} on do not fit shape {}", name,
                     n_elements, first, to_string(it->shape));
  }
  if (n_elements == 0) return;
  auto& bytes = data_[static_cast<std::size_t>(it - arrays_.begin())];
  std::memcpy(bytes.data() + static_cast<std::size_t>(first * row) * size_of(type), data,
              static_cast<std::size_t>(n_elements) * size_of(type));
}

std::vector<double> MemoryResult::read(std::string_view array) const {
  return with_type(require(array).type, [&]<class T>(T) {
    const std::span<const T> all = values<T>(array);
    return std::vector<double>(all.begin(), all.end());
  });
}

const std::vector<std::byte>& MemoryResult::bytes_of(std::string_view name, ResultType type) const {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    if (arrays_[i].name == name && arrays_[i].type == type) return data_[i];
  }
  throw ConfigError("the result holds no array {} of this element type", name);
}

}  // namespace kvscope
