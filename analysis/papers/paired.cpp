#include "analysis/papers/paired.hpp"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <map>

#include "analysis/base/paired_numbers.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/simulate/intervals.hpp"
#include "analysis/simulate/row_units.hpp"
#include "core/base/nan.hpp"
#include "core/base/number_text.hpp"

namespace kvscope::papers {

namespace {

bool is_of_perplexity(const std::string& column) {
  return column == "perplexity" || column == "relative_increase";
}

bool is_of_layers(const Value& value) {
  return value.column.starts_with("totals.") && value.spread == Spread::rows &&
         value.derive == Derive::none;
}

/// Left and what its units are paired with.
struct Sides {
  const Value* left = nullptr;
  const Value* right = nullptr;
};
Sides sides_of(const Item& item, const Check& check) {
  Sides sides{item.find(check.left), item.find(check.right)};
  if (sides.left != nullptr && sides.right == nullptr && sides.left->derive == Derive::ratio &&
      is_of_perplexity(sides.left->column))
    sides.right = item.find(sides.left->than);
  return sides;
}

/// Means by unit over the rows that a value reads: of the rows' units, or heads.
using ByUnit = std::map<std::pair<std::string, std::size_t>, Mean>;

ByUnit by_row_units(const ResultView& view, const Table& table, const Value& value) {
  ByUnit units;
  const auto all = view.read(kRowUnits);
  const Shape& shape = view.require(kRowUnits).shape;
  const auto width = static_cast<std::size_t>(shape[1]);
  for (const std::size_t row : rows_where(table, value.where)) {
    if (row >= static_cast<std::size_t>(shape[0])) continue;
    std::string cell;  // rows of one cell have the same units
    for (const char* name : {"protocol", "kind", "length", "depth", "turn"}) {
      if (const TableColumn* column = table.find(name)) cell += column->cell(row) + "/";
    }
    for (std::size_t unit = 0; unit < width; ++unit)
      units[{cell, unit}].add(all[row * width + unit]);
  }
  return units;
}

/// By layer and head; of totals, by layer alone.
ByUnit by_layers_and_heads(const Table& table, const Value& value) {
  const bool is_total = is_of_layers(value);
  // rows of layers are asked for by an empty q_head: here those of their heads
  std::string where = value.where;
  const std::size_t at = where.find("q_head=");
  where = at == where.npos ? where : where.substr(0, at) + "q_head>=0" + where.substr(at + 7);
  ByUnit units;
  const auto numbers = table.numbers(is_total ? value.column.substr(7) : value.column);
  for (const std::size_t row : rows_where(table, where)) {
    const std::string layer = is_total ? "" : table.at("layer").cell(row);
    const double last = table.numbers(is_total ? "layer" : "q_head")[row];
    units[{layer, static_cast<std::size_t>(last)}].add(value.factor * numbers[row]);
  }
  return units;
}

/// Mean over the rows that a value reads; of full attention, whose cost is what is compared: NaN.
double kept_by(const Table& table, const Value& value) {
  if (!table.has("kept") || value.where.find("selector=full") != std::string::npos) return kNan;
  Mean kept;
  for (const std::size_t row : rows_where(table, value.where)) kept.add(table.numbers("kept")[row]);
  return kept.value();
}

double normal_quantile(double p) {
  return boost::math::quantile(boost::math::normal(), p);
}

Index count(const Differences& differences, double wanted) {
  return static_cast<Index>(std::ranges::count(differences.of, wanted));
}

}  // namespace

std::string pairing_word(Pairing pairing) {
  return pairing == Pairing::prompt  ? "prompts"
         : pairing == Pairing::block ? "blocks of 64 tokens"
         : pairing == Pairing::head  ? "heads of one text"
         : pairing == Pairing::layer ? "layers of one text"
                                     : "";
}

double usual_size(Pairing pairing) {
  return pairing == Pairing::prompt  ? 0.1
         : pairing == Pairing::block ? 0.01
         : pairing == Pairing::head  ? 0.02
                                     : 0.0;
}

Pairing pairing_of(const Item& item, const Check& check) {
  const auto [left, right] = sides_of(item, check);
  if (left == nullptr || left == right || check.role == Role::needs) return Pairing::none;
  if (is_of_layers(*left) &&
      (right == nullptr || (is_of_layers(*right) && left->run == right->run)))
    return Pairing::layer;
  if (right == nullptr || left->run != right->run || left->column != right->column)
    return Pairing::none;
  const bool same = left->derive == right->derive && left->than == right->than;
  const bool is_ratio_to_it = left->derive == Derive::ratio && left->than == right->key;
  if (is_of_perplexity(left->column))
    return same || is_ratio_to_it ? Pairing::block : Pairing::none;
  if (left->derive != Derive::none || right->derive != Derive::none) return Pairing::none;
  if (left->column == "accuracy") return Pairing::prompt;
  return left->where.find("q_head=") != std::string::npos && left->spread == Spread::recorded
             ? Pairing::head
             : Pairing::none;
}

std::optional<Differences> differences_of(const Item& item, const Check& check,
                                          const FindRun& find_run) {
  Differences differences{.pairing = pairing_of(item, check)};
  if (differences.pairing == Pairing::none) return std::nullopt;
  const auto [left, right] = sides_of(item, check);
  const ResultView* const view = find_run(left->run).view;
  if (view == nullptr) return std::nullopt;
  const Table table = rows_of(*view);
  const bool is_of_rows = differences.pairing == Pairing::head ||  // else of prompts or blocks
                          differences.pairing == Pairing::layer;
  const auto has_units = [&](const Value* value) {
    if (!is_of_rows || value == nullptr) return is_of_rows || view->find(kRowUnits) != nullptr;
    return table.has("layer") &&
           table.has(is_of_layers(*value) ? value->column.substr(7) : std::string("q_head"));
  };
  if (!has_units(left) || !has_units(right)) return std::nullopt;
  const auto units = [&](const Value& value) {
    return is_of_rows ? by_layers_and_heads(table, value) : by_row_units(*view, table, value);
  };
  const ByUnit of_right = right != nullptr ? units(*right) : ByUnit{};
  for (const auto& [unit, mean] : units(*left)) {
    const auto other = of_right.find(unit);
    if (right != nullptr && other == of_right.end()) continue;
    const double difference = mean.value() - (right != nullptr ? other->second.value() : 0.0);
    if (std::isnan(difference)) continue;
    differences.of.push_back(difference);
    differences.units.push_back(unit.second);
  }
  if (differences.of.size() < 2) return std::nullopt;
  if (differences.pairing == Pairing::layer) return differences;
  differences.kept_left = kept_by(table, *left);
  differences.kept_right = kept_by(table, *right);
  return differences;
}

double threshold_of(const Item& item, const Check& check) {
  const double sign = check.op == Op::at_least ? -1.0 : check.op == Op::at_most ? 1.0 : 0.0;
  if (item.find(check.right) != nullptr) return sign * check.slack;
  const double number = number_from<double>(check.right).value_or(0.0) + sign * check.slack;
  return pairing_of(item, check) == Pairing::block ? std::log(number) : number;
}

Interval interval_of(const Differences& differences, double confidence) {
  const Interval all = paired_interval(differences.of, confidence);
  const double most = differences.pairing == Pairing::prompt ? 1.0 : INFINITY;  // of scores
  return {std::max(-most, all.low), std::min(most, all.high)};
}

double p_of(const Differences& differences) {
  if (are_of_right_and_wrong(differences.of))
    return mcnemar_exact(count(differences, 1.0), count(differences, -1.0));
  const auto n = static_cast<double>(differences.of.size());
  const double error = paired_spread(differences.of) / std::sqrt(n);
  if (error == 0.0) return mean(differences.of) == 0.0 ? 1.0 : 0.0;
  const double t = std::abs(mean(differences.of)) / error;
  return 2.0 * boost::math::cdf(boost::math::complement(boost::math::students_t(n - 1.0), t));
}

double power(double size, double spread, double n) {
  if (!(spread > 0.0)) return 1.0;
  return boost::math::cdf(boost::math::normal(),
                          std::abs(size) * std::sqrt(n) / spread - normal_quantile(0.975));
}

double units_needed(double size, double spread) {
  const double z = normal_quantile(0.975) + normal_quantile(0.8);
  return std::ceil(std::pow(z * spread / size, 2.0));
}

}  // namespace kvscope::papers
