// Results of analyses, sweeps and simulations: arrays with their axes and units, and
// rows as columns.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>

#include "core/base/json.hpp"
#include "core/trace/result.hpp"
#include "notebooks_export/metric_info.hpp"
#include "notebooks_export/open_result.hpp"
#include "traces/python/native/arrays.hpp"
#include "traces/python/native/module.hpp"

namespace kvscope::python {

namespace nb = nanobind;

namespace {

nb::list arrays_of(const ResultView& result) {
  nb::list out;
  for (const ResultArray& array : result.arrays()) {
    nb::dict one;
    one["name"] = array.name;
    nb::list shape;
    for (int a = 0; a < array.shape.rank; ++a) shape.append(array.shape[a]);
    one["shape"] = shape;
    one["is_float"] = array.type == ResultType::f32 || array.type == ResultType::f64;
    one["axes"] = array.axes;
    one["units"] = array.units;
    one["long_name"] = array.long_name;
    out.append(one);
  }
  return out;
}

NumpyArray<double> read_array(const ResultView& result, const std::string& name) {
  std::vector<std::size_t> shape;
  const ResultArray& array = result.require(name);
  for (int a = 0; a < array.shape.rank; ++a)
    shape.push_back(static_cast<std::size_t>(array.shape[a]));
  return owning(released([&] { return result.read(name); }), shape);
}

/// Columns by name: f64 arrays, or (codes, words).
nb::dict columns_of(const Table& table) {
  nb::dict out;
  for (const TableColumn& column : table.columns()) {
    if (column.is_text) {
      out[column.name.c_str()] = nb::make_tuple(
          owning(std::vector<std::int32_t>(column.words.codes)), nb::cast(column.words.categories));
    } else {
      out[column.name.c_str()] = owning(std::vector<double>(column.numbers));
    }
  }
  return out;
}

}  // namespace

void bind_result(nb::module_& module) {
  nb::class_<ResultView>(module, "Result")
      .def_static("open",
                  [](const nb::bytes& name) {
                    const std::filesystem::path path = path_of(name);
                    const nb::gil_scoped_release released;
                    return open_result(path);
                  })
      .def("read", &read_array)
      .def_prop_ro("arrays", &arrays_of)
      .def_prop_ro("name", &ResultView::name)
      .def_prop_ro("kind", [](const ResultView& r) { return r.info().kind; })
      .def_prop_ro("command_line", [](const ResultView& r) { return r.info().command_line; })
      .def_prop_ro("writer", [](const ResultView& r) { return r.info().writer; })
      .def_prop_ro("created", [](const ResultView& r) { return r.info().created; })
      .def_prop_ro("trace_files", [](const ResultView& r) { return r.info().trace_files; })
      .def_prop_ro("config", [](const ResultView& r) { return json_text(r.info().config); })
      .def_prop_ro("summary", [](const ResultView& r) { return json_text(r.summary()); });
  module.def("column_title", [](const std::string& column) {
    const auto metric = find_metric(column);
    return metric ? metric->title : std::string();
  });
  module.def("read_rows",
             [](const nb::bytes& name) { return columns_of(read_rows(path_of(name))); });
}

}  // namespace kvscope::python
