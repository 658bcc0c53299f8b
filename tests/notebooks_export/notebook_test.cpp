// Notebooks as text: cells from Python files, parameters, the structure that nbformat 4.5 asks for.
#include "notebooks_export/notebook.hpp"

#include <regex>
#include <set>

#include "core/base/json.hpp"
#include "notebooks_export/notebook_kinds.hpp"
#include "tests/support/test.hpp"

namespace kvscope::notebook_test {

NotebookInputs inputs_of(const NotebookKind& kind) {
  return NotebookInputs{.results = {{"../out/r.h5", kind.result_kinds.front(), "xxh128:12", ""}},
                        .traces = {{"t \"1\".h5", "", "u-1", "xxh128:34"}},
                        .writer = "kvscope test"};
}

TEST_CASE("a Python file becomes cells") {
  const auto cells = parse_notebook_cells(
      "# about the file\nignored = 1\n\n# %% [markdown] intro\n# # Title\n#\n# text\n\n# %% first "
      "tags=parameters,x\n\na = 1\n\n"
      "def f():\n    return 2\n\n\n# %% second\nb = 3\n",
      "x.py");
  REQUIRE(cells.size() == 3);
  CHECK(!cells[0].is_code);
  CHECK(cells[0].source == "# Title\n\ntext");
  CHECK(cells[1].tags == std::vector<std::string>{"parameters", "x"});
  CHECK(cells[1].source == "a = 1\n\ndef f():\n    return 2");
  CHECK(cells[2].id == "second");
  CHECK(cells[2].source == "b = 3");
}

TEST_CASE("markers that cannot be read are refused with their line") {
  const auto refuses = [](const char* text, const char* words) {
    CHECK_SAYS_AS(FormatError, parse_notebook_cells(text, "x.py"), words);
  };
  refuses("# %%\n", "x.py: line 1: the cell has no id");
  refuses("# %% a b\n", "line 1: expected");
  refuses("# %% a\n# %% a\n", "line 2: cell id a is used twice");
  refuses("# %% [markdown] a\ncode = 1\n", "line 2: expected a comment");
}

TEST_CASE("parameters become Python literals, and their comments stay") {
  NotebookCell cell{.id = "parameters", .source = "FIRST = []  # files\nSECOND = None"};
  set_notebook_parameter(cell, "FIRST", Json::parse(R"(["a\"b.h5", "ü"])"));
  set_notebook_parameter(cell, "SECOND", Json::parse(R"({"x": null, "y": true, "z": [1, 2.5]})"));
  CHECK(cell.source ==
        "FIRST = [\"a\\\"b.h5\", \"ü\"]  # files\nSECOND = {\"x\": None, \"y\": True, \"z\": [1, "
        "2.5]}");
  CHECK_THROWS_AS(set_notebook_parameter(cell, "THIRD", Json(1)), ConfigError);
}

TEST_CASE("every kind is nbformat 4.5: ids, kernelspec, parameters, no outputs") {
  REQUIRE(notebook_kinds().size() == 6);
  for (const NotebookKind& kind : notebook_kinds()) {
    INFO(kind.name);
    const std::string text = make_notebook(kind, inputs_of(kind));
    CHECK(text == make_notebook(kind, inputs_of(kind)));
    const Json notebook = Json::parse(text);
    CHECK(notebook["nbformat"] == 4);
    CHECK(notebook["nbformat_minor"] == 5);
    CHECK(notebook["metadata"]["kernelspec"]["name"] == "python3");
    std::set<std::string> ids;
    std::vector<std::string> code;
    for (const Json& cell : notebook["cells"]) {
      const auto id = cell["id"].get<std::string>();
      CHECK(ids.insert(id).second);
      CHECK(std::regex_match(id, std::regex("[A-Za-z0-9_-]{1,64}")));
      CHECK(cell["metadata"].is_object());
      REQUIRE(cell["source"].is_array());
      for (std::size_t i = 0; i + 1 < cell["source"].size(); ++i)
        CHECK(cell["source"][i].get<std::string>().ends_with('\n'));
      if (cell["cell_type"] != "code") {
        CHECK(cell["cell_type"] == "markdown");
        CHECK(!cell.contains("outputs"));
        continue;
      }
      CHECK(cell["outputs"] == Json::array());
      CHECK(cell["execution_count"].is_null());
      code.push_back(id);
    }
    CHECK(notebook["cells"][0]["cell_type"] == "markdown");
    REQUIRE(code.size() > 4);
    CHECK(code[0] == "parameters");
    CHECK(code[1] == "checks");  // versions and identity before anything else
    CHECK(notebook["cells"][1]["metadata"]["tags"] == Json{"parameters"});
    const std::string parameters = notebook["cells"][1]["source"].dump();
    CHECK_HAS(parameters, "../out/r.h5", "u-1");
    CHECK_HAS(text, "check_close(");  // recomputes something
    CHECK_HAS(text, "bf16_view");
  }
}

TEST_CASE("results of other kinds, two of one kind, or none are refused") {
  const NotebookKind& recall = find_notebook_kind("recall");
  NotebookInputs inputs = inputs_of(recall);
  inputs.results[0].kind = "quest";
  CHECK_SAYS_AS(ConfigError, make_notebook(recall, inputs), "shows results of sweep");
  inputs = inputs_of(recall);
  inputs.results.push_back(inputs.results[0]);
  CHECK_SAYS_AS(ConfigError, make_notebook(recall, inputs), "two results");
  inputs.results.clear();
  CHECK_THROWS_AS(make_notebook(recall, inputs), ConfigError);
  CHECK_SAYS_AS(ConfigError, find_notebook_kind("x"), "geometry, recall");
}

}  // namespace kvscope::notebook_test
