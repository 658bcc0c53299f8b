#include "analysis/cli/runs/experiment_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/base/mapped.hpp"
#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/suggest.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace {

constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::string_view kCommandLineOnly[] = {"help", "config", "resume", "overwrite"};

/// The name under which a file may hold this positional argument: "TRACE" is "traces".
std::string key_of_positional(const OptionSpec& spec) {
  std::string key;
  for (char c : spec.name) key += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return key + "s";
}

std::string text_of(const nlohmann::json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw UsageError("{}: expected text, a number or true, found {}", where, describe(value));
}

std::vector<std::string> texts_of(const nlohmann::json& value, const std::string& where) {
  if (!value.is_array()) return {text_of(value, where)};
  return mapped<std::string>(value, [&](const auto& one) { return text_of(one, where); });
}

void apply(OptionSet& options, const OptionSpec& spec, const nlohmann::json& value,
           const std::string& where) {
  if (options.given(spec.name)) return;
  if (spec.placeholder.empty()) {
    if (!value.is_boolean())
      throw UsageError("{}: expected true or false, found {}", where, describe(value));
    if (value.get<bool>()) options.give(spec, "");
    return;
  }
  const std::vector<std::string> texts = texts_of(value, where);
  if (spec.repeatable) {
    for (const std::string& text : texts) options.give(spec, text);
  } else {
    options.give(spec, fmt::format("{}", fmt::join(texts, ",")));
  }
}

}  // namespace

void apply_experiment_file(const std::filesystem::path& file, OptionSet& options) {
  const nlohmann::json json = parse_json(read_whole_file(file, kMaxBytes), file.string());
  const JsonObject object(json, file.string());
  std::vector<std::string> known;
  for (const OptionSpec& spec : options.positionals()) known.push_back(key_of_positional(spec));
  for (const OptionSpec& spec : options.options()) {
    if (std::find(std::begin(kCommandLineOnly), std::end(kCommandLineOnly), spec.name) ==
        std::end(kCommandLineOnly)) {
      known.push_back(spec.name);
    }
  }
  for (const auto& [key, value] : json.items()) {
    const std::string name = detail::dashed(key);
    const std::string where = fmt::format("{}: {}", file.string(), key);
    if (std::ranges::find(known, name) == known.end()) {
      throw UsageError("{}: unknown key {}{}", file.string(), quote(key),
                       did_you_mean(name, known));
    }
    if (value.is_null()) continue;
    try {
      for (const OptionSpec& spec : options.positionals()) {
        if (key_of_positional(spec) == name) apply(options, spec, value, where);
      }
      for (const OptionSpec& spec : options.options()) {
        if (spec.name == name) apply(options, spec, value, where);
      }
    } catch (const ConfigError& error) {
      throw UsageError("{}: {}", file.string(), error.what());
    }
  }
}

}  // namespace kvscope::cli
