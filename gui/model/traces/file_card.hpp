// What a list of files says of one before it is opened: a small picture of its heads, what it is,
// how its text begins. Made once, and kept in a folder of the cache while the file stays as it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gui/model/jobs/jobs.hpp"
#include "gui/model/traces/document.hpp"

namespace kvscope::gui {

struct FileCard {
  std::string words;  // "verifier · 2080 tokens · complete", "result: sweep"
  std::string text;   // how a trace's text begins; may be empty
  /// Attention maps of up to four heads of the middle layer side by side, queries downwards: 0
  /// where a cell has no weight, else 1 to 255 over four decades. Empty for what is no trace.
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> shades;  // [height, width]
  std::size_t bytes() const { return sizeof *this + words.size() + text.size() + shades.size(); }
  bool operator==(const FileCard&) const = default;
};

/// Reads a trace's metadata and one layer, or what a result is. A file that is neither says why in
/// `words`. Throws Interrupted on a stop.
FileCard make_file_card(const std::filesystem::path& file, const JobContext& job);

/// The card that `folder` keeps for this state of the file, else a new one, which it keeps from now
/// on; an empty folder keeps nothing. At most kMostKeptCards: the oldest go first. What cannot be
/// written is made again the next time.
FileCard kept_file_card(const std::filesystem::path& file, const FileStamp& stamp,
                        const std::filesystem::path& folder, const JobContext& job);
inline constexpr std::size_t kMostKeptCards = 64;

}  // namespace kvscope::gui
