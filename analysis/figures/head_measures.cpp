#include "analysis/figures/head_measures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/figures/selection.hpp"
#include "analysis/kinds/heads.hpp"
#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/suggest.hpp"

namespace kvscope::figures {

namespace {

/// The methods whose losses the result holds, as "quest tokens=256".
struct Methods {
  explicit Methods(const ResultView& result) {
    for (const auto& method : result.summary().value("methods", Json::array())) {
      selectors.push_back(method.value("selector", std::string()));
      pairs.push_back(method.value("pair", std::string()));
    }
  }
  std::vector<std::string> selectors, pairs;
};

HeadNumbers loss_of(const ResultView& result, const Methods& methods, std::size_t method) {
  const ArrayData lost(result, "lost_mass");
  HeadNumbers out{
      "lost_mass", "Lost under " + method_label(methods.pairs[method]), true, false, {}};
  if (lost.spec.shape.rank != 3 ||
      lost.spec.shape[2] != static_cast<Index>(methods.selectors.size())) {
    throw FormatError("{}: lost_mass has shape {} for {} methods", result.name(),
                      to_string(lost.spec.shape), methods.selectors.size());
  }
  for (Index l = 0; l < lost.spec.shape[0]; ++l) {
    for (Index h = 0; h < lost.spec.shape[1]; ++h)
      out.values.push_back(lost(l, h, static_cast<Index>(method)));
  }
  return out;
}

std::size_t method_of(const ResultView& result, const Methods& methods, const std::string& selector,
                      std::string_view option) {
  const auto found = std::ranges::find(methods.selectors, selector);
  if (found == methods.selectors.end()) {
    throw ConfigError("{}: there is no {} in {}; it has {}{}", option, selector, result.name(),
                      fmt::join(methods.selectors, ", "),
                      did_you_mean(selector, methods.selectors));
  }
  return static_cast<std::size_t>(found - methods.selectors.begin());
}

bool says_nothing(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double x) { return std::isnan(x) || x == 0.0; });
}

}  // namespace

std::string HeadNumbers::words(double value) const {
  if (std::isnan(value)) return "–";
  if (is_difference) {
    const std::string words = fmt::format("{:+.{}f}", value,
                                          is_share                 ? 2
                                          : std::abs(value) < 9.95 ? 1
                                                                   : 0);
    return words.find_first_not_of("+-0.") == std::string::npos ? words.substr(1) : words;
  }
  if (is_share) return fmt::format("{:.2f}", value);
  return value < 9.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

HeadNumbers read_head_numbers(const ResultView& result, std::string_view name,
                              const std::string& selector, std::string_view option) {
  const Methods methods(result);
  if (name == "lost_mass") {
    if (methods.selectors.empty())
      throw ConfigError("{} holds no losses: it was made without --selector", result.name());
    return loss_of(result, methods,
                   selector.empty() ? 0 : method_of(result, methods, selector, option));
  }
  std::vector<std::string> names;
  for (const HeadMeasure& measure : kHeadMeasures) {
    if (measure.name == name)
      return {std::string(name), std::string(measure.label), measure.is_share,
              /*is_difference=*/false, result.read(name)};
    names.emplace_back(measure.name);
  }
  names.emplace_back("lost_mass");
  throw ConfigError("there is no measure \"{}\" of heads; choose from {}{}", name,
                    fmt::join(names, ", "), did_you_mean(std::string(name), names));
}

std::vector<HeadNumbers> all_head_numbers(const ResultView& result, const std::string& selector) {
  std::vector<HeadNumbers> all;
  for (const HeadMeasure& measure : kHeadMeasures) {
    if (measure.name == "retrieval_chance") continue;
    all.push_back(read_head_numbers(result, measure.name, ""));
    if (says_nothing(all.back().values)) all.pop_back();
  }
  const Methods methods(result);
  for (std::size_t m = 0; m < methods.selectors.size(); ++m) {
    if (selector.empty() || methods.selectors[m] == selector)
      all.push_back(loss_of(result, methods, m));
  }
  if (!selector.empty())
    method_of(result, methods, selector, "selector");  // refuses an unknown one
  return all;
}

}  // namespace kvscope::figures
