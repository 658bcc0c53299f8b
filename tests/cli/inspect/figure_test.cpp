// kvscope figure, figures and reproduce, run as a user runs them.
#include <sstream>

#include "tests/cli/run_program.hpp"

namespace kvscope::test::figure_test {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

const std::string kTimes =
    "selector,length,seconds\nfull,1024,0.002\nquest,1024,0.001\nfull,2048,0.004\nquest,2048,0."
    "001\n";

struct Folder {
  TempDir dir;
  std::string times = dir.write("times.csv", kTimes).string();
  std::string file(const std::string& name) const { return dir.file(name); }
};

/// Each file of a figure is what its ending says, whole, and holds something: the CSV has lines
/// with numbers.
void check_drawn(const std::string& stem) {
  const auto text = [&](const char* ending) { return read_file(stem + ending); };
  CHECK_THAT(text(".svg"), StartsWith("<?xml version=\"1.0\"") && EndsWith("</svg>\n"));
  CHECK_HAS(text(".svg"), "<text");
  CHECK_THAT(text(".pdf"), StartsWith("%PDF-1.") && EndsWith("%%EOF\n"));
  CHECK(text(".png").starts_with("\x89PNG\r\n\x1a\n"));
  CHECK(text(".png").find("IEND") != std::string::npos);
  CHECK_HAS(text(".tex"), "\\begin{tikzpicture}", "\\end{tikzpicture}");
  std::istringstream csv(text(".csv"));
  std::string line;
  REQUIRE(std::getline(csv, line));
  CHECK(line ==
        "panel,panel_title,mark,series,x,y,low,high,value,x_axis,y_axis,value_axis,x_tick,y_tick");
  std::size_t n_lines = 0;
  bool has_number = false;
  for (; std::getline(csv, line); ++n_lines)
    has_number = has_number || line.find_first_of("123456789", line.find(',')) != line.npos;
  CHECK(n_lines > 0);
  CHECK(has_number);
  const auto manifest = nlohmann::json::parse(text(".json"));
  CHECK(manifest.at("format") == "kvscope-figure");
}

TEST_CASE("results of the program become figures, and come out the same again") {
  const Folder folder;
  const auto trace = folder.file("t.h5");
  ran({"record", trace, "--max-tokens", "80", "--decode", "2"});
  const auto draft = folder.file("d.h5");
  ran({"record", draft, "--model", "draft", "--tokens", trace});
  const auto result = [&](const Words& words, const std::string& name) {
    ran(with(words, {"--out", folder.file(name)}));
    return folder.file(name);
  };
  const auto sweep = result({"sweep", trace, "--selector", "quest,streamingllm,oracle-topk",
                             "--budget", "16,32", "--chunk", "16"},
                            "sweep.h5");
  const auto sweep_csv = result(
      {"sweep", trace, "--selector", "quest", "--budget", "16,32", "--chunk", "16"}, "sweep.csv");
  const auto sweep_json = result(
      {"sweep", trace, "--selector", "quest", "--budget", "16,32", "--chunk", "16"}, "sweep.json");
  const auto quoka =
      result({"analyze", "quoka", trace, "--chunk", "16", "--budget", "16"}, "quoka.h5");
  const auto heads =
      result({"analyze", "heads", trace, "--budget", "16", "--cells", "8"}, "heads.h5");
  const auto map = result(
      {"analyze", "attention-map", trace, "--layers", "2", "--heads", "3", "--max-cells", "50"},
      "map.h5");
  const std::vector<Words> figures = {
      {"budget", sweep},
      {"bytes", sweep_csv},
      {"top10-recall", sweep_json},
      {"coverage-heads", sweep},
      {"layer-map", result({"analyze", "layer-map", trace, draft}, "lm.h5")},
      {"theorem-b1", result({"analyze", "theorem-b1", trace}, "b1.h5")},
      {"quest-bounds", result({"analyze", "quest", trace}, "quest.h5")},
      {"query-scores", quoka},
      {"heads", heads},
      {"head-numbers", heads, "--metric", "retrieval"},
      {"attention-map", map},
      {"attention-map", map, quoka, "--overwrite"},
      {"latency", folder.times}};
  const auto out = folder.file("figures");
  for (const Words& figure : figures) {
    ran(with({"figure", "--out", out}, figure));
    check_drawn(out + "/" + figure[0]);
    ran({"reproduce", out + "/" + figure[0] + ".json"});
  }
  const auto manifest = kvscope_run({"reproduce", out + "/budget.json", "--json"}).json();
  CHECK(manifest.at("same") == true);
  const std::string text = read_file(out + "/budget.json");
  CHECK_HAS(text, "trace_uuids", "\"file\": \"../sweep.h5\"", "config_hash");
  // a picture that moved away from its result is told where that is
  const std::string moved = folder.file("far/away");
  fs::create_directories(moved);
  for (const char* ending : {"svg", "pdf", "png", "tex", "csv", "json"}) {
    const fs::path file = out + "/budget." + ending;
    if (fs::exists(file)) fs::copy_file(file, moved + "/budget." + ending);
  }
  refused({"reproduce", moved + "/budget.json"}, 3, {"--results DIR says where it lies now"});
  ran({"reproduce", moved + "/budget.json", "--results", folder.file("")});
  // a changed drawing and a changed result are seen
  std::ofstream(out + "/latency.svg", std::ios::app) << " ";
  CHECK(kvscope_run({"reproduce", out + "/latency.json"}).code == 5);
  std::ofstream(folder.times, std::ios::app) << "quest,4096,0.001\nfull,4096,0.01\n";
  const auto changed = kvscope_run({"reproduce", out + "/latency.json"});
  CHECK(changed.code == 5);
  CHECK_HAS(changed.out, "has changed");
}

TEST_CASE("one file, chosen formats, widths") {
  const Folder folder;
  ran({"figure", "latency", folder.times, "--out", folder.file("x.pdf")});
  CHECK(fs::exists(folder.file("x.csv")));
  CHECK(fs::exists(folder.file("x.json")));
  CHECK(!fs::exists(folder.file("x.svg")));
  ran({"figure", "latency", folder.times, "--out", folder.file("y"), "--format", "svg", "--venue",
       "acl", "--theme", "dark", "--width", "4in"});
  CHECK_HAS(read_file(folder.file("y/latency.svg")), "width=\"288pt\"");
  CHECK(!fs::exists(folder.file("y/latency.png")));
}

TEST_CASE("wrong figures end with one sentence and leave nothing behind") {
  const Folder folder;
  const auto out = folder.file("out");
  folder.dir.write("nan.csv", "selector,length,seconds\nquest,1024,\n");
  folder.dir.write("empty.csv", "selector,length,seconds\n");
  folder.dir.write("damaged.csv", "selector,length,seconds\nquest,1\n");
  folder.dir.write("damaged.h5", "no HDF5");
  folder.dir.write("damaged.json", "{");
  folder.dir.write("norows.json", "{\"kind\": \"sweep\"}");
  folder.dir.write("in_the_way", "a file");
  struct Case {
    Words words;
    int code;
    std::string part;
  };
  const std::vector<Case> cases = {
      {{"latncy", folder.times}, 2, "Did you mean latency"},
      {{"latency", folder.times, "--metric", "mass"}, 2, "no choice of metric"},
      {{"latency", folder.times, "--selector", "snapkv,h2o", "--format", "bmp"},
       2,
       "svg, pdf, png, tex"},
      {{"latency", folder.times, folder.times}, 2, "found 2 results"},
      {{"latency", folder.times, "--width", "-3"}, 2, "width"},
      {{"latency", folder.times, "--width", "0.3"}, 2, "too narrow"},
      {{"needle", folder.times}, 2, "depth"},
      {{"layer-map", folder.times}, 2, "kind table"},
      {{"latency", folder.file("nan.csv")}, 2, "selection is empty"},
      {{"latency", folder.file("empty.csv")}, 3, "no rows"},
      {{"latency", folder.file("damaged.csv")}, 3, "line 2"},
      {{"latency", folder.file("damaged.h5")}, 3, "damaged.h5"},
      {{"latency", folder.file("damaged.json")}, 3, "expected JSON"},
      {{"budget", folder.file("norows.json")}, 3, "rows"},
      {{"latency", folder.file("missing.csv")}, 3, "missing.csv"},
      {{"latency", folder.dir.path().string()}, 3, "folder"},
      {{"latency"}, 2, "RESULT"},
  };
  for (const Case& c : cases) {
    refused(with({"figure", "--out", out}, c.words), c.code, {c.part});
    CHECK(!fs::exists(out));
  }
  const auto blocked =
      kvscope_run({"figure", "latency", folder.times, "--out", folder.file("in_the_way")});
  CHECK(blocked.code == 3);
  CHECK(read_file(folder.file("in_the_way")) == "a file");
  ran({"figure", "latency", folder.times, "--out", out});
  CHECK(kvscope_run({"figure", "latency", folder.times, "--out", out}).code == 3);
  ran({"figure", "latency", folder.times, "--out", out, "--overwrite"});
  for (const auto& entry : fs::directory_iterator(out)) CHECK(entry.path().extension() != ".part");
  CHECK(kvscope_run({"reproduce", folder.times}).code == 3);
}

TEST_CASE("figures lists every figure with the command that makes what it needs") {
  const auto list = kvscope_run({"figures", "--json"}).json().at("figures");
  CHECK(list.size() >= 15);
  CHECK_HAS(kvscope_run({"figures", "layer-map"}).out, "kvscope analyze layer-map");
  CHECK(kvscope_run({"figures", "lyer-map"}).code == 2);
}

TEST_CASE("a figure without its font says which package to install") {
  const Folder folder;
  const RunSetup no_font{"", {"KVSCOPE_FONT=/no/such/font.ttf"}};
  refused({"figure", "latency", folder.times, "--out", folder.file("o")}, 3, {"KVSCOPE_FONT"},
          no_font);
}

}  // namespace kvscope::test::figure_test
