#include "analysis/units/layer_units.hpp"

#include <algorithm>

#include "analysis/base/base64.hpp"
#include "analysis/units/journal.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

void OneLayer::keep(const std::string& name, Index slot, std::span<const std::byte> values) {
  if (slot == slot_) arrays_[name] = text_from_bytes(values);
}

Json OneLayer::line() const {
  return {{"unit", slot_}, {"arrays", arrays_}};
}

KnownLayers::KnownLayers(ResultWriter& to, const UnitFolder& units)
    : to_(to), where_(units.folder.string()) {
  read_units(units, [&](std::size_t unit, const Json& line) {
    layers_[static_cast<Index>(unit)] = line.at("arrays").get<std::map<std::string, std::string>>();
  });
}

void KnownLayers::restore(const std::string& name, Index slot, std::span<std::byte> values) const {
  const auto& arrays = layers_.at(slot);
  const auto found = arrays.find(name);
  const auto bytes =
      found == arrays.end() ? std::nullopt : bytes_from_text(found->second, values.size());
  if (!bytes) {
    throw FormatError("{}: expected {} bytes of the array {} of layer {}, found {}", where_,
                      values.size(), name, slot, found == arrays.end() ? "none" : "another number");
  }
  std::copy(bytes->begin(), bytes->end(), values.begin());
}

void KnownLayers::write_raw(std::string_view name, ResultType type, Index first, const void* data,
                            Index n_elements) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    to_.write<T>(name, first,
                 std::span(static_cast<const T*>(data), static_cast<std::size_t>(n_elements)));
  });
}

UnitWork layer_work(
    const Json& config, std::size_t n_layers, std::function<UnitCost(std::size_t)> cost,
    std::function<void(ResultWriter&, const ProgressFn&, std::stop_token)> analyze) {
  UnitWork work;
  work.header = Json{{"kvscope_analysis", 1}, {"config", config}};
  work.n_units = n_layers;
  work.cost = std::move(cost);
  work.run = [analyze = std::move(analyze)](std::size_t unit, const ProgressFn& progress,
                                            std::stop_token stop) {
    OneLayer layer(static_cast<Index>(unit));
    analyze(layer, progress, std::move(stop));
    return layer.line();
  };
  return work;
}

}  // namespace kvscope
