#include "core/selectors/learned_heads.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace kvscope {

void LearnedHeads::learn(std::span<const Index> layers, Index n_kv, ThreadPool& pool,
                         const std::function<std::vector<double>(Index, Index)>& learn) {
  std::vector<std::vector<double>> made(layers.size() * static_cast<std::size_t>(n_kv));
  pool.parallel_for(static_cast<Index>(made.size()), [&](Index i, int) {
    made[static_cast<std::size_t>(i)] = learn(layers[static_cast<std::size_t>(i / n_kv)], i % n_kv);
  });
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto heads = static_cast<std::size_t>(n_kv);
    put(layers[i / heads], static_cast<Index>(i % heads), std::move(made[i]));
  }
}

void LearnedHeads::put(Index layer, Index kv_head, std::vector<double> values) {
  heads_.insert_or_assign(std::pair(layer, kv_head), std::move(values));
}

std::span<const double> LearnedHeads::find(Index layer, Index kv_head) const {
  const auto it = heads_.find({layer, kv_head});
  return it == heads_.end() ? std::span<const double>() : it->second;
}

std::span<const double> LearnedHeads::of(std::string_view method, const SelectCall& call,
                                         Index kv_head, Index per_channel) const {
  const std::span<const double> values = find(call.layer, kv_head);
  if (values.empty()) {
    throw ConfigError(
        "{}: layer {}, KV head {} was not calibrated; calibrate it on a "
        "text, or name a file of kvscope fit {}",
        method, call.layer, kv_head, method);
  }
  const auto found = static_cast<Index>(values.size()) / per_channel;
  if (found != call.k.dim(2)) {
    throw ShapeError("{}: calibrated with keys of {} channels, found keys of {} in layer {}",
                     method, found, call.k.dim(2), call.layer);
  }
  return values;
}

Learned LearnedHeads::learned(std::string_view name, std::string_view what) const {
  auto layers = nlohmann::ordered_json::array();
  auto lists = nlohmann::ordered_json::array();
  for (const auto& [place, values] : heads_) {
    if (layers.empty() || layers.back() != place.first) {
      layers.push_back(place.first);
      lists.push_back(nlohmann::ordered_json::array());
    }
    lists.back().push_back(values);
  }
  Learned out;
  out.values = {{"layers", layers}, {std::string(name), lists}};
  out.options = nlohmann::ordered_json::object();
  out.summary = fmt::format("{} in each of {} layers and KV heads", what, heads_.size());
  return out;
}

void LearnedHeads::load(const ArtifactFile& file, std::string_view name,
                        const AttentionShape& shape, Index n) {
  check_shape(file.get(), shape);
  const std::vector<Index> layers = file.layers();
  const auto& lists = file.list(name, layers.size());
  const auto n_kv = static_cast<std::size_t>(shape.n_kv);
  heads_.clear();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (std::size_t head = 0; head < n_kv; ++head) {
      const auto& one = lists[i].is_array() && lists[i].size() == n_kv ? lists[i][head] : lists[i];
      put(layers[i], static_cast<Index>(head),
          file.numbers(one, static_cast<std::size_t>(n), name));
    }
  }
}

}  // namespace kvscope
