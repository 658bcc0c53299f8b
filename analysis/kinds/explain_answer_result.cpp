#include <algorithm>
#include <numeric>

#include "analysis/base/analysis.hpp"
#include "analysis/base/measure_layers.hpp"
#include "analysis/kinds/explain_answer.hpp"
#include "core/base/nan.hpp"

namespace kvscope {

namespace {

std::vector<Index> count_from_zero(Index n) {
  std::vector<Index> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), Index{0});
  return out;
}

/// A row of `shape` for each prompt, which `fill` fills where it has something.
template <class Fill>
void write_rows(ResultWriter& output, const std::string& name, const Shape& shape,
                std::vector<std::string> axes, const std::string& units, const std::string& text,
                std::span<const AnswerBlame> blames, const Fill& fill) {
  Shape all{n_of(blames)};
  for (int axis = 0; axis < shape.rank; ++axis)
    all.dim[static_cast<std::size_t>(all.rank++)] = shape[axis];
  axes.insert(axes.begin(), "prompt");
  output.declare({name, ResultType::f64, all, std::move(axes), units, text});
  for (Index i = 0; i < n_of(blames); ++i) {
    std::vector<double> row(static_cast<std::size_t>(shape.count()), kNan);
    fill(blames[static_cast<std::size_t>(i)], row);
    output.write<double>(name, i, row);
  }
}

}  // namespace

void write_blames(std::span<const AnswerBlame> blames, const ModelConfig& config,
                  ResultWriter& output) {
  write_axis(output, "layer", count_from_zero(config.n_layers), "1", "layer");
  write_axis(output, "q_head", count_from_zero(config.n_q), "1", "query head");
  Index n_steps = 0;
  for (const AnswerBlame& blame : blames) n_steps = std::max(n_steps, n_of(blame.steps));
  const auto steps = [&](const char* name, const char* text, double AnswerStep::*number) {
    write_rows(output, name, {n_steps}, {"step"}, "nat", text, blames,
               [&](const AnswerBlame& blame, std::vector<double>& row) {
                 std::ranges::transform(blame.steps, row.begin(),
                                        [&](const AnswerStep& step) { return step.*number; });
               });
  };
  steps("steps/dense_surprise", "surprise of the dense model's token, densely",
        &AnswerStep::dense_surprise);
  steps("steps/sparse_surprise", "surprise of the dense model's token under the method",
        &AnswerStep::sparse_surprise);
  steps("steps/kl", "KL of the next token's distributions, dense to sparse", &AnswerStep::kl);
  const char* const share = "share of the loss that comes back";
  write_rows(output, "layers/recovered", {config.n_layers}, {"layer"}, "1", share, blames,
             [](const AnswerBlame& blame, std::vector<double>& row) {
               for (const Restored& one : blame.layers)
                 row[static_cast<std::size_t>(one.what.layer)] = one.recovered;
             });
  write_rows(output, "heads/recovered", {config.n_layers, config.n_q}, {"layer", "q_head"}, "1",
             share, blames, [&](const AnswerBlame& blame, std::vector<double>& row) {
               for (const Restored& one : blame.heads)
                 row[static_cast<std::size_t>(one.what.layer * config.n_q + one.what.q_head)] =
                     one.recovered;
             });
}

}  // namespace kvscope
