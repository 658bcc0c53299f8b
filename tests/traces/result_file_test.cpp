// Result files: written, read back, followed by h5py as viewers do; nothing half-written.
#include "traces/result_file.hpp"
#include "core/trace/result.hpp"

#include <nlohmann/json.hpp>

#include "tests/support/test.hpp"
#include "tests/traces/synthetic.hpp"

namespace kvscope::test::result_file_test {

ResultInfo sample_info() {
  return ResultInfo{.kind = "quest",
                    .trace_uuids = {"u-1", "u-22"},
                    .trace_hashes = {"xxh128:1", "xxh128:2"},
                    .trace_files = {"a.h5", "b.h5"},
                    .config = {{"page_size", 16}, {"alpha", 0.5}},
                    .command_line = "kvscope analyze quest",
                    .writer = "kvscope test",
                    .created = "2026-01-02T03:04:05Z"};
}

void write_sample(ResultWriter& output) {
  output.begin(sample_info());
  output.declare(
      {"bounds/printed", ResultType::f32, {2, 3}, {"layer", "pos"}, "nat", "upper bound"});
  output.declare({"pos", ResultType::i64, {3}, {"pos"}, "token", "position"});
  output.declare({"mean", ResultType::f64, {}, {}, "1", "mean"});
  output.declare({"flag", ResultType::u8, {0, 4}, {"a", "b"}, "1", ""});
  const std::vector<float> first = {1, 2, 3};
  const std::vector<float> second = {4, 5, 6};
  output.write<float>("bounds/printed", 1, second);
  output.write<float>("bounds/printed", 0, first);
  const std::vector<std::int64_t> pos = {10, 11, 12};
  output.write<std::int64_t>("pos", 0, pos);
  const double mean = 3.5;
  output.write<double>("mean", 0, std::span(&mean, 1));
  output.add_plot({"bound", "bounds/printed", {".", "pos"}, "Bound by position"});
  output.finish({{"violations", 0}, {"tightness", 0.25}});
}

TEST_CASE("a result file reads back") {
  const TempFolder folder;
  write_sample(*create_result_file(folder / "r.h5", /*overwrite=*/false));
  const ResultFile file = ResultFile::open(folder / "r.h5");
  CHECK(file.info().kind == "quest");
  CHECK(file.info().trace_uuids == std::vector<std::string>{"u-1", "u-22"});
  CHECK(file.info().config["page_size"] == 16);
  CHECK(file.info().config_hash.size() == 39);
  CHECK(file.summary()["tightness"] == 0.25);
  REQUIRE(file.arrays().size() == 4);
  CHECK(file.arrays()[0].name == "bounds/printed");
  CHECK(file.arrays()[0].axes == std::vector<std::string>{"layer", "pos"});
  CHECK(file.arrays()[0].units == "nat");
  CHECK(file.read<float>("bounds/printed") == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(file.read<std::int64_t>("pos") == std::vector<std::int64_t>{10, 11, 12});
  CHECK(file.read<double>("mean") == std::vector<double>{3.5});
  CHECK(file.read<std::uint8_t>("flag").empty());
  REQUIRE(file.plots().size() == 1);
  CHECK(file.plots()[0].signal == "bounds/printed");
  CHECK(file.plots()[0].axes == std::vector<std::string>{".", "pos"});
  CHECK_THROWS_AS(file.read<double>("pos"), ConfigError);
  CHECK_THROWS_AS(file.read<double>("none"), ConfigError);
}

TEST_CASE("axes of a result have names for xarray, one per name and length") {
  const TempFolder folder;
  auto output = create_result_file(folder / "r.h5", false);
  output->begin(sample_info());
  const std::vector<double> values(6, 1.5);
  const auto add = [&](const char* name, const Shape& shape, std::vector<std::string> axes) {
    output->declare({name, ResultType::f64, shape, std::move(axes), "1", ""});
    output->write<double>(name, 0,
                          std::span(values).first(static_cast<std::size_t>(shape.count())));
  };
  add("pos", {3}, {"pos"});
  add("a/x", {2, 3}, {"layer", "pos"});
  add("map", {2, 2}, {"layer", "layer"});
  add("short", {2}, {"pos"});              // another length
  add("head", {2, 3}, {"layer", "head"});  // the name of an array that is not its coordinates
  output->finish({});
  CHECK(ResultFile::open(folder / "r.h5").arrays().size() == 5);
  const std::string found = run_python(R"py(
import sys, h5py
f = h5py.File(sys.argv[1], "r")
for path in ("a/x", "map", "short", "head"):
    print(path, *(dim[0].name for dim in f[path].dims))
print(f["pos"].attrs["NAME"], list(f["layer"][()]), len(f["layer"].attrs["REFERENCE_LIST"]))
)py",
                                       {(folder / "r.h5").string()});
  CHECK(found ==
        "a/x /layer /pos\nmap /layer /layer_2\nshort /pos_of_short\nhead /layer /head_axis\n"
        "b'pos' [0, 0] 3\n");
}

TEST_CASE("equal options in another order have the same hash; results repeat byte by byte") {
  const TempFolder folder;
  for (const std::string name : {"a.h5", "b.h5"})
    write_sample(*create_result_file(folder / name, false));
  CHECK(slurp(folder / "a.h5") == slurp(folder / "b.h5"));
  ResultInfo info = sample_info();
  info.config = {{"alpha", 0.5}, {"page_size", 16}};
  auto output = create_result_file(folder / "c.h5", false);
  output->begin(info);
  output->finish({});
  CHECK(ResultFile::open(folder / "c.h5").info().config_hash ==
        ResultFile::open(folder / "a.h5").info().config_hash);
}

TEST_CASE("h5py follows root, entry and NXdata to the plot, as viewers do") {
  const TempFolder folder;
  write_sample(*create_result_file(folder / "r.h5", false));
  const std::string out = run_python(R"py(
import sys, h5py
f = h5py.File(sys.argv[1])
entry = f[f.attrs["default"].decode() if isinstance(f.attrs["default"], bytes) else f.attrs["default"]]
text = lambda x: x.decode() if isinstance(x, bytes) else str(x)
data = entry[text(entry.attrs["default"])]
print(text(f.attrs["NX_class"]), text(entry.attrs["NX_class"]), text(data.attrs["NX_class"]))
signal = data[text(data.attrs["signal"])]
print(signal.shape, signal[1, 2], [text(a) for a in data.attrs["axes"]], text(signal.attrs["long_name"]))
print(data["pos"][()].tolist(), text(data["title"][()]), data.attrs["pos_indices"])
print(text(f["summary"][()]).replace("\n", ""))
)py",
                                     {(folder / "r.h5").string()});
  CHECK(out ==
        "NXroot NXentry NXdata\n(2, 3) 6.0 ['.', 'pos'] upper bound\n[10, 11, 12] Bound by "
        "position 1\n"
        "{ \"violations\": 0, \"tightness\": 0.25}\n");
}

