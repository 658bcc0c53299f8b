#include "core/base/data_dir.hpp"

#include <cstdlib>

#include "tests/support/places.hpp"
#include "tests/support/test.hpp"

namespace kvscope::data_dir_test {

struct DataVariable {
  explicit DataVariable(const std::string& value) {
    setenv("KVSCOPE_DATA", value.c_str(), /*overwrite=*/1);
  }
  ~DataVariable() { unsetenv("KVSCOPE_DATA"); }
};

TEST_CASE("the source tree's samples are found without any setting") {
  unsetenv("KVSCOPE_DATA");
  CHECK(std::filesystem::equivalent(samples_dir(), testing::source_dir() / "traces/samples"));
  CHECK(std::filesystem::exists(embedded_verifier() / "model.safetensors"));
  CHECK(std::filesystem::exists(embedded_draft() / "tokenizer.json"));
  CHECK(std::filesystem::file_size(embedded_text()) > 100000);
}

TEST_CASE("KVSCOPE_DATA decides alone, right or wrong") {
  {
    const DataVariable set((testing::source_dir() / "traces/samples").string());
    CHECK(samples_dir() == testing::source_dir() / "traces/samples");
  }
  const DataVariable set("/no/such/folder");
  CHECK_SAYS(samples_dir(), "KVSCOPE_DATA names /no/such/folder");
  CHECK_THROWS_AS(embedded_text(), IoError);
}

}  // namespace kvscope::data_dir_test
