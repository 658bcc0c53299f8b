// Every command that writes, on a disk that fails at every place in turn: the file is right, or it
// is not there and the command ends with 3 and a sentence. Nothing half-written ever has a name.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tests/cli/run_program.hpp"
#include "tests/support/counted_calls.hpp"
#include "tests/support/places.hpp"
#include "tests/support/sanitizers.hpp"

namespace kvscope::test::failing_disk_test {

/// One command and the file it writes.
struct Writing {
  std::string what;
  Words words;
  std::string out;
};

struct Workshop {
  TempDir dir;
  std::string trace = file("trace.h5");
  std::string part = file("cut.h5.part");
  std::string sweep = file("table.csv");
  std::string store = file("kept");

  Workshop() {
    run({"record", trace, "--max-tokens", "48", "--decode", "2", "--layers", "2,3"});
    run({"record", file("cut.h5"), "--max-tokens", "48", "--decode", "2", "--layers", "0"});
    fs::rename(file("cut.h5"), part);
    run({"sweep", trace, "--selector", "quest", "--budget", "16", "--out", sweep});
    run({"sweep", trace, "--selector", "quest", "--budget", "16", "--store", store});
  }
  static void run(const Words& words) { ran(words, {"", {"SOURCE_DATE_EPOCH=1700000000"}}); }
  std::string file(const std::string& name) const { return dir.file(name); }

  std::vector<Writing> writings() const {
    const std::string h5 = file("o.h5"), csv = file("o.csv"), json = file("o.json");
    const Words record = {"record", h5, "--max-tokens", "48", "--decode", "2", "--layers", "0"};
    const Words packed = test::with(record, {"--compression", "gzip:1"});
    const Words sweep_words = {"sweep", trace, "--selector", "quest", "--budget", "16", "--out"};
    const auto with = [](Words words, const std::string& last) {
      words.push_back(last);
      return words;
    };
    return {
        {"record", record, h5},
        {"record --compression", packed, h5},
        {"record --resume",
         {"record", h5, "--model", "draft", "--max-tokens", "48", "--chunk", "16", "--resume"},
         h5},
        {"recover", {"recover", part, "--out", h5}, h5},
        {"analyze --out", {"analyze", "quest", trace, "--out", h5}, h5},
        {"analyze --csv", {"analyze", "quest", trace, "--csv", csv}, csv},
        {"sweep .csv", with(sweep_words, csv), csv},
        {"sweep .h5", with(sweep_words, h5), h5},
        {"sweep --store .json",
         {"sweep", trace, "--selector", "quest", "--budget", "16", "--store", store, "--out", json},
         json},
        {"table",
         {"table", sweep, "--rows", "selector", "--value", "mass_mean", "--out", file("o.md")},
         file("o.md")},
        {"figure", {"figure", "budget", sweep, "--out", file("o.svg")}, file("o.svg")}};
  }
  /// What earlier runs left: everything that begins with "o.".
  void clear() const {
    for (const auto& entry : fs::directory_iterator(dir.path())) {
      if (entry.path().filename().string().starts_with("o.")) fs::remove_all(entry.path());
    }
  }
  /// Files on their way that a failed command left, but for a recording, which is there to recover.
  std::vector<std::string> left_over() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir.path())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("o.") && name.ends_with(".part") && name != "o.h5.part")
        names.push_back(name);
    }
    return names;
  }
};

RunSetup failing(const std::string& call, long at, int reason, long n, const std::string& count) {
  fs::remove(count);
  return {"",
          {"SOURCE_DATE_EPOCH=1700000000", "LD_PRELOAD=" + testing::failing_disk().string(),
           "KVSCOPE_FAIL_CALL=" + call, "KVSCOPE_FAIL_AT=" + std::to_string(at),
           "KVSCOPE_FAIL_ERRNO=" + std::to_string(reason), "KVSCOPE_FAIL_FOR=" + std::to_string(n),
           "KVSCOPE_FAIL_COUNT=" + count}};
}

