// A power cut must not take what a command said it wrote: bytes are on the device before they get
// their name, and so is the name before the command ends.

#include "tests/cli/run_program.hpp"
#include "tests/support/places.hpp"
#include "tests/support/sanitizers.hpp"

namespace kvscope::test::synced_files_test {

/// Runs a command that has to succeed; its calls to the disk in their order, as "sync /the/file".
Words calls_of(const TempDir& dir, const Words& words) {
  const fs::path log = dir.path() / "log";
  fs::remove(log);
  ran(words,
      {"",
       {"LD_PRELOAD=" + testing::failing_disk().string(), "KVSCOPE_DISK_LOG=" + log.string()},
       false,
       false});
  Words calls;
  std::ifstream in(log);
  for (std::string line; std::getline(in, line);) calls.push_back(line);
  return calls;
}

std::ptrdiff_t last(const Words& calls, const std::string& call) {
  const auto at = std::find(calls.rbegin(), calls.rend(), call);
  return calls.rend() - at - 1;  // -1: never
}

std::ptrdiff_t first_after(const Words& calls, std::ptrdiff_t begin, const std::string& call) {
  return std::find(calls.begin() + begin, calls.end(), call) - calls.begin();
}

/// The file that was written last before `out` got its name.
std::string written_before(const Words& calls, std::ptrdiff_t named) {
  constexpr std::string_view kWrite = "write ";
  for (std::ptrdiff_t i = named; i-- > 0;) {
    const std::string& call = calls[i];
    if (call.starts_with(kWrite)) return call.substr(kWrite.size());
  }
  return {};
}

void check_synced(const Words& calls, const fs::path& out) {
  INFO(out);
  const std::ptrdiff_t named = last(calls, "name " + out.string());
  REQUIRE(named > 0);
  const std::string growing = written_before(calls, named);
  INFO("written as " << growing);
  REQUIRE_FALSE(growing.empty());
  const Words before(calls.begin(), calls.begin() + named);
  CHECK(last(before, "write " + growing) < last(before, "sync " + growing));
  CHECK(first_after(calls, named, "sync " + out.parent_path().string()) < std::ssize(calls));
}

TEST_CASE("what a command writes is on the device before it has its name, and so is the name") {
  if (test::kAddressSanitizer) SKIP("AddressSanitizer wants no library loaded before its own");
  const TempDir dir;
  const std::string trace = dir.file("trace.h5");
  const std::string csv = dir.file("table.csv");
  const std::string h5 = dir.file("quest.h5");
  check_synced(calls_of(dir, {"record", trace, "--max-tokens", "48", "--layers", "2"}), trace);
  check_synced(
      calls_of(dir, {"sweep", trace, "--selector", "quest", "--budget", "16", "--out", csv}), csv);
  check_synced(calls_of(dir, {"analyze", "quest", trace, "--out", h5}), h5);
}

TEST_CASE("a recording's rows are on the device before its header says that they are whole") {
  if (test::kAddressSanitizer) SKIP("AddressSanitizer wants no library loaded before its own");
  const TempDir dir;
  const std::string trace = dir.file("trace.h5");
  const std::string part = trace + ".part";
  const Words calls = calls_of(dir, {"record", trace, "--max-tokens", "48", "--layers", "2"});
  check_synced(calls, part);  // the layout, under another name
  Words turns;                // what happened to the .part, neighbours that are alike once
  for (const std::string& call : calls) {
    const std::string what = call.substr(0, call.find(' '));
    const bool is_ours = call == what + " " + part || call == "name " + trace;
    if (is_ours && (turns.empty() || turns.back() != what)) turns.push_back(what);
  }
  // the layout's name; the rows; the header
  CHECK(turns == Words{"name", "write", "sync", "write", "sync", "name"});
}

}  // namespace kvscope::test::synced_files_test
