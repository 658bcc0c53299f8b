#include "analysis/cli/pareto_points.hpp"

#include <cmath>
#include <map>
#include <set>

#include "analysis/base/statistics.hpp"
#include "analysis/cli/kit.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/summary_rows.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/open_result.hpp"
#include "notebooks_export/table_fields.hpp"
#include "notebooks_export/table_units.hpp"

namespace kvscope::cli {

namespace {

using figures::number_at;
using figures::text_at;

/// How a result spells a metric, and what its loss is called.
struct MetricColumns {
  std::string column, low, high;
  std::string loss;
  std::string unit;  // of the loss times 100
};

const MetricColumns& metric_columns(ParetoMetric metric) {
  static const std::array<MetricColumns, 3> kColumns = {
      {{"relative_increase", "relative_increase_low", "relative_increase_high",
        "an increase of the perplexity", " %"},
       {"mass_mean", "mass_low", "mass_high", "a loss of attention mass", " %"},
       {"accuracy", "accuracy_low", "accuracy_high", "a loss of accuracy", " points"}}};
  return kColumns[static_cast<std::size_t>(metric)];
}

double number_in(const Table& table, const std::string& column, std::size_t row) {
  return table.has(column) ? table.numbers(column)[row] : kNan;
}

std::string word_in(const Table& table, const std::string& column, std::size_t row) {
  return table.has_text(column) ? table.text(column).at(row) : std::string();
}

/// A row's method at its budget, as a point without numbers.
ParetoPoint method_at(const Table& table, std::size_t row) {
  ParetoPoint point;
  point.selector = table.text("selector").at(row);
  point.budget_kind = word_in(table, "budget_kind", row);
  point.budget = number_in(table, "budget", row);
  const RowRole role = role_of_method(point.selector);
  point.is_reference = role == RowRole::oracle || role == RowRole::control;
  return point;
}

/// Means over the cells of a method at a budget: layers, kinds and lengths of prompts, texts.
struct Measured {
  ParetoPoint point;
  Mean value, density, us, dense_us;
  figures::MeanEnds ends;
  std::vector<std::size_t> rows;  // of the table
  CellUnits units;                // what they are means of, where the results hold it
};

using Methods = std::map<std::string, Measured>;  // by ParetoPoint::text

class ParetoReader {
 public:
  explicit ParetoReader(const ParetoRequest& request) : request_(request) {}

  ParetoInput read() {
    Methods methods = read_losses();
    if (request_.costs) read_costs(methods);
    out_.points = points_of(std::move(methods));
    return std::move(out_);
  }

 private:
  const MetricColumns& columns() const { return metric_columns(request_.metric); }

  /// The losses of all results, and the times of sweeps that have them.
  Methods read_losses() {
    Table table("the results");
    for (const fs::path& file : request_.files) {
      const auto result = open_result(file);
      const Json& config = result->info().config;
      const std::string card = config.is_object() && config.contains("hardware")
                                   ? text_at(config["hardware"], "name")
                                   : std::string();
      if (!card.empty() && card != request_.card.name && !request_.costs)
        throw ConfigError("{}: its predicted times are of {}, not of {}", file.string(), card,
                          request_.card.name);
      table.append(rows_of(*result));
      if (!table.has(columns().column) || !table.has_text("selector"))
        throw ConfigError(
            "{}: there is no {} in it; perplexity and accuracy are measured by "
            "kvscope simulate, mass by kvscope sweep",
            file.string(), enum_name(request_.metric));
    }
    Methods methods;
    std::set<std::string> models, phases;
    std::set<double> lengths;
    for (std::size_t r = 0; r < table.n_rows(); ++r) {
      // one head and layers with a sliding window stand in a sweep's table alone
      const bool is_layer = std::isnan(number_in(table, "q_head", r)) &&
                            !(number_in(table, "window", r) != 0.0 && table.has("window"));
      const double value = number_in(table, columns().column, r);
      if (!is_layer || std::isnan(value)) continue;
      ParetoPoint point = method_at(table, r);
      Measured& method = methods[point.text()];
      method.point = std::move(point);
      method.value.add(value);
      method.rows.push_back(r);
      method.ends.add(number_in(table, columns().low, r), number_in(table, columns().high, r));
      method.density.add(number_in(table, "density", r));
      method.us.add(number_in(table, "predicted_us", r));
      method.dense_us.add(number_in(table, "predicted_dense_us", r));
      for (const char* column : {"n_tokens", "length"}) {
        if (table.has(column)) lengths.insert(number_in(table, column, r));
      }
      if (table.has_text("model")) models.insert(word_in(table, "model", r));
      const std::string phase = word_in(table, table.has_text("phase") ? "phase" : "protocol", r);
      if (phase == "prefill" || phase == "decode") phases.insert(phase);
    }
    if (models.size() > 1)
      throw ConfigError("the results are of several models ({}): a front is of one",
                        fmt::join(models, ", "));
    if (phases.size() > 1)
      throw ConfigError("the results are of prefill and of decode: a front is of one of them");
    if (!lengths.empty()) {
      longest_ = *lengths.rbegin();
      out_.measured = fmt::format("loss measured at {} tokens, ", fmt::join(lengths, " and "));
    } else if (request_.context) {
      out_.measured = "loss measured at the recording's own length, ";
    }
    if (!models.empty()) out_.model = *models.begin();
    if (!phases.empty()) phase_ = *phases.begin();
    if (request_.metric == ParetoMetric::accuracy) {
      for (auto& [text, method] : methods)
        method.units = units_of_cell(table, table.at(columns().column), method.rows);
    }
    return methods;
  }

