// Small trace files and a session over them, for the tests of the explorer's models.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "gui/model/session/session.hpp"
#include "tests/traces/synthetic.hpp"

namespace kvscope::gui::test {

using kvscope::test::make_trace;
using kvscope::test::Plan;
using kvscope::test::slurp;
using kvscope::test::spill;
using kvscope::test::SyntheticTrace;
using kvscope::test::TempFolder;

/// Writes the whole trace; replaces an earlier file.
std::filesystem::path write_trace(const std::filesystem::path& path, const SyntheticTrace& trace);

/// Replaces the one place in the file that holds `was` followed by `next` (f32).
void overwrite_number(const std::filesystem::path& path, float was, float next, float now);

/// A session with its threads and its cache.
struct Bench {
  explicit Bench(std::size_t cache_bytes = std::size_t{1} << 24);
  Session& session() { return *session_; }
  /// Opens files and waits until they are there, or until their problem is a notice.
  void open(const std::filesystem::path& path);
  void drain();
  std::shared_ptr<const Document> document();

  Cache cache;
  JobRunner jobs;

 private:
  std::unique_ptr<Session> session_;
};

/// A document of its own, outside any session. Fails the test if it cannot be opened.
std::shared_ptr<const Document> open_document(const std::filesystem::path& path, Cache& cache);

}  // namespace kvscope::gui::test