/// The bytes themselves are nothing to print.
bool is_same(const std::string& file, const std::string& right) {
  return read_file(file) == right;
}

struct Attack {
  std::string call;
  int reason;
  long n;  // calls that fail from the chosen one on
};

/// Lets `most` places of each writing fail, spread over all of them.
void attack(const Workshop& shop, const Attack& attack, long most) {
  for (const Writing& writing : shop.writings()) {
    INFO(writing.what << ", failing " << attack.call);
    shop.clear();
    const std::string count = shop.file("count");
    const auto whole = ran(writing.words, failing(attack.call, 0, attack.reason, 0, count));
    const std::string right = read_file(writing.out);
    const long n_calls = testing::counted_calls(count);
    REQUIRE(n_calls > 0);
    const long n = std::min(n_calls, most);
    for (long i = 0; i < n; ++i) {
      const long at = 1 + i * n_calls / n;
      shop.clear();
      const auto run =
          kvscope_run(writing.words, failing(attack.call, at, attack.reason, attack.n, count));
      INFO("call " << at << " of " << n_calls << ": " << run.err);
      const bool is_there = fs::exists(writing.out);
      if (run.code == 0) {
        CHECK(is_there);
        if (is_there) CHECK(is_same(writing.out, right));
      } else {
        CHECK(run.code == 3);
        CHECK(run.err.find("kvscope: ") != std::string::npos);
        // A name is given before the folder is synced: then it is the whole file.
        if (is_there) CHECK(is_same(writing.out, right));
        CHECK(shop.left_over().empty());
      }
    }
  }
}

TEST_CASE("a failing disk ends in a sentence, never in a damaged file") {
  if (test::kAddressSanitizer) SKIP("AddressSanitizer wants no library loaded before its own");
  const Workshop shop;
  attack(shop, {"write", EIO, 1}, 5);
  attack(shop, {"write", ENOSPC, 1000000}, 3);
  attack(shop, {"sync", EIO, 1}, 2);
  attack(shop, {"name", EACCES, 1}, 1);
}

TEST_CASE("a failing disk at every place", "[heavy]") {
  if (test::kAddressSanitizer) SKIP("AddressSanitizer wants no library loaded before its own");
  const Workshop shop;
  attack(shop, {"write", EIO, 1}, 100000);
  attack(shop, {"write", ENOSPC, 1000000}, 100000);
  attack(shop, {"sync", EIO, 1}, 100000);
  attack(shop, {"name", EACCES, 1}, 100000);
}

TEST_CASE("a trace is read where the file system has no locks") {
  if (test::kAddressSanitizer) SKIP("AddressSanitizer wants no library loaded before its own");
  const Workshop shop;
  for (const int reason : {ENOLCK, ENOSYS, EOPNOTSUPP})
    ran({"info", shop.trace}, failing("lock", 1, reason, 1000, shop.file("count")));
  refused({"info", shop.trace}, 3, {"another program has the file open"},
          failing("lock", 1, EWOULDBLOCK, 1000, shop.file("count")));
  refused({"analyze", "theorem-b1", shop.trace, "--out", shop.file("r.h5")}, 3,
          {"cannot create", "HDF5_USE_FILE_LOCKING=FALSE"},
          failing("lock", 1, ENOLCK, 1000, shop.file("count")));
  refused({"info", shop.trace}, 3, {"cannot open"},
          failing("lock", 1, EINTR, 1'000'000, shop.file("count")));
}

TEST_CASE("a limit on the size of files ends in a sentence") {
  const Workshop shop;
  for (const Writing& writing : shop.writings()) {
    for (const long limit : {0L, 4096L, 20480L}) {
      if (test::kThreadSanitizer && limit == 0) continue;  // it writes files of its own before main
      shop.clear();
      rlimit before{};
      getrlimit(RLIMIT_FSIZE, &before);
      const rlimit small{static_cast<rlim_t>(limit), before.rlim_max};
      setrlimit(RLIMIT_FSIZE, &small);
      const RunningProgram program(writing.words);
      setrlimit(RLIMIT_FSIZE, &before);
      const auto run = const_cast<RunningProgram&>(program).wait();
      INFO(writing.what << " with " << limit << " bytes: " << run.err);
      if (run.code == 0) continue;  // it was small enough
      CHECK(run.code == 3);
      CHECK_FALSE(fs::exists(writing.out));
      CHECK(shop.left_over().empty());
    }
  }
}

