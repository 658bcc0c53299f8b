// HDF5 files made to do harm: each is refused with one sentence, in little memory and time.
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "core/trace/result.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"
#include "traces/first_look.hpp"
#include "traces/reader.hpp"
#include "traces/result_file.hpp"
#include "traces/verify.hpp"
#include "traces/writer.hpp"

namespace kvscope::test::hostile_file_test {

/// Opens a sound trace for an edit with HDF5's own calls, then tells what kvscope says of it.
template <class Edit>
std::string said_of_trace(Edit edit) {
  const TempFolder folder;
  write_all(make_trace(Plan{}), *create_trace(folder / "t.h5", {}));
  const hid_t file = H5Fopen((folder / "t.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(file >= 0);
  edit(file, folder);
  REQUIRE(H5Fclose(file) >= 0);
  return message_of([&] { TraceFile::open(folder / "t.h5"); });
}

void replace_dataset(hid_t file, const char* path, hid_t type, hid_t space, hid_t creation) {
  H5Ldelete(file, path, H5P_DEFAULT);
  const hid_t dataset = H5Dcreate2(file, path, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Pclose(creation);
}

/// An array of n zeros in next to no bytes.
void claim(hid_t file, const char* path, hsize_t n, int rank) {
  const hsize_t dims[2] = {n, 3};
  const hsize_t chunk[2] = {n / 4, 3};
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, rank, chunk);
  H5Pset_deflate(creation, 9);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
  replace_dataset(file, path, H5T_STD_I64LE, H5Screate_simple(rank, dims, nullptr), creation);
}

TEST_CASE("few bytes that claim many layers or calls are refused") {
  CHECK_HAS(said_of_trace([](hid_t file, const TempFolder&) {
              claim(file, "/recorded/layers", 20'000'000, 1);
            }),
            "/recorded/layers");
  CHECK_HAS(
      said_of_trace([](hid_t file, const TempFolder&) { claim(file, "/units", 60'000'000, 2); }),
      "/units");
}

TEST_CASE("a virtual dataset over a pipe does not hold anybody up") {
  const std::string said = said_of_trace([](hid_t file, const TempFolder& folder) {
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    const hsize_t dims[1] = {24};
    const hsize_t most[1] = {H5S_UNLIMITED};
    const hid_t space = H5Screate_simple(1, dims, most);
    const hsize_t start[1] = {0}, step[1] = {1}, n[1] = {H5S_UNLIMITED}, block[1] = {1};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, step, n, block);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    REQUIRE(H5Pset_virtual(creation, space, (folder / "pipe").c_str(), "/x", space) >= 0);
    replace_dataset(file, "/tokens", H5T_STD_I32LE, H5Scopy(space), creation);
    H5Sclose(space);
  });
  CHECK_HAS(said, "/tokens");
}

TEST_CASE("unknown filters and other masks are named") {
  CHECK_HAS(said_of_trace([](hid_t file, const TempFolder&) {
              const hsize_t dims[1] = {24};
              const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
              H5Pset_chunk(creation, 1, dims);
              H5Pset_filter(creation, 32099, H5Z_FLAG_OPTIONAL, 0, nullptr);
              replace_dataset(file, "/tokens", H5T_STD_I32LE, H5Screate_simple(1, dims, nullptr),
                              creation);
            }),
            "filter 32099");
  CHECK_HAS(said_of_trace([](hid_t file, const TempFolder&) {
              const hid_t mask = H5Aopen(file, "mask", H5P_DEFAULT);
              const hid_t type = H5Aget_type(mask);
              H5Awrite(mask, type, "cbusal");
              H5Tclose(type);
              H5Aclose(mask);
            }),
            "mask is 'cbusal', expected causal");
}

TEST_CASE("what keeps opening for ever, takes all memory or crashes becomes a sentence") {
  const TempFolder folder;
  spill(folder / "f.h5", "any file");
  using Path = fs::path;
  const auto said = [&](OpenFunction open) {
    return message_of([&] { const FirstLook look(folder / "f.h5", open); });
  };
  CHECK_HAS(said([](const Path&, unsigned) { std::raise(SIGSEGV); }), "crashes on it");
  if (!test::kAddressSanitizer) {  // whose own memory a limit would hit
    CHECK_HAS(said([](const Path&, unsigned) {
                std::vector<std::vector<char>> all;
                for (;;) all.emplace_back(std::size_t{64} << 20, 'x');
              }),
              "more than 1024 MiB");
  }
  CHECK(said([](const Path&, unsigned) { throw FormatError("the words of the child"); }) ==
        "the words of the child");
  static bool looked_here = false;
  CHECK(said([](const Path&, unsigned) { looked_here = true; }) == "no error");
  CHECK(!looked_here);  // it happened in the other process
  // A file that went well is not looked at again until it changes.
  CHECK(said([](const Path&, unsigned) { std::raise(SIGSEGV); }) == "no error");
  spill(folder / "f.h5", "another file");
  CHECK_HAS(said([](const Path&, unsigned) { std::raise(SIGSEGV); }), "crashes on it");
}

TEST_CASE("first looks from several threads at once do not block each other") {
  const TempFolder folder;
  constexpr int kThreads = 4;
  for (int i = 0; i < kThreads; ++i)
    write_all(make_trace(Plan{}), *create_trace(folder / ("t" + std::to_string(i) + ".h5"), {}));
  std::vector<int> n_tokens(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const fs::path file = folder / ("t" + std::to_string(i) + ".h5");
        n_tokens[i] = static_cast<int>(TraceFile::open(file).info().n_tokens);
      });
    }
  }
  CHECK(n_tokens == std::vector<int>(kThreads, 24));
}

