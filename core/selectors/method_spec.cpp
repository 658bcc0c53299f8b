#include "core/selectors/method_spec.hpp"

#include <algorithm>
#include <cassert>
#include <cctype>

#include "core/base/error.hpp"
#include "core/selectors/candidates.hpp"
#include "core/selectors/stack.hpp"

namespace kvscope {

namespace {

/// The stages' texts. A plus sign inside a number ("1e+3") does not part stages.
std::vector<std::string_view> split_stages(std::string_view text) {
  std::vector<std::string_view> stages;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool parts = text[i] == '+' && (i + 1 == text.size() ||
                                          !std::isdigit(static_cast<unsigned char>(text[i + 1])));
    if (!parts) continue;
    stages.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  stages.push_back(text.substr(begin));
  return stages;
}

const SelectorEntry& entry_of(const SelectorRegistry& registry, const std::string& name) {
  for (const SelectorEntry& entry : registry.entries()) {
    if (entry.presets.contains(name)) return entry;
  }
  return registry.find(name);
}

void assign_option(MethodSpec::Stage& stage, std::string_view option, std::string_view value) {
  const auto known =
      std::ranges::find(stage.options, option, &std::pair<std::string, std::string>::first);
  if (known != stage.options.end()) {
    known->second = value;
  } else {
    stage.options.emplace_back(option, value);
  }
}

/// Caps follow from options, which are the method's to check.
void update_caps(MethodSpec::Stage& stage) {
  const bool is_plain = stage.assignments().empty() && stage.wrappers.empty();
  stage.caps = is_plain ? stage.method->caps : stage.make()->caps();
}

/// "quoka:n-queries=8,pairing=rank".
MethodSpec::Stage parse_stage(const SelectorRegistry& registry, std::string_view text) {
  MethodSpec::Stage stage;
  const std::size_t colon = std::min(text.find_first_of(":,"), text.size());
  stage.name = text.substr(0, colon);
  stage.method = &entry_of(registry, stage.name);
  std::string_view rest = text.substr(std::min(colon + 1, text.size()));
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      throw ConfigError("selector {}: expected option=value, found \"{}\"", stage.name, item);
    assign_option(stage, item.substr(0, equals), item.substr(equals + 1));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  update_caps(stage);
  return stage;
}

std::string stage_text(const MethodSpec::Stage& stage) {
  std::string text = stage.name;
  for (const auto& [option, value] : stage.options) {
    text += fmt::format("{}{}={}", text.size() == stage.name.size() ? ':' : ',', option, value);
  }
  if (stage.budget) text += fmt::format("@{}", stage.budget->to_string());
  for (const WrapperSpec& wrapper : stage.wrappers) text += "+" + wrapper.text();
  return text;
}

void add_wrapper(MethodSpec::Stage& stage, std::string_view word, std::string_view text) {
  WrapperSpec wrapper = parse_wrapper(word);
  for (const WrapperSpec& earlier : stage.wrappers) {
    if (earlier.name != wrapper.name) continue;
    throw ConfigError("selector {}: {} is given twice around {}", text, wrapper.name, stage.name);
  }
  stage.wrappers.push_back(std::move(wrapper));
  update_caps(stage);
}

}  // namespace

bool MethodSpec::Stage::takes(std::string_view option) const {
  return std::ranges::find(method->options, option, &SelectorOption::name) != method->options.end();
}

bool MethodSpec::Stage::sets(std::string_view option) const {
  return std::ranges::any_of(options, [&](const auto& one) { return one.first == option; });
}

SelectorOptions MethodSpec::Stage::assignments() const {
  const auto preset = method->presets.find(name);
  SelectorOptions all = preset == method->presets.end() ? SelectorOptions{} : preset->second;
  for (const auto& [option, value] : options) all[option] = value;
  return all;
}

std::unique_ptr<Selector> MethodSpec::Stage::make() const {
  std::unique_ptr<Selector> selector = method->make(assignments());
  const auto of_preset = method->preset_wrappers.find(name);
  if (of_preset != method->preset_wrappers.end()) {
    for (const std::string_view word : split_stages(of_preset->second))
      selector = wrap(parse_wrapper(word), std::move(selector));
  }
  for (const WrapperSpec& wrapper : wrappers) selector = wrap(wrapper, std::move(selector));
  return selector;
}

MethodSpec MethodSpec::parse(const SelectorRegistry& registry, std::string_view text) {
  const std::vector<std::string_view> words = split_stages(text);
  const auto n_methods =
      words.size() - static_cast<std::size_t>(std::ranges::count_if(words, is_wrapper));
  const bool is_stack = n_methods > 1;
  MethodSpec spec;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (is_wrapper(word)) {
      if (spec.stages_.empty()) {
        throw ConfigError("selector {}: {} goes around the method before it, as quest+{}", text,
                          word, word);
      }
      add_wrapper(spec.stages_.back(), word, text);
      continue;
    }
    const bool is_last = spec.stages_.size() + 1 == n_methods;
    if (words.size() > 1 && word.empty())
      throw ConfigError("selector {}: a stage is empty, expected NAME[@BUDGET]+NAME", text);
    const std::size_t at = word.find('@');
    const bool has_budget = at != std::string_view::npos;
    if (has_budget && !is_stack) {
      throw ConfigError(
          "selector {}: only the lower stages of a stack (NAME@BUDGET+NAME) carry a budget", text);
    }
    Stage stage = parse_stage(registry, word.substr(0, at));
    for (const Stage& earlier : spec.stages_) {
      if (earlier.method == stage.method)
        throw ConfigError("selector {}: {} is given twice", text, stage.method->name);
    }
    if (has_budget && is_last) {
      throw ConfigError("selector {}: the last stage takes the budget of the run, found {}", text,
                        word.substr(at));
    }
    if (has_budget) {
      stage.budget = Budget::parse(word.substr(at + 1));
      check_budget_kind(stage.method->name, stage.caps, *stage.budget);
    } else if (!is_last && !stage.caps.budgets.empty()) {
      throw ConfigError("selector {}: stage {} needs its own budget, as {}@tokens=1024", text, word,
                        word);
    }
    spec.stages_.push_back(std::move(stage));
  }
  spec.update();
  return spec;
}

