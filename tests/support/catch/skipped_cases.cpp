// Writes which cases were skipped, and why, into the file that KVSCOPE_SKIPPED_CASES names, as
// lines of reason, tab and case: CTest runs many cases as one entry, whose one result would not
// tell. Linked into every test program.
#include <catch2/catch_assertion_result.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

class SkippedCases : public Catch::EventListenerBase {
 public:
  using Catch::EventListenerBase::EventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override { case_ = info.name; }

  void assertionEnded(const Catch::AssertionStats& stats) override {
    if (stats.assertionResult.getResultType() != Catch::ResultWas::ExplicitSkip) return;
    const char* file = std::getenv("KVSCOPE_SKIPPED_CASES");
    if (file == nullptr) return;
    std::string line = std::string(stats.assertionResult.getMessage()) + "\t" + case_;
    std::replace(line.begin(), line.end(), '\n', ' ');
    line += '\n';
    std::ofstream(file, std::ios::app) << line;  // in one write: several programs append
  }

 private:
  std::string case_;
};

CATCH_REGISTER_LISTENER(SkippedCases)

}  // namespace
