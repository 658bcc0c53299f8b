#include "tests/support/fixture.hpp"

#include <cstdlib>
#include <map>
#include <stdexcept>

#include "tests/support/temp_dir.hpp"

namespace kvscope::testing {

namespace fs = std::filesystem;

fs::path fixture_file(const std::string& name, const std::function<void(const fs::path&)>& make) {
  if (const char* made = std::getenv("KVSCOPE_FIXTURES")) {
    const fs::path file = fs::path(made) / name;
    if (!fs::exists(file))
      throw std::runtime_error(
          "the fixture " + file.string() +
          " is not there: the area's set-up entry makes it (run ctest, or unset KVSCOPE_FIXTURES)");
    return file;
  }
  static std::map<std::string, fs::path> known;
  if (const auto found = known.find(name); found != known.end()) return found->second;
  static const TempDir own;
  fs::path folder = own.path();
  if (const char* asked = std::getenv("KVSCOPE_MAKE_FIXTURES")) folder = asked;
  const fs::path file = folder / name;
  fs::create_directories(file.parent_path());
  fs::remove(file);  // of an earlier run, perhaps of another program
  make(file);
  if (!fs::exists(file)) throw std::runtime_error("the fixture " + file.string() + " was not made");
  return known[name] = file;
}

}  // namespace kvscope::testing
