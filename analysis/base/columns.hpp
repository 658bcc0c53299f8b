// Arrays whose entries are numbers of a struct: one line per array says its name, where its number
// comes from, units, meaning, and what the totals of a summary make of it.
//
//   LayerColumns columns(output, n_layers);
//   ColumnsOf<QuestHeadStep> heads(columns, {n_q, n_steps}, {"q_head", "step"});
//   heads.add<float>("gap_best", &QuestHeadStep::gap_best, "logit", "bound minus true maximum",
//                    {{Total::mean, "gap_best"}});
//   for each layer:  heads.put(slot, step, row) ...;  totals.add();
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/base/layer_arrays.hpp"
#include "analysis/base/statistics.hpp"

namespace kvscope {

/// A number of the summary that follows from an array, and its key.
struct Total {
  enum How {
    mean,   // of the entries that are not NaN
    sum,    // of whole numbers
    count,  // entries that are not NaN
    zeros,  // share of the entries that are 0
    saved,  // 1 - sum / what there was to load
  };
  How how = mean;
  std::string key;
};
/// The arrays of one layer, and which totals they have, in the order of the summary.
struct LayerColumns {
  LayerColumns(ResultWriter& output, Index n_layers) : arrays(output, n_layers) {}

  struct Counted {
    Total total;
    std::size_t n = 0;       // entries
    std::size_t n_last = 1;  // extent of the last axis
    std::function<double(std::size_t)> at;
  };
  LayerArrays arrays;
  std::vector<Counted> counted;
};

/// The arrays [axes] that are filled from one Row per entry.
template <class Row>
class ColumnsOf {
 public:
  /// `columns` must outlive this object.
  ColumnsOf(LayerColumns& columns, const Shape& shape, std::vector<std::string> axes)
      : columns_(columns), shape_(shape), axes_(std::move(axes)) {}

  /// `from`: a member of Row, or a function of it.
  template <class T, class From>
  void add(const std::string& name, From from, const std::string& units,
           const std::string& long_name, const std::vector<Total>& totals = {}, T fill = T{}) {
    use(columns_.arrays.add<T>(name, shape_, axes_, units, long_name, fill), from, totals);
  }
  /// A number that totals need in full precision, and no file has.
  template <class T, class From>
  void add_unwritten(const std::string& name, From from, const std::vector<Total>& totals, T fill) {
    use(columns_.arrays.add_unwritten<T>(name, shape_, fill), from, totals);
  }

  const Shape& shape() const { return shape_; }
  /// The entry (a, b) of every array; different entries may be put from several threads.
  void put(Index a, Index b, const Row& row) const {
    for (const auto& put_one : puts_) put_one(static_cast<std::size_t>(a * shape_[1] + b), row);
  }

 private:
  template <class T, class From>
  void use(Tensor<T>& values, From from, const std::vector<Total>& totals) {
    puts_.push_back([&values, from](std::size_t at, const Row& row) {
      values.flat()[at] = static_cast<T>(std::invoke(from, row));
    });
    for (const Total& total : totals) {
      columns_.counted.push_back(
          {total, values.flat().size(), static_cast<std::size_t>(shape_[shape_.rank - 1]),
           [&values](std::size_t at) { return static_cast<double>(values.flat()[at]); }});
    }
  }

  LayerColumns& columns_;
  Shape shape_;
  std::vector<std::string> axes_;
  std::vector<std::function<void(std::size_t, const Row&)>> puts_;
};

/// The totals of some layers.
class Totals {
 public:
  /// After the last array was added. `columns` must outlive this object.
  explicit Totals(const LayerColumns& columns);

  /// The layer that is in the arrays now. `available`: by the last index of an entry, what there
  /// was to load; only Total::saved asks for it.
  void add(std::span<const std::int64_t> available = {});
  nlohmann::ordered_json to_json() const;

  /// Of `count`, `sum` and `saved`. Throws std::out_of_range for a key that there is not.
  std::int64_t sum_of(std::string_view key) const { return running_[find(key)].sum; }
  std::int64_t available_of(std::string_view key) const { return running_[find(key)].available; }

 private:
  struct Running {
    Mean mean;
    std::int64_t sum = 0;
    std::int64_t available = 0;
  };
  std::size_t find(std::string_view key) const;

  const LayerColumns& columns_;
  std::vector<Running> running_;  // as the columns' totals
};

}  // namespace kvscope
