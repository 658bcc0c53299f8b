// Numbers that a method learned for every layer and KV head, as many for each, and their place in a
// file of `kvscope fit`.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/learned.hpp"

namespace kvscope {

/// Number: double, or Index for whole numbers from 0.
template <class Number>
class LearnedHeads {
 public:
  using Heads = std::vector<std::vector<Number>>;  // [n_kv][n]

  /// Puts what learn(layer, kv_head) makes of each, on all threads.
  template <class Learn>
  void learn(std::span<const Index> layers, Index n_kv, ThreadPool& pool, const Learn& learn) {
    std::vector<Heads> made(layers.size(), Heads(static_cast<std::size_t>(n_kv)));
    pool.parallel_for(static_cast<Index>(layers.size()) * n_kv, [&](Index i, int) {
      const auto layer = static_cast<std::size_t>(i / n_kv);
      made[layer][static_cast<std::size_t>(i % n_kv)] = learn(layers[layer], i % n_kv);
    });
    for (std::size_t i = 0; i < made.size(); ++i) layers_[layers[i]] = std::move(made[i]);
  }
  void put(Index layer, Index kv_head, std::vector<Number> values) {
    Heads& heads = layers_[layer];
    heads.resize(std::max(heads.size(), static_cast<std::size_t>(kv_head) + 1));
    heads[static_cast<std::size_t>(kv_head)] = std::move(values);
  }
  void clear() { layers_.clear(); }
  const std::map<Index, Heads>& layers() const { return layers_; }

  /// Empty span: nothing was learned there.
  std::span<const Number> find(Index layer, Index kv_head) const {
    const auto it = layers_.find(layer);
    const bool is_known = it != layers_.end() && kv_head < std::ssize(it->second);
    return is_known ? it->second[static_cast<std::size_t>(kv_head)] : std::span<const Number>();
  }
  /// The same; throws ConfigError that begins with the method's name where nothing was learned, and
  /// names the option that takes a file.
  std::span<const Number> of(std::string_view method, std::string_view option,
                             const SelectCall& call, Index kv_head) const {
    const std::span<const Number> values = find(call.layer, kv_head);
    if (!values.empty()) return values;
    throw ConfigError(
        "{0}: layer {1}, KV head {2} was not calibrated: calibrate it on a text, or name a file "
        "with {3}=FILE (kvscope fit {0} TRACE --out FILE)",
        method, call.layer, kv_head, option);
  }
  /// The same, of n numbers for keys of n / per_channel channels; throws ShapeError for another
  /// number.
  std::span<const Number> of_channels(std::string_view method, std::string_view option,
                                      const SelectCall& call, Index kv_head,
                                      Index per_channel = 1) const {
    const std::span<const Number> values = of(method, option, call, kv_head);
    const auto found = static_cast<Index>(values.size()) / per_channel;
    if (found == call.k.dim(2)) return values;
    throw ShapeError("{}: calibrated with keys of {} channels, found keys of {} in layer {}",
                     method, found, call.k.dim(2), call.layer);
  }

  /// values: layers, and of each layer a list of the heads' numbers (of their lists, where each has
  /// more than one) under `name`. what: "the main direction of the queries".
  Learned learned(std::string_view name, std::string_view what) const {
    auto layers = nlohmann::ordered_json::array();
    auto lists = nlohmann::ordered_json::array();
    std::size_t n_heads = 0;
    for (const auto& [layer, heads] : layers_) {
      layers.push_back(layer);
      lists.push_back(nlohmann::ordered_json::array());
      for (const std::vector<Number>& head : heads) {
        lists.back().push_back(head.size() == 1 ? nlohmann::ordered_json(head.front())
                                                : nlohmann::ordered_json(head));
      }
      n_heads += heads.size();
    }
    Learned out;
    out.values = {{"layers", layers}, {std::string(name), lists}};
    out.options = nlohmann::ordered_json::object();
    out.summary = fmt::format("{} in each of {} layers and KV heads", what, n_heads);
    return out;
  }
  /// Takes what learned() wrote, n numbers for each KV head (whole ones: at most `high`). Throws
  /// what check_shape and ArtifactFile throw.
  void load(const ArtifactFile& file, std::string_view name, const AttentionShape& shape, Index n,
            Index high = 0) {
    check_shape(file.get(), shape);
    const auto read = [&](const nlohmann::ordered_json& value, Index count) {
      const auto size = static_cast<std::size_t>(count);
      if constexpr (std::same_as<Number, Index>) {
        return file.indices(value, size, 0, high, name);
      } else {
        return file.numbers(value, size, name);
      }
    };
    const std::vector<Index> layers = file.layers();
    const auto& lists = file.list(name, layers.size());
    layers_.clear();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Heads& heads = layers_[layers[i]];
      if (n == 1) {
        for (const Number x : read(lists[i], shape.n_kv)) heads.push_back({x});
        continue;
      }
      const bool is_list = lists[i].is_array() && std::ssize(lists[i]) == shape.n_kv;
      for (std::size_t head = 0; head < static_cast<std::size_t>(shape.n_kv); ++head)
        heads.push_back(read(is_list ? lists[i][head] : lists[i], n));
    }
  }

 private:
  std::map<Index, Heads> layers_;
};

}  // namespace kvscope
