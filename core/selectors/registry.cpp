#include "core/selectors/registry.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

void register_all_selectors(SelectorRegistry& registry);  // the table that CMake writes

namespace {

SelectorRegistry& the_registry() {
  static SelectorRegistry registry = [] {
    SelectorRegistry all;
    register_all_selectors(all);
    return all;
  }();
  return registry;
}

/// "did you mean quest?", or what there is.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const int most_edits = std::max(2, static_cast<int>(word.size()) / 2);  // names are unlike words
  const std::optional<std::string> near = nearest(word, candidates, most_edits);
  return near ? fmt::format("did you mean {}?", *near)
              : fmt::format("known: {}", fmt::join(candidates, ", "));
}

bool is_method_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), fits);
}

}  // namespace

const SelectorRegistry& selector_registry() {
  return the_registry();
}

void put_own_selector(SelectorEntry entry) {
  the_registry().put(std::move(entry));
}

void SelectorRegistry::put(SelectorEntry entry) {
  if (!is_method_name(entry.name)) {
    throw ConfigError(
        "a selector's name: expected lower-case letters, digits and dashes, found \"{}\"",
        entry.name);
  }
  entry.is_own = true;
  for (SelectorEntry& known : entries_) {
    if (known.name != entry.name && !known.presets.contains(entry.name)) continue;
    if (!known.is_own) {
      throw ConfigError("selector {}: kvscope has a method of this name; expected another one",
                        entry.name);
    }
    known = std::move(entry);
    return;
  }
  entries_.push_back(std::move(entry));
}

const SelectorEntry& SelectorRegistry::find(std::string_view name) const {
  std::vector<std::string> names;
  for (const SelectorEntry& entry : entries_) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
    for (const auto& [preset, assignments] : entry.presets) names.push_back(preset);
  }
  throw ConfigError("unknown selector {}: {}", name, suggestion(name, names));
}

std::unique_ptr<Selector> SelectorRegistry::make(std::string_view spec) const {
  return MethodSpec::parse(*this, spec).make();
}

std::vector<SelectorOption> option_texts(std::span<const Option> options, void* object) {
  std::vector<SelectorOption> texts;
  visit_fields(options, object, [&](const Field& field, const auto& value) {
    texts.push_back({std::string(field.name), std::string(field.help), option_text(value),
                     expected_text(value)});
  });
  return texts;
}

void assign_options(std::string_view owner, const SelectorOptions& assignments,
                    std::span<const Option> options, void* object) {
  std::vector<std::string> known;
  visit_fields(options, object, [&](const Field& field, auto& value) {
    known.emplace_back(field.name);
    const auto it = assignments.find(field.name);
    if (it != assignments.end()) parse_field(field, it->second, value);
  });
  for (const auto& [name, value] : assignments) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw ConfigError("{} has no option {}: {}", owner, name, suggestion(name, known));
  }
  check_fields(options, object);
}

}  // namespace kvscope
