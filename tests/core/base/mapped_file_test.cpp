// Mapped files: addresses that tell their file, pages that are forgotten and come back.
#include "core/base/mapped_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

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

TEST_CASE("what cannot be mapped is an IoError") {
  const testing::TempDir dir;
  CHECK_THROWS_AS(MappedFile(dir.path() / "missing"), IoError);
  CHECK_THROWS_AS(MappedFile(dir.path()), IoError);
  const auto pipe = dir.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_AS(MappedFile(pipe), IoError);
  const auto secret = dir.write("secret", "x");
  REQUIRE(::chmod(secret.c_str(), 0) == 0);
  if (::geteuid() != 0) CHECK_THROWS_AS(MappedFile(secret), IoError);  // root may read everything
}

}  // namespace kvscope::mapped_file_test
