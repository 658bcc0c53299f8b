// kvscope selectors: which methods there are, what they take, and where they come from.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <sstream>

#include "analysis/cli/frame/command.hpp"
#include "analysis/cli/frame/common_options.hpp"
#include "analysis/cli/frame/filled_text.hpp"
#include "analysis/cli/frame/output.hpp"
#include "analysis/cli/frame/text_table.hpp"
#include "core/base/json.hpp"
#include "core/selectors/list_owner.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/wrappers.hpp"

namespace kvscope::cli {
namespace {

std::vector<std::string> phases_of(const SelectorCaps& caps) {
  std::vector<std::string> phases;
  if (caps.prefill) phases.emplace_back(enum_name(Phase::prefill));
  if (caps.decode) phases.emplace_back(enum_name(Phase::decode));
  if (caps.verify) phases.emplace_back(enum_name(Phase::verify));
  return phases;
}

std::vector<std::string> budgets_of(const SelectorCaps& caps) {
  std::vector<std::string> kinds;
  for (const Budget::Kind kind : caps.budgets) kinds.emplace_back(enum_name(kind));
  return kinds;
}

std::vector<std::string> needs_of(const SelectorCaps& caps) {
  std::vector<std::string> needs;
  if (caps.needs_draft) needs.emplace_back("draft trace");
  if (caps.needs_values) needs.emplace_back("values");
  if (caps.needs_rotation) needs.emplace_back("the model's rotary embedding");
  if (caps.needs_projection) needs.emplace_back("the model's output projection (simulate)");
  if (caps.needs_calibration)
    needs.push_back(fmt::format("calibration (or {}=FILE)", caps.artifact_option));
  if (caps.cross_layer) needs.emplace_back("layers in order");
  if (caps.needs_side) needs.emplace_back("a recording of the model's indexer");
  return needs;
}

/// What the method and its presets lack of what was published, by name.
std::map<std::string, std::string> lacking_of(const SelectorEntry& entry) {
  std::map<std::string, std::string> out;
  for (const auto& [name, part] : selector_registry().lacking()) {
    if (name == entry.name || entry.presets.contains(name)) out[name] = part;
  }
  return out;
}

Json json_of(const std::vector<SelectorOption>& options) {
  Json list = Json::array();
  for (const SelectorOption& option : options) {
    list.push_back({{"name", option.name},
                    {"default", option.default_value},
                    {"expected", option.expected},
                    {"help", option.help}});
  }
  return list;
}

std::string options_text(const std::vector<SelectorOption>& options) {
  return filled_table(json_of(options), {{"option", "{name}"},
                                         {"default", "{default}"},
                                         {"expected", "{expected}"},
                                         {"meaning", "{help}"}});
}

Json json_of(const SelectorEntry& entry) {
  Json json = {{"name", entry.name},
               {"title", entry.title},
               {"source", entry.source},
               {"idea", entry.idea},
               {"family", std::string(enum_name(entry.family))},
               {"phases", phases_of(entry.caps)},
               {"list_owner", std::string(words_for(entry.caps.owner))},
               {"budgets", budgets_of(entry.caps)},
               {"forced_inside_budget", entry.caps.forced_inside_budget},
               {"permanent", entry.caps.permanent},
               {"page_size", entry.caps.page_size},
               {"dense_layers", entry.caps.dense_layers},
               {"needs", needs_of(entry.caps)},
               {"options", json_of(entry.options)},
               {"presets", Json::object()}};
  for (const auto& [preset, assignments] : entry.presets) {
    json["presets"][preset] = Json::object();
    for (const auto& [option, value] : assignments) json["presets"][preset][option] = value;
  }
  for (const auto& [preset, wrapper] : entry.preset_wrappers)
    json["preset_wrappers"][preset] = wrapper;
  for (const auto& [name, part] : lacking_of(entry)) json["lacks"][name] = part;
  return json;
}

std::string list(const std::vector<std::string>& words) {
  return words.empty() ? std::string("none") : fmt::format("{}", fmt::join(words, ", "));
}

/// The options that a preset sets, "block=512, mix=mean"; with its wrapper.
std::string settings_of(const SelectorEntry& entry, const std::string& preset) {
  std::vector<std::string> words;
  for (const auto& [option, value] : entry.presets.at(preset))
    words.push_back(fmt::format("{}={}", option, value));
  const auto wrapper = entry.preset_wrappers.find(preset);
  return list(words) + (wrapper == entry.preset_wrappers.end() ? "" : " +" + wrapper->second);
}

std::string details_of(const SelectorEntry& entry) {
  std::string text = fmt::format(
      "{}: {}\n{}\nfamily: {}\nsource: {}\nphases: {}; one list per {}; budgets: {}; needs: {}\n\n",
      entry.name, entry.title, entry.idea, title_of(entry.family), entry.source,
      list(phases_of(entry.caps)), words_for(entry.caps.owner), list(budgets_of(entry.caps)),
      list(needs_of(entry.caps)));
  if (!entry.options.empty()) text += options_text(entry.options);
  for (const auto& [preset, assignments] : entry.presets)
    text += fmt::format("preset {}: {}\n", preset, settings_of(entry, preset));
  for (const auto& [name, part] : lacking_of(entry))
    text += fmt::format("{} lacks {}\n", name, part);
  return text;
}

/// All methods under the headings of their families, in columns that are common to all; presets
/// below their method.
std::string listing(const std::deque<SelectorEntry>& entries) {
  TextTable table({"  name", "phases", "list per", "budgets", "idea"});
  std::vector<const SelectorEntry*> order;
  for (const SelectorEntry& entry : entries) order.push_back(&entry);
  std::ranges::stable_sort(
      order, [](const SelectorEntry* a, const SelectorEntry* b) { return a->family < b->family; });
  for (const SelectorEntry* entry : order) {
    const std::vector<std::string> phases = phases_of(entry->caps);
    table.add_row({"  " + entry->name,
                   phases.size() == 3 ? "all" : fmt::format("{}", fmt::join(phases, " ")),
                   std::string(words_for(entry->caps.owner)),
                   fmt::format("{}", fmt::join(budgets_of(entry->caps), " ")), entry->idea});
  }
  std::istringstream lines(table.text());
  std::string text;
  std::string line;
  // The header and its rule.
  for (int i = 0; i < 2 && std::getline(lines, line); ++i) text += line + "\n";
  const SelectorEntry* before = nullptr;
  for (const SelectorEntry* entry : order) {
    if (before == nullptr || before->family != entry->family)
      text += fmt::format("\n{}\n", title_of(entry->family));
    before = entry;
    std::getline(lines, line);
    text += line + "\n";
    std::vector<std::string> presets;
    for (const auto& [preset, assignments] : entry->presets) presets.push_back(preset);
    if (!presets.empty()) text += fmt::format("    presets: {}\n", fmt::join(presets, ", "));
  }
  return text;
}

std::string details_of(const WrapperEntry& entry) {
  return fmt::format("{}: a wrapper, written behind a method with a plus sign\n{}\n\n{}",
                     entry.name, entry.idea, options_text(entry.options));
}

class SelectorsCommand final : public Command {
 public:
  CommandCard card() const override {
    return {
        "selectors",
        "list the selection methods and their options",
        "Methods can be stacked with plus signs, each but the last with its own budget: "
        "keydiff@tokens=2048+quest@tokens=512+oracle-topp evicts, then selects pages, then "
        "prunes to a share of the attention. A stage chooses among the keys that those before "
        "it left. Two wrappers follow a method after a plus sign, without a budget of their "
        "own: quest+coarsen:owner=layer,page=64 shares one list among all heads in pages of 64, "
        "quest+every=4 chooses at every fourth step; kvscope selectors coarsen explains them.",
        {{"kvscope selectors", "all methods"},
         {"kvscope selectors quest", "options and presets of one"}}};
  }
  void declare(OptionSet& options) override {
    options.positional("NAME", "one method, preset or wrapper", name_, /*required=*/false);
    declare_json(options, json_);
  }
  int run(const OptionSet&, const std::string&) override {
    const SelectorRegistry& registry = selector_registry();
    if (name_) {
      tell(registry, *name_);
      return kOk;
    }
    if (json_) {
      Json all = Json::array();
      for (const SelectorEntry& entry : registry.entries()) all.push_back(json_of(entry));
      print_json({{"selectors", all}});
      return kOk;
    }
    print(listing(registry.entries()));
    return kOk;
  }

