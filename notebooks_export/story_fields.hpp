// Fields of a story file: what every part reads them with, and the parts that stand in lists.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"
#include "core/base/vocabulary.hpp"
#include "notebooks_export/story.hpp"

namespace kvscope::story_fields {

inline constexpr std::int64_t kMostPosition = (std::int64_t{1} << 31) - 1;

/// Refuses fields that stories do not have: a word spelled wrongly would be passed over in silence.
void only(const JsonObject& object, std::initializer_list<const char*> known);

/// At most that many bytes; empty without the field.
std::string text_in(const JsonObject& object, const std::string& field, std::size_t most);
std::optional<Index> position_in(const JsonObject& object, const std::string& field);
/// [first, last] as positions.
std::optional<TokenRange> range_in(const JsonObject& object, const std::string& field);
void check_length(const JsonObject& object, const std::string& field, const nlohmann::json& list,
                  std::size_t most);

/// The entries of a list, each with its place in it ("steps[2].").
template <class Visit>
void each_entry(const JsonObject& object, const std::string& field, std::size_t most,
                Visit&& visit) {
  if (!object.has(field)) return;
  const nlohmann::json& list = object.list(field);
  check_length(object, field, list, most);
  for (std::size_t i = 0; i < list.size(); ++i) visit(list[i], fmt::format("{}[{}]", field, i));
}

/// What `read` makes of a field; its complaint gets the field's name.
template <class Read>
auto read_field(const JsonObject& object, const std::string& field, Read&& read) {
  try {
    return read();
  } catch (const ConfigError& e) {
    throw FormatError("{}: {}", object.name_of(field), e.what());
  }
}

StoryMethod method_in(const JsonObject& object);
/// place: what messages call it.
StoryMark mark_in(const JsonObject& object, const std::string& place);
std::vector<StoryPanel> panels_in(const JsonObject& step);
/// Names of results are relative to `folder`.
StoryFigure figure_in(const JsonObject& object, const std::filesystem::path& folder);

}  // namespace kvscope::story_fields