TEST_CASE("a failed analysis leaves no file, and nothing is overwritten unasked") {
  const TempFolder folder;
  {
    auto output = create_result_file(folder / "r.h5", false);
    output->begin(sample_info());
    output->declare({"x", ResultType::f32, {3}, {"pos"}, "1", ""});
    CHECK_THROWS_AS(output->declare({"x", ResultType::f32, {3}, {"pos"}, "1", ""}), ConfigError);
    CHECK_THROWS_AS(output->declare({"summary", ResultType::f32, {3}, {"pos"}, "1", ""}),
                    ConfigError);
    CHECK_THROWS_AS(output->declare({"y", ResultType::f32, {3}, {}, "1", ""}), ConfigError);
    const std::vector<float> two = {1, 2};
    CHECK_THROWS_AS(output->write<float>("x", 2, two), ShapeError);
    CHECK_THROWS_AS(output->write<float>("z", 0, two), ConfigError);
    CHECK_THROWS_AS(output->write<double>("x", 0, std::vector<double>{1}), ConfigError);
    output->write<float>("x", 0, two);
    CHECK_SAYS(output->finish({}), "row 2 was never written");
  }
  CHECK(!fs::exists(folder / "r.h5"));
  CHECK(!fs::exists(folder / "r.h5.result.part"));
  write_sample(*create_result_file(folder / "r.h5", false));
  CHECK_THROWS_AS(create_result_file(folder / "r.h5", false), IoError);
  write_sample(*create_result_file(folder / "r.h5", /*overwrite=*/true));
  CHECK(ResultFile::open(folder / "r.h5").arrays().size() == 4);
}

}  // namespace kvscope::test::result_file_test
