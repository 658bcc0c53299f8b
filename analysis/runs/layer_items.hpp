// Analyses in items: one layer each. An item keeps the arrays of its layer; at the end the analysis
// runs over layers that are all known, which makes the same summary and the same file as a run that
// computed them.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "analysis/base/layer_store.hpp"
#include "analysis/base/null_result.hpp"
#include "analysis/runs/work.hpp"
#include "core/trace/result_writer.hpp"

namespace kvscope {

/// A writer that drops everything and keeps the arrays of one layer.
class OneLayer final : public NullResult, public LayerStore {
 public:
  explicit OneLayer(Index slot) : slot_(slot) {}
  bool knows(Index slot) const override { return slot != slot_; }
  void restore(const std::string&, Index, std::span<std::byte>) const override {}
  void keep(const std::string& name, Index slot, std::span<const std::byte> values) override;
  /// The layer's arrays by name, as text.
  nlohmann::ordered_json answer() const;

 private:
  Index slot_;
  std::map<std::string, std::string> arrays_;  // as text
};

/// Hands everything on to another writer, and knows the layers of a store.
class KnownLayers final : public ResultWriter, public LayerStore {
 public:
  /// Throws FormatError if a layer is missing. `to` must outlive this object.
  KnownLayers(ResultWriter& to, const Work& work, const Store& store);
  bool knows(Index slot) const override { return layers_.contains(slot); }
  void restore(const std::string& name, Index slot, std::span<std::byte> values) const override;
  void keep(const std::string&, Index, std::span<const std::byte>) override {}

  void begin(const ResultInfo& info) override { to_.begin(info); }
  void declare(const ResultArray& array) override { to_.declare(array); }
  void add_plot(const ResultPlot& plot) override { to_.add_plot(plot); }
  void finish(const nlohmann::ordered_json& summary) override { to_.finish(summary); }

 protected:
  void write_raw(std::string_view name, ResultType type, Index first, const void* data,
                 Index n_elements) override;

 private:
  ResultWriter& to_;
  std::string where_;
  std::map<Index, std::map<std::string, std::string>> layers_;
};

/// `config`: everything that decides the numbers, traces included. `analyze` runs the analysis on a
/// writer.
Work layer_work(const std::string& command, const nlohmann::ordered_json& config,
                std::size_t n_layers,
                std::function<void(ResultWriter&, const ProgressFn&, std::stop_token)> analyze);

}  // namespace kvscope
