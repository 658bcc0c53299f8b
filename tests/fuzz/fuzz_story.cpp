// Any text as a story or a session with bookmarks: read within its limits, or a FormatError; notes
// become HTML without a tag of their own.
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "notebooks_export/story.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvscope;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const Story story = story_from_text(text, "fuzz", "/");
    if (story.steps.empty() || story.steps.size() > kMostStorySteps) std::abort();
    for (const StoryStep& step : story.steps) {
      if (step.panels.empty() || step.marks.size() > kMostStoryMarks) std::abort();
    }
  } catch (const FormatError&) {
  }
  const std::string html = note_html(text);
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::string_view tag = std::string_view(html).substr(at + 1, 4);
    const bool is_ours = tag.starts_with("p>") || tag.starts_with("/p>") || tag.starts_with("b>") ||
                         tag.starts_with("/b>") || tag.starts_with("code") || tag == "/cod" ||
                         tag.starts_with("a ") || tag.starts_with("/a>");
    if (!is_ours) std::abort();
  }
  return 0;
}
