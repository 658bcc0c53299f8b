#include "analysis/figures/head_overlap.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/figures/maps.hpp"
#include "analysis/figures/selection.hpp"
#include "analysis/figures/spec.hpp"
#include "analysis/figures/summary_rows.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/nan.hpp"
#include "core/trace/result.hpp"

namespace kvscope::figures {

namespace {

/// The metric of the couple as it stands in the result.
std::string stored_name(const std::string& metric, bool is_swapped) {
  if (!is_swapped) return metric;
  if (metric == "first_mass") return "second_mass";
  return metric == "second_mass" ? "first_mass" : metric;
}

}  // namespace

CoupleSlot find_couple(const ResultView& overlap, const std::string& first,
                       const std::string& second) {
  const Json* couples = list_at(overlap.summary(), "couples");
  if (couples == nullptr || couples->empty())
    throw FormatError("{}: the summary has no couples", overlap.name());
  std::vector<std::string> names;
  for (std::size_t slot = 0; slot < couples->size(); ++slot) {
    const std::string a = text_at((*couples)[slot], "first");
    const std::string b = text_at((*couples)[slot], "second");
    const auto fits = [](const std::string& wanted, const std::string& there) {
      return wanted.empty() || wanted == there;
    };
    if (fits(first, a) && fits(second, b)) return {slot, false};
    if (fits(first, b) && fits(second, a)) return {slot, true};
    names.push_back(fmt::format("{} and {}", a, b));
  }
  throw ConfigError("selector, against: {} compares no {} with {}; it has {}", overlap.name(),
                    first.empty() ? "method" : first, second.empty() ? "another" : second,
                    fmt::join(names, "; "));
}

std::optional<HeadOverlap> head_overlap(const FigureInput& input) {
  if (input.results.size() < 2 || input.results[1]->info().kind != "overlap") return std::nullopt;
  const ResultView& atlas = *input.results[0];
  const ResultView& overlap = *input.results[1];
  const FigureOptions& options = input.options;
  if (!options.match.empty())
    throw ConfigError("match: an overlap is of the same heads; leave it out");
  const CoupleSlot couple = find_couple(overlap, options.selector, options.against);
  const Json& names = (*list_at(overlap.summary(), "couples"))[couple.slot];
  std::string first = method_label(text_at(names, "first"));
  std::string second = method_label(text_at(names, "second"));
  if (couple.is_swapped) std::swap(first, second);
  const std::string metric = options.metric.empty() ? "jaccard" : options.metric;
  const std::size_t what =
      metric_slot(metric, {"jaccard", "shared_mass", "first_mass", "second_mass"});

  HeadOverlap out;
  out.numbers.name = metric;
  out.numbers.is_share = true;
  out.numbers.label =
      std::array<std::string, 4>{"Keys in common", "Attention on keys that both keep",
                                 fmt::format("Attention on keys that only {} keeps", first),
                                 fmt::format("Attention on keys that only {} keeps", second)}[what];
  const std::string budget = text_at(names, "budget");
  out.sentence = fmt::format(
      "{} of {} and {}{}; keys before each call",
      what == 0
          ? "keys that both keep, of the keys that one of them keeps,"
          : fmt::format("attention on keys that {}",
                        what == 1 ? "both keep,"
                                  : fmt::format("only {} keeps,", what == 2 ? first : second)),
      first, second, budget.empty() ? std::string() : " at " + method_label(budget));

  const ArrayData values(overlap, stored_name(metric, couple.is_swapped));
  const auto its_layers = overlap.read("layer");
  const auto its_heads = overlap.read("q_head");
  values.require_shape({static_cast<Index>(its_layers.size()), static_cast<Index>(its_heads.size()),
                        static_cast<Index>(list_at(overlap.summary(), "couples")->size())});
  for (const double layer : atlas.read("layer")) {
    for (const double head : atlas.read("q_head")) {
      const auto l = std::ranges::find(its_layers, layer);
      const auto h = std::ranges::find(its_heads, head);
      out.numbers.values.push_back(l == its_layers.end() || h == its_heads.end()
                                       ? kNan
                                       : values(l - its_layers.begin(), h - its_heads.begin(),
                                                static_cast<Index>(couple.slot)));
    }
  }
  return out;
}

}  // namespace kvscope::figures
