// Is what was recorded finite? Every number of a KV group is read once; norms come along.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gui/model/document.hpp"
#include "gui/model/jobs.hpp"

namespace kvscope::gui {

/// Norms of one array of one head, in at most kNormBins bins of neighbouring positions.
struct HeadNorms {
  Index head = 0;        // true index: of queries for q, of keys for k
  TokenRange positions;  // recorded ones
  double mean = 0.0;     // over all finite rows
  double largest = 0.0;
  std::vector<float> bins;  // mean Euclidean norm; NaN where no row of the bin could be read
};
inline constexpr Index kNormBins = 120;

/// The first number of a head that is not finite.
struct DataProblem {
  Index layer = 0;
  std::string array;  // "q", "k" or "v"
  Index head = 0;     // true index: of queries for q, else of keys
  Index pos = 0;      // of the first row that could not be read
  std::string what;   // "NaN", "Inf", or the reader's own words
  /// "Layer 3, query head 5: q holds NaN, first at position 17."
  std::string sentence() const;
};

/// One KV head of one layer and the recorded query heads that read it.
struct GroupCheck {
  std::vector<HeadNorms> q;  // recorded query heads of the group, ascending
  HeadNorms k;
  std::vector<DataProblem> problems;
  std::size_t bytes() const;
};

/// For keys of a cache, after Document::key().
std::string group_check_key(Index layer, Index kv_head);

/// Reads q, k and v of the group from the file, some thousand rows at a time, past the cache of
/// slices. Throws ConfigError if the group was not recorded, Interrupted when stopped. What cannot
/// be read is a problem in the answer, not an error.
GroupCheck check_group(const Document& document, Index layer, Index kv_head, JobContext& job);

}  // namespace kvscope::gui
