#include "analysis/cli/frame/list_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "analysis/options/exit_code.hpp"
#include "core/base/json.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "core/selectors/spec_lists.hpp"

namespace kvscope::cli {

std::vector<Index> index_list_of(std::string_view text, std::string_view option) {
  return as_usage([&] { return parse_index_list(text, fmt::format("--{}", option)); });
}

std::vector<MethodSpec> selectors_of(const std::vector<std::string>& lists) {
  return as_usage([&] { return parse_methods(lists, "--selector"); });
}

std::vector<Budget> budgets_of(const std::vector<std::string>& lists) {
  for (const std::string& list : lists) {
    for (const std::string& word : split_words(list, ',')) {
      if (word.find('=') != std::string::npos) break;  // "p=0.5,0.9": its kind goes on
      double share = 0.0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), share);
      if (error != std::errc() || end != word.data() + word.size() || !(share > 0.0 && share < 1.0))
        continue;
      throw UsageError(
          "--budget: a number alone is a number of tokens, found {}; a share of the "
          "keys is ratio={}, a share of the attention p={}",
          word, word, word);
    }
  }
  return as_usage([&] { return split_budgets(lists); });
}

std::vector<Index> counts_of(std::string_view list, std::string_view option) {
  constexpr Index kMost = Index{1} << 40;
  std::vector<Index> counts;
  for (const std::string& word : split_words(list, ',')) {
    const std::vector<std::string> ends = split_words(word, ':');
    const Index first = count_from(ends.front()).value_or(0);
    const Index last = count_from(ends.back()).value_or(0);
    if (first < 1 || last < 1 || last > kMost || ends.size() > 2) {
      throw UsageError(
          "--{}: expected whole numbers of at least 1 between commas, as 4096, 4k, 1M or 4k:1M, "
          "found \"{}\"",
          option, word);
    }
    if (last < first)
      throw UsageError("--{}: expected a range that ascends, as 4k:1M, found \"{}\"", option, word);
    for (Index n = first; n < last; n *= 2) counts.push_back(n);
    counts.push_back(last);
  }
  for (auto at = counts.begin(); at != counts.end(); ++at) {
    if (std::find(counts.begin(), at, *at) != at)
      throw UsageError("--{}: {} is given twice", option, *at);
  }
  return counts;
}

namespace {

/// Why the run cannot have this method; empty if it can.
std::string why_not(const SelectorEntry& entry, const MethodNeeds& needs) {
  if (!entry.caps.is_defined(needs.phase))
    return fmt::format("is not defined for {}", enum_name(needs.phase));
  if (entry.caps.needs_draft && !needs.has_draft) return "needs a draft model, and none is given";
  if (entry.caps.needs_rotation && !needs.has_rotation)
    return "needs to know how the model rotates its keys, and the recording does not say";
  if (entry.caps.needs_projection && !needs.has_projection)
    return "needs the model's output projection, which recordings do not have";
  if (entry.caps.cross_layer && !needs.has_like_layers)
    return "carries what it finds in one layer to others, and layers differ in heads or scores";
  if (!entry.caps.needs_calibration || needs.has_calibration) return "";
  return entry.caps.artifact_option.empty()
             ? std::string("learns from a calibration text, and none is given")
             : fmt::format(
                   "learns from a calibration text or a file of kvscope fit ({}=FILE), and "
                   "none is given",
                   entry.caps.artifact_option);
}

}  // namespace

MethodList methods_of(const std::vector<std::string>& lists, const MethodNeeds& needs) {
  std::vector<std::string> named;
  bool wants_all = false;
  for (const std::string& list : lists) {
    std::string rest;
    for (const std::string& word : split_words(list, ',')) {
      if (word == "all") {
        wants_all = true;
      } else {
        rest += (rest.empty() ? "" : ",") + word;
      }
    }
    if (!rest.empty() || list.empty()) named.push_back(rest);
  }
  MethodList out{.methods = selectors_of(named)};
  if (!wants_all) return out;
  const std::vector<MethodSpec> beside = out.methods;
  for (const SelectorEntry& entry : selector_registry().entries()) {
    const bool is_named = std::ranges::any_of(beside, [&](const MethodSpec& method) {
      return method.stages().size() == 1 && method.stages().front().method == &entry;
    });
    if (is_named) continue;
    const std::string reason = why_not(entry, needs);
    if (reason.empty()) {
      out.methods.emplace_back(entry.name);
    } else {
      out.left_out.push_back(fmt::format("{} {}", entry.name, reason));
    }
  }
  return out;
}

void SelectionOptions::declare(OptionSet& options) {
  options.add("layers", "LIST", "layers to include, as 0,4-7 [all]", layers);
  options.add("heads", "LIST", "query heads to include, with their KV heads, as 0,4-7 [all]",
              heads);
}

TraceSelection SelectionOptions::selection() const {
  TraceSelection selection;
  if (layers) selection.layers = index_list_of(*layers, "layers");
  if (heads) selection.q_heads = index_list_of(*heads, "heads");
  return selection;
}

Json SelectionOptions::with(const Json& fields) const {
  const TraceSelection chosen = selection();
  Json json;
  json["layers"] = layers ? Json(chosen.layers) : Json(nullptr);
  json["heads"] = heads ? Json(chosen.q_heads) : Json(nullptr);
  json.update(fields);
  return json;
}

}  // namespace kvscope::cli
