// Random input against the explorer. By hand, for an hour in a sanitized build:
//   KVSCOPE_RANDOM_SECONDS=3600 KVSCOPE_RANDOM_SEED=1000 build/asan/tests/test_gui '[random_hour]'
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/gui/app/random_user.hpp"

extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());

namespace kvscope::gui::test::random_input_test {

namespace fs = std::filesystem;

constexpr int kInputs = 250;  // of a seed: then a new window, with the settings of the last one

/// A folder with a settings folder of its own, and 24 levels in it.
class Place {
 public:
  Place() : before_(fs::current_path()) {
    ::setenv("KVSCOPE_CONFIG", (folder_.path() / "config").c_str(), 1);
    fs::path deep = folder_.path();
    for (int i = 0; i < 24; ++i) deep /= "d";
    fs::create_directories(deep);
    fs::current_path(deep);
  }
  ~Place() {
    fs::current_path(before_);
    ::unsetenv("KVSCOPE_CONFIG");
  }

 private:
  testing::TempDir folder_;
  fs::path before_;
};

void say_last_inputs(int signal) {
  print_last_inputs();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

using Clock = std::chrono::steady_clock;

struct Use {
  int n_inputs = 0;
  std::uint64_t n_changes = 0;  // of what is selected, ticked or open: the inputs reach something
};

/// A window's inputs, fewer if `end` comes first.
Use use_by_seed(std::uint64_t seed, Clock::time_point end = Clock::time_point::max()) {
  INFO("seed " << seed);
  const Place place;
  AppOptions options{.settings_file = settings_file()};
  // Every fourth window starts the program's commands; the others cannot find it.
  if (seed % 4 != 0) options.program = "kvscope-that-is-nowhere";
  Rig rig({1280, 800}, options);
  RandomUser user(rig, seed, files_to_drop(fs::current_path()));
  if (seed % 8 != 7) {  // that one begins at the start page
    rig.app().open("verifier.h5");
    rig.app().open("draft.h5");
    if (seed % 2 == 0) rig.settle();
  }
  Use use;
  for (; use.n_inputs < kInputs && Clock::now() < end; ++use.n_inputs)
    user.act(/*waits=*/seed % 2 == 0);
  use.n_changes = rig.session().revision();
  user.expect_life();
  return use;
}

TEST_CASE("random input leaves a window that answers", "[slow]") {
  for (const std::uint64_t seed : {1, 2, 3, 4, 7}) CHECK(use_by_seed(seed).n_changes > 10);
}

TEST_CASE("random input, as long as the environment says", "[.][random_hour]") {
  if (&__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(print_last_inputs);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) std::signal(signal, say_last_inputs);
  const auto number = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  const auto start = Clock::now();
  const auto end = start + std::chrono::seconds(number("KVSCOPE_RANDOM_SECONDS", 60));
  std::uint64_t seed = number("KVSCOPE_RANDOM_SEED", 1);
  for (int n_inputs = 0; Clock::now() < end; ++seed) {
    const Use use = use_by_seed(seed, end);
    n_inputs += use.n_inputs;
    const std::chrono::duration<double> passed = Clock::now() - start;
    std::fputs(fmt::format("seed {}: {} changes; {} inputs in {:.0f} s\n", seed, use.n_changes,
                           n_inputs, passed.count())
                   .c_str(),
               stderr);
  }
}

}  // namespace kvscope::gui::test::random_input_test
