#include "analysis/runs/layer_items.hpp"

#include <algorithm>

#include "analysis/base/base64.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"

namespace kvscope {

void OneLayer::keep(const std::string& name, Index slot, std::span<const std::byte> values) {
  if (slot == slot_) arrays_[name] = text_from_bytes(values);
}

Json OneLayer::answer() const {
  return arrays_;
}

KnownLayers::KnownLayers(ResultWriter& to, const Work& work, const Store& store)
    : to_(to), where_(store.folder().string()) {
  for (std::size_t i = 0; i < work.keys.size(); ++i)
    answer_in(store, work.keys[i]).get_to(layers_[static_cast<Index>(i)]);
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

Work layer_work(const std::string& command, const Json& config, std::size_t n_layers,
                std::function<void(ResultWriter&, const ProgressFn&, std::stop_token)> analyze) {
  Work work;
  work.command = command;
  work.config = config;
  name_items(work, n_layers);
  work.run = [analyze = std::move(analyze), keys = work.keys](
                 std::size_t item, const Lease*, const ProgressFn& progress, std::stop_token stop) {
    OneLayer layer(static_cast<Index>(item));
    analyze(layer, progress, std::move(stop));
    return answer_of(keys[item], layer.answer());
  };
  return work;
}

}  // namespace kvscope
