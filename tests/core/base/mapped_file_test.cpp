// Mapped files: addresses that tell their file, pages that are forgotten and come back.
#include "core/base/mapped_file.hpp"

#include <sys/stat.h>

#include <utility>

#include "tests/support/test.hpp"

namespace kvscope::mapped_file_test {

TEST_CASE("an address of a mapping tells its file, while it lasts") {
  const testing::TempDir dir;
  const auto path = dir.write("data", std::string(10000, 'x'));
  const void* inside = nullptr;
  {
    MappedFile first(path);
    inside = first.bytes().data() + 9999;
    const MappedFile moved(std::move(first));
    CHECK(mapped_file_at(inside) == path.string());
    CHECK(mapped_file_at(&dir) == nullptr);
  }
  CHECK(mapped_file_at(inside) == nullptr);
}

TEST_CASE("forgotten bytes of a mapping come back, and other memory is left alone") {
  const testing::TempDir dir;
  const std::string contents(100'000, 'x');
  const MappedFile file(dir.write("data", contents));
  CHECK(file.text() == contents);
  forget_pages(file.bytes().subspan(5000, 50'000));
  CHECK(file.text() == contents);
  const std::string own = contents;
  forget_pages(std::as_bytes(std::span(own)));
  CHECK(own == contents);
}

}  // namespace kvscope::mapped_file_test
