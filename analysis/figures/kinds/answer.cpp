// What dropped keys cost the answer: surprise of the dense model's tokens with and without them,
// and what each head's keys bring back.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "analysis/base/mapped.hpp"
#include "analysis/base/statistics.hpp"
#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/trace/result.hpp"

namespace kvscope {

namespace {

/// Means over the first axis (prompts) of the numbers that are there.
std::vector<Mean> means_over_prompts(const ResultView& result, std::string_view name) {
  const figures::ArrayData data(result, name);
  if (data.spec.shape.rank < 2 || data.spec.shape[0] < 1)
    throw FormatError("{}: {} has no prompts", result.name(), name);
  const auto n = data.values.size() / static_cast<std::size_t>(data.spec.shape[0]);
  std::vector<Mean> means(n);
  for (std::size_t i = 0; i < data.values.size(); ++i) means[i % n].add(data.values[i]);
  return means;
}

std::vector<double> mean_over_prompts(const ResultView& result, std::string_view name) {
  return mapped<double>(means_over_prompts(result, name), &Mean::value);
}

/// "1 to 2": of how many prompts a head's cell is, where it is of any.
std::string prompts_of_heads(const ResultView& result) {
  std::set<std::int64_t> counts;
  for (const Mean& mean : means_over_prompts(result, "heads/recovered"))
    if (mean.n() > 0) counts.insert(mean.n());
  if (counts.size() < 2) return counts.empty() ? "0" : fmt::format("{}", *counts.begin());
  return fmt::format("{} to {}", *counts.begin(), *counts.rbegin());
}

plot::Panel surprise_panel(const ResultView& result) {
  plot::Panel panel{.x = {.label = "Token of the answer", .whole_numbers = true},
                    .y = {.label = "Surprise (nats)"},
                    .legend = plot::LegendPlace::inside};
  const auto add = [&](const char* array, const char* label, plot::Tone tone) {
    plot::Line line{.label = label, .tone = tone};
    for (const double surprise : mean_over_prompts(result, array))
      line.add(static_cast<double>(line.x.size() + 1), surprise);
    panel.marks.push_back(std::move(line));
  };
  add("steps/dense_surprise", "full attention", {plot::Role::reference, 0});
  const std::string method = text_at(result.info().config, "selector", "method");
  add("steps/sparse_surprise", figures::method_label(method).c_str(),
      {plot::Role::series, figures::method_slot(method).value_or(0)});
  return panel;
}

plot::Panel heads_panel(const ResultView& result) {
  const auto layers = result.read("layer");
  const auto heads = result.read("q_head");
  const std::vector<double> shares = mean_over_prompts(result, "heads/recovered");
  if (shares.size() != layers.size() * heads.size()) {
    throw FormatError("{}: {} shares for {} x {} heads", result.name(), shares.size(),
                      layers.size(), heads.size());
  }
  double most = 0.0;
  for (const double share : shares) most = std::fmax(most, std::abs(share));
  if (most == 0.0) most = 1.0;
  return figures::head_panel(layers, heads, shares,
                             {.axis = {.label = "Share of the loss that comes back",
                                       .range = plot::Range{-most, most},
                                       .format = plot::TickFormat::percent},
                              .map = plot::ColourMap::diverging,
                              .masked_label = "dense or not tried"});
}

plot::Figure make_answer(const FigureInput& input) {
  const ResultView& result = *input.results[0];
  plot::Figure figure = figures::side_by_side(surprise_panel(result), heads_panel(result));
  std::vector<std::string> said;
  if (const Json* prompts = list_at(result.summary(), "prompts")) {
    for (const Json& prompt : *prompts) {
      const std::string sentence = text_at(prompt, "sentence");
      if (!sentence.empty()) said.push_back(sentence);
    }
  }
  const Json& config = result.info().config;
  const std::string budget = text_at(config, "budget");
  figure.caption.push_back(fmt::format(
      "{}{} on {}; {}. Heads: one's dropped keys put back in the call of the explained token.",
      figures::method_label(text_at(config, "selector", "method")),
      budget.empty() ? "" : " at " + budget, text_at(config, "model", "a model"),
      said.size() == 1 ? "one prompt" : fmt::format("means over {} prompts", said.size())));
  if (const double n = number_at(totals_of(result.summary()), "prompts");
      n > static_cast<double>(said.size()))
    figure.caption.push_back(
        fmt::format("{:g} prompts were asked; the others are not explained.", n));
  if (said.size() == 1) figure.caption.push_back(said.front());
  if (said.size() > 1)
    figure.caption.push_back(fmt::format(
        "A head's cell: of {} prompts, those in which its layer was among the tried ones.",
        prompts_of_heads(result)));
  return figure;
}

}  // namespace

FigureKind figure_answer() {
  return {
      .name = "answer",
      .shows = "what dropped keys cost the answer, token by token, and which heads' keys mend it",
      .needs = "an explanation of answers",
      .command =
          "kvscope explain --selector quest:dense-layers=0 --budget 48 --facts 6 --lengths 600 "
          "--depths 1 --out answer.h5",
      .kinds = {"explain-answer"},
      .options = {},
      .make = make_answer,
  };
}

}  // namespace kvscope
