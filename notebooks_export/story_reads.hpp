// What words read, as a story's text shows it: the heaviest keys of every query, and what methods
// do with each of them.
#pragma once

#include "core/base/vocabulary.hpp"
#include "notebooks_export/story_cells.hpp"
#include "notebooks_export/story_kept.hpp"
#include "notebooks_export/story_plan.hpp"

namespace kvscope {

class WordReads {
 public:
  /// Throws what reading a trace throws.
  WordReads(const PlannedReads& plan, const TraceSource& trace, ThreadPool& pool,
            const std::stop_token& stop);
  /// A row under one of the plan's methods, by its place among them. Safe from several threads.
  void put(std::size_t method, const KeptQueryRow& row);

  /// Per query and key: the key in 32 bits (-1: none), its page_code, and two bytes of flags, in
  /// which bit m says that method m keeps it, and that it does so by rule; base64.
  std::string encode() const;
  /// share_code of the mass that each method keeps of each query, base64.
  std::string encode_masses() const;
  static double encoded_bytes(const PlannedReads& plan);

 private:
  const PlannedReads& plan_;
  HeavyKeys heavy_;
  std::vector<std::uint8_t> kept_;   // [queries, most]
  std::vector<std::uint8_t> ruled_;  // [queries, most]
  std::vector<double> masses_;       // [queries, methods]; NaN: not answered
};

}  // namespace kvscope
