// From results and a report of kvscope cost to the points of kvscope pareto.
#pragma once

#include <filesystem>

#include "analysis/cost/hardware.hpp"
#include "analysis/cost/pareto.hpp"
#include "core/base/vocabulary.hpp"
#include "core/tensor/tensor.hpp"

namespace kvscope::cli {

enum class ParetoMetric { perplexity, mass, accuracy };

/// What a metric's loss is called, and its unit where it is multiplied by 100.
std::string loss_of(ParetoMetric metric);
std::string unit_of(ParetoMetric metric);

struct ParetoRequest {
  std::vector<std::filesystem::path> files;  // results
  HardwareProfile card;
  ParetoMetric metric = ParetoMetric::perplexity;
  std::optional<std::filesystem::path> costs;  // a report of kvscope cost; empty: of the results
  std::optional<Index> context;                // of the times; empty: as recorded
  Index batch = 1;
};

struct ParetoInput {
  std::vector<ParetoPoint> points;  // full attention among them
  std::string model;                // empty: not known
  std::string measured;             // "loss measured at 2048 tokens, ", or nothing
  std::string timed;                // "of a decode step at 32768 tokens"
  bool is_far = false;              // the time is of a longer context than the loss
  std::vector<std::string> left_out;
};

/// Losses are means over the rows of a method at a budget: layers without a window, kinds and
/// lengths of prompts, texts; intervals are averaged in the same way. Throws ConfigError: a result
/// without the metric or without full attention, results of several models or phases, no times, or
/// times of another card, context, model or phase.
ParetoInput read_pareto(const ParetoRequest& request);

}  // namespace kvscope::cli
