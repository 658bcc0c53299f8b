// A story: views of traces in an order, with notes, arrows and boxes, as a file that people write.
// notebooks_export/stories/README.md explains the fields.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "analysis/base/trace_selection.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "core/base/vocabulary.hpp"
#include "core/selectors/method_spec.hpp"

namespace kvscope {

enum class StoryPanel {
  map,     // one head's attention, with the keys that methods keep
  text,    // the text, each word shaded by what a method loses there
  atlas,   // many heads, one of them large
  figure,  // what kvscope figure draws
};

/// An arrow or a box: on the map by positions of queries and keys, on the text by positions.
struct StoryMark {
  enum class Kind { box, arrow, words };
  Kind kind = Kind::box;
  TokenRange queries;      // box
  TokenRange keys;         // box
  Index from[2] = {0, 0};  // arrow: query and key
  Index to[2] = {0, 0};
  TokenRange words;              // words: a box around them in the text
  std::optional<TokenRange> at;  // words: an arrow leads from the first ones to these
  std::string label;
};

/// A method under a budget, as kvscope sweep names them.
struct StoryMethod {
  MethodSpec method;
  std::optional<Budget> budget;  // empty for methods that take none
  /// "quest:page-size=16 at tokens=64".
  std::string words() const;
};

/// What of a trace a step shows. Positions are absolute; empty ranges mean all.
struct StoryView {
  std::filesystem::path trace;
  std::filesystem::path draft;  // of methods that need one; empty: none
  std::optional<Index> layer;
  std::optional<Index> head;
  TraceSelection atlas;  // panel atlas: the heads
  std::optional<TokenRange> queries;
  std::optional<TokenRange> keys;
  std::optional<Index> query;  // held when the step opens
  std::optional<Index> key;
  std::vector<StoryMethod> methods;
  Index chunk = 128;  // B_CP of methods in the prompt
  std::optional<Index> dense_layers;
};

/// A figure of results.
struct StoryFigure {
  std::string kind;
  std::vector<std::filesystem::path> results;
  FigureOptions options;
};

struct StoryStep {
  std::string title;
  std::string note;  // paragraphs; **bold**, `code` and [words](https://address)
  std::vector<StoryPanel> panels;
  StoryView view;
  std::vector<StoryMark> marks;
  std::optional<StoryFigure> figure;

  bool shows(StoryPanel panel) const;
};

struct Story {
  std::string title;
  std::string author;
  std::vector<StoryStep> steps;
};

/// Limits of a story file, so that a page stays one that people can read.
inline constexpr std::size_t kMostStorySteps = 100;
inline constexpr std::size_t kMostStoryMarks = 50;   // per step
inline constexpr std::size_t kMostStoryMethods = 7;  // per step
inline constexpr std::size_t kMostStoryResults = 8;  // of a figure
inline constexpr std::size_t kMostTitleBytes = 200;  // titles, authors, labels
inline constexpr std::size_t kMostNoteBytes = 8000;
inline constexpr std::size_t kMostStoryBytes = std::size_t{8} << 20;  // of the file

/// Reads a story, or the bookmarks of a saved session of kvscope-explorer as one. Names of files
/// in it are relative to `folder`. Throws FormatError: the file, the field, what was expected and
/// found.
Story story_from_text(std::string_view text, const std::string& where,
                      const std::filesystem::path& folder);
/// The same from a file, whose folder its names are relative to. Throws IoError too.
Story read_story(const std::filesystem::path& file);

/// The bookmarks of a session as a story file: a step each, its note, head, query, key and method.
/// Throws FormatError if there are none, or if one is of a trace that the session does not name.
nlohmann::ordered_json story_of_session(const nlohmann::json& session, const std::string& where);

/// The note as HTML. What is text stays text: only **bold**, `code`, paragraphs and links that
/// begin with https://, http:// or mailto: become marks.
std::string note_html(std::string_view note);
/// The note without its marks, in one line.
std::string note_words(std::string_view note);

}  // namespace kvscope