TEST_CASE("no command writes over what it reads") {
  const Workshop shop;
  shop.clear();
  const std::string text = shop.dir.write("words.txt", "one two three four").string();
  fs::create_hard_link(shop.trace, shop.file("second.h5"));
  fs::copy_file(shop.sweep, shop.file("budget.csv"));
  const std::vector<Writing> tries = {
      {"analyze --out",
       {"analyze", "quest", shop.trace, "--overwrite", "--out", shop.trace},
       shop.trace},
      {"analyze --csv",
       {"analyze", "quest", shop.trace, "--overwrite", "--csv", shop.trace},
       shop.trace},
      {"another name",
       {"analyze", "quest", shop.trace, "--overwrite", "--csv", shop.file("second.h5")},
       shop.trace},
      {"record --text", {"record", text, "--text", text, "--overwrite"}, text},
      {"record --tokens",
       {"record", shop.trace, "--tokens", shop.trace, "--overwrite"},
       shop.trace},
      {"table",
       {"table", shop.sweep, "--rows", "selector", "--value", "mass_mean", "--overwrite",
        "--format", "csv", "--out", shop.sweep},
       shop.sweep},
      {"figure",
       {"figure", "budget", shop.file("budget.csv"), "--overwrite", "--out",
        shop.file("budget.svg")},
       shop.file("budget.csv")}};
  for (const Writing& writing : tries) {
    const std::string before = read_file(writing.out);
    const auto run = kvscope_run(writing.words);
    INFO(writing.what << ": " << run.err);
    CHECK((run.code == 2 || run.code == 3));
    CHECK(is_same(writing.out, before));
  }
}

TEST_CASE("an output that cannot be is refused before the work") {
  const Workshop shop;
  fs::create_symlink(shop.file("nothing"), shop.file("dangling.h5"));
  fs::create_directory(shop.file("folder.h5"));
  REQUIRE(::mkfifo(shop.file("pipe.h5").c_str(), 0600) == 0);
  for (const std::string name : {"dangling.h5", "folder.h5", "pipe.h5", "no/such.h5"}) {
    for (const Words& words : {Words{"sweep", shop.trace, "--selector", "quest", "--budget", "16",
                                     "--overwrite", "--out"},
                               Words{"analyze", "quest", shop.trace, "--overwrite", "--out"},
                               Words{"record", "--max-tokens", "16", "--overwrite", "--out"}}) {
      Words all = words;
      all.push_back(shop.file(name));
      const auto run = kvscope_run(all);
      INFO(name << ": " << run.err);
      CHECK(run.code == 3);
      CHECK(run.err_is_one_line());
    }
  }
  CHECK_FALSE(fs::exists(shop.file("nothing")));
}

TEST_CASE("a user's own .part files stay, and links planted there lead nowhere") {
  const Workshop shop;
  shop.clear();
  const std::string mine = shop.dir.write("mine.txt", "mine").string();
  for (const char* name : {"o.md.part", "o.h5.result.part", "o.h5.rewrite.part", "o.csv.part"})
    fs::create_symlink(mine, shop.file(name));
  Workshop::run({"table", shop.sweep, "--rows", "selector", "--value", "mass_mean", "--out",
                 shop.file("o.md")});
  Workshop::run(
      {"analyze", "quest", shop.trace, "--out", shop.file("o.h5"), "--csv", shop.file("o.csv")});
  CHECK(read_file(mine) == "mine");
  for (const char* name : {"o.md.part", "o.h5.result.part", "o.h5.rewrite.part", "o.csv.part"})
    CHECK(fs::is_symlink(shop.file(name)));
}

}  // namespace kvscope::test::failing_disk_test