std::unique_ptr<Selector> MethodSpec::make() const {
  if (stages_.empty()) throw ConfigError("no selector is named: expected one, as quest");
  std::vector<StackStage> stages;
  for (const Stage& stage : stages_) {
    stages.push_back({stage.make(), stage.caps, stage.budget});
  }
  if (stages.size() == 1) return std::move(stages[0].selector);
  return make_stack(text_, caps_, std::move(stages));
}

bool MethodSpec::leaves_open(std::string_view option) const {
  return std::ranges::any_of(
      stages_, [&](const Stage& stage) { return stage.takes(option) && !stage.sets(option); });
}

void MethodSpec::assign(std::string_view option, const std::string& value, bool everywhere) {
  assert(!empty());
  MethodSpec changed = *this;
  bool is_known = false;
  for (Stage& stage : changed.stages_) {
    if (!stage.takes(option) || (!everywhere && stage.sets(option))) continue;
    is_known = true;
    assign_option(stage, option, value);
    update_caps(stage);
  }
  if (everywhere && !is_known) {
    stages_.back().method->make({{std::string(option), value}});  // refuses it, naming the nearest
  }
  changed.update();
  *this = std::move(changed);
}

void MethodSpec::update() {
  text_.clear();
  for (const Stage& stage : stages_) {
    text_ += fmt::format("{}{}", text_.empty() ? "" : "+", stage_text(stage));
  }
  if (stages_.empty()) return;
  caps_ = stages_.back().caps;
  for (std::size_t i = stages_.size() - 1; i-- > 0;) {
    caps_ = stacked_caps(stages_[i].caps, std::move(caps_));
  }
}

bool is_oracle(std::string_view text) {
  return text.starts_with("oracle") || method_name(text) == "ceiling";
}

std::string_view method_name(std::string_view text) {
  return text.substr(0, text.find(':'));
}

}  // namespace kvscope