  /// Times of the methods from a report of kvscope cost.
  void read_costs(Methods& methods) {
    const auto result = open_result(*request_.costs);
    const Table table = rows_of(*result);
    const std::string file = request_.costs->string();
    if (result->info().kind != "cost" || !table.has("predicted_us"))
      throw ConfigError("{}: expected what kvscope cost --out wrote", file);
    const std::string model = text_at(result->info().config, "model");
    if (!model.empty() && !out_.model.empty() && model != out_.model)
      throw ConfigError("{} is of {}, the results are of {}", file, model, out_.model);
    for (auto& [text, method] : methods) method.us = method.dense_us = {};
    std::set<std::string> known;
    bool has_card = false;
    for (std::size_t r = 0; r < table.n_rows(); ++r) {
      known.insert(fmt::format("{} at {} tokens, batch {}", word_in(table, "hardware", r),
                               number_text(number_in(table, "context", r), 8),
                               number_in(table, "batch", r)));
      const bool is_context = request_.context ? number_in(table, "context", r) ==
                                                     static_cast<double>(*request_.context)
                                               : number_in(table, "extrapolated", r) == 0.0;
      if (word_in(table, "hardware", r) != request_.card.name || !is_context ||
          number_in(table, "batch", r) != static_cast<double>(request_.batch))
        continue;
      const std::string phase = word_in(table, "phase", r);
      if (!phase_.empty() && phase != phase_)
        throw ConfigError("{} is of {}, the results are of {}", file, phase, phase_);
      has_card = true;
      // a recording of 2048 tokens and some more is not far from a text of 2048
      out_.is_far = std::isnan(longest_) ? request_.context.has_value()
                                         : number_in(table, "context", r) > 1.25 * longest_;
      out_.timed = fmt::format("of {} at {} tokens{}",
                               phase == "decode" ? "a decode step" : "a " + phase + " call",
                               number_text(std::round(number_in(table, "context", r)), 8),
                               request_.batch > 1 ? fmt::format(", batch {}", request_.batch) : "");
      const auto method = methods.find(method_at(table, r).text());
      if (method == methods.end()) continue;
      Measured& found = method->second;
      found.us.add(number_in(table, "predicted_us", r));
      found.dense_us.add(number_in(table, "predicted_dense_us", r));
      found.point.call_speedup = number_in(table, "call_speedup", r);
      found.point.break_even = number_in(table, "break_even", r);
    }
    if (!has_card)
      throw ConfigError("{} has no times of {}{}, batch {}: it has {}", file, request_.card.name,
                        request_.context ? fmt::format(" at {} tokens", *request_.context) : "",
                        request_.batch, fmt::join(known, "; "));
  }

  void set_loss(Measured& method, const Measured* full) const {
    ParetoPoint& point = method.point;
    const double value = method.value.value();
    const double low = method.ends.low();
    const double high = method.ends.high();
    if (request_.metric == ParetoMetric::perplexity) {
      point.loss = value, point.low = low, point.high = high;
    } else if (request_.metric == ParetoMetric::mass) {
      point.loss = 1.0 - value, point.low = 1.0 - high, point.high = 1.0 - low;
    } else {
      const double dense = full->value.value();
      point.loss = dense - value;
      if (const auto paired = paired_interval_of(full->units, method.units)) {
        point.low = paired->low, point.high = paired->high;
      } else {  // of two intervals that are not paired (Newcombe's)
        point.low = point.loss - std::hypot(dense - full->ends.low(), high - value);
        point.high = point.loss + std::hypot(full->ends.high() - dense, value - low);
      }
    }
  }

  std::vector<ParetoPoint> points_of(Methods methods) {
    const auto full = methods.find("full");
    if (full == methods.end() && request_.metric != ParetoMetric::mass)
      throw ConfigError(
          "the results have no row of full attention: add full to --selector of kvscope simulate");
    double dense_us = kNan;
    std::vector<ParetoPoint> points;
    for (auto& [text, method] : methods) {
      ParetoPoint& point = method.point;
      point.us = method.us.value();
      point.dense_us = method.dense_us.value();
      if (!std::isnan(point.dense_us)) dense_us = point.dense_us;
      if (text == "full") continue;
      if (std::isnan(point.us)) {
        out_.left_out.push_back(text + ": no predicted time");
      } else if (method.density.value() >= 1.0) {
        out_.left_out.push_back(text + ": it left no key out there");
      } else {
        set_loss(method, full == methods.end() ? nullptr : &full->second);
        points.push_back(point);
      }
    }
    if (points.empty())
      throw ConfigError(
          "nothing is left to compare: {}; predicted times are made by kvscope cost "
          "TRACE --hardware {} --out cost.json with the same methods and budgets "
          "(then --costs cost.json), or by kvscope sweep --hardware {}",
          fmt::join(out_.left_out, "; "), request_.card.name, request_.card.name);
    ParetoPoint dense;
    dense.selector = "full";
    dense.budget_kind = "none";
    dense.us = dense.dense_us = dense_us;
    dense.loss = dense.low = dense.high = 0.0;
    if (full != methods.end()) dense.call_speedup = full->second.point.call_speedup;
    points.push_back(dense);
    return points;
  }

  const ParetoRequest& request_;
  ParetoInput out_{.timed = "at the sweep's own length"};
  std::string phase_;      // of the results; empty: not known
  double longest_ = kNan;  // of the lengths at which losses were measured
};

}  // namespace

std::string loss_of(ParetoMetric metric) {
  return metric_columns(metric).loss;
}

std::string unit_of(ParetoMetric metric) {
  return metric_columns(metric).unit;
}

ParetoInput read_pareto(const ParetoRequest& request) {
  return ParetoReader(request).read();
}

}  // namespace kvscope::cli