 private:
  /// A method, a preset of one, or a wrapper.
  void tell(const SelectorRegistry& registry, const std::string& name) const {
    for (const WrapperEntry& entry : wrapper_entries()) {
      if (entry.name != name) continue;
      if (json_) {
        print_json({{"name", entry.name},
                    {"idea", entry.idea},
                    {"is_wrapper", true},
                    {"options", json_of(entry.options)}});
      } else {
        print(details_of(entry));
      }
      return;
    }
    for (const SelectorEntry& entry : registry.entries()) {
      const auto preset = entry.presets.find(name);
      if (preset == entry.presets.end()) continue;
      if (json_) {
        Json json = {{"name", name}, {"preset_of", entry.name}, {"sets", Json::object()}};
        for (const auto& [option, value] : preset->second) json["sets"][option] = value;
        json["method"] = json_of(entry);
        print_json(json);
      } else {
        print("{}: a preset of {} with {}\n\n{}", name, entry.name, settings_of(entry, name),
              details_of(entry));
      }
      return;
    }
    const SelectorEntry& entry = registry.find(name);
    json_ ? print_json(json_of(entry)) : print(details_of(entry));
  }

  std::optional<std::string> name_;
  bool json_ = false;
};

}  // namespace

KVSCOPE_COMMAND(320, SelectorsCommand)

}  // namespace kvscope::cli
