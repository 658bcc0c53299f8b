// The registry of files that were read: nothing new takes the place of one of them.
#include "core/base/read_files.hpp"

#include "core/base/mapped_file.hpp"
#include "core/base/new_file.hpp"
#include "core/base/whole_file.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::read_files_test {

void replace(const fs::path& file) {
  write_new_file(file, "new", /*overwrite=*/true);
}

TEST_CASE("a file that is read after its replacement was begun stays as well") {
  const TempDir dir;
  const fs::path file = dir.write("a", "old");
  const ReadFiles files;
  NewFile late(file, /*overwrite=*/true);
  late.write("new");
  read_whole_file(file, 100);
  CHECK_THROWS_AS(late.publish(), ConfigError);
  CHECK(read_file(file) == "old");
}

TEST_CASE("what was read for one piece of work does not bind the next") {
  const TempDir dir;
  const fs::path file = dir.write("a", "old");
  {
    const ReadFiles outer;
    {
      const ReadFiles inner;
      read_whole_file(file, 100);
    }
    replace(file);
    {
      const OwnFiles own;
      read_whole_file(file, 100);
    }
    replace(file);
  }
  read_whole_file(file, 100);
  replace(file);  // nobody asked
  CHECK(read_file(file) == "new");
}

TEST_CASE("the number of a file that is gone says nothing of the file that has it now") {
  const TempDir dir;
  ReadFiles files;
  const fs::path file = dir.write("a", "old");
  struct stat gone {};
  files.note(gone, dir.path() / "gone");
  CHECK(!files.behind(file));
}

TEST_CASE("a file that is read again has to be the one that was read, in work within work too") {
  const TempDir dir;
  const fs::path file = dir.write("a", "old");
  const ReadFiles outer;
  read_whole_file(file, 100);
  {
    const ReadFiles inner;
    read_whole_file(file, 100);
    CHECK_NOTHROW(inner.require_unchanged());
  }
  CHECK_NOTHROW(outer.require_unchanged());
  fs::rename(dir.write("b", "new"), file);
  {
    const ReadFiles inner;
    read_whole_file(file, 100);
    CHECK_NOTHROW(inner.require_unchanged());
  }
  CHECK_SAYS_AS(IoError, outer.require_unchanged(), "a was changed");
}

}  // namespace kvscope::test::read_files_test