TEST_CASE("groups that contain themselves end the reading of a result") {
  const TempFolder folder;
  const fs::path path = folder / "r.h5";
  {
    const auto output = create_result_file(path, /*overwrite=*/false);
    output->begin(ResultInfo{.kind = "quest"});
    output->finish({{"a", 1}});
  }
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t group = H5Gcreate2(file, "/loop", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  for (int i = 0; i < 40; ++i)
    H5Lcreate_hard(file, "/loop", group, ("again" + std::to_string(i)).c_str(), H5P_DEFAULT,
                   H5P_DEFAULT);
  H5Gclose(group);
  H5Fclose(file);
  CHECK_THROWS_AS(ResultFile::open(path), FormatError);
}

TEST_CASE("damage to what is recorded about the model is found") {
  const TempFolder folder;
  const std::string config = make_info(Plan{}).model_config;
  write_all(make_trace(Plan{}), *create_trace(folder / "t.h5", {}));
  std::string bytes = slurp(folder / "t.h5");
  const std::size_t at = bytes.find(config);
  REQUIRE(at != std::string::npos);
  bytes[at + 3] ^= 1;
  spill(folder / "t.h5", bytes);
  const VerifyReport report = verified(folder / "t.h5");
  REQUIRE(report.problems.size() == 1);
  CHECK_HAS(report.problems[0], "/model/config_json");
}

TEST_CASE("a trace without its progress does not verify") {
  const TempFolder folder;
  write_all(make_trace(Plan{}), *create_trace(folder / "t.h5", {}));
  const hid_t file = H5Fopen((folder / "t.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Ldelete(file, "/progress", H5P_DEFAULT);
  H5Fclose(file);
  const VerifyReport report = verified(folder / "t.h5");
  REQUIRE(report.problems.size() == 1);
  CHECK_HAS(report.problems[0], "/progress is missing");
}

/// The keys of a layer anew, in chunks of this shape, which may grow.
std::string said_of_chunks(std::vector<hsize_t> chunk) {
  return said_of_trace([&](hid_t file, const TempFolder&) {
    hsize_t dims[3] = {};
    const hid_t keys = H5Dopen2(file, "/layers/0/k", H5P_DEFAULT);
    const hid_t space = H5Dget_space(keys);
    H5Sget_simple_extent_dims(space, dims, nullptr);
    H5Sclose(space);
    H5Dclose(keys);
    const hsize_t most[3] = {H5S_UNLIMITED, H5S_UNLIMITED, H5S_UNLIMITED};
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 3, chunk.data());
    H5Pset_deflate(creation, 9);
    replace_dataset(file, "/layers/0/k", H5T_IEEE_F32LE, H5Screate_simple(3, dims, most), creation);
  });
}

TEST_CASE("chunks much larger than their dataset are refused at opening") {
  CHECK_HAS(said_of_chunks({2, 8192, 16384}), "[2, 8192, 16384]");
  CHECK_HAS(said_of_chunks({2, 8192, 60000}), "chunks of shape");
  CHECK_THAT(said_of_chunks({1, 64, 64}), !has("chunks of shape"));
}

}  // namespace kvscope::test::hostile_file_test
