#include "traces/python/native/module.hpp"

#include <nanobind/stl/string.h>

#include "core/base/version.hpp"

std::filesystem::path kvscope::python::path_of(const nanobind::bytes& name) {
  return std::string(name.c_str(), name.size());
}

NB_MODULE(_native, module) {
  nanobind::set_leak_warnings(false);  // a trace that is open when Python ends is no fault
  module.doc() = "kvscope's libraries and commands; the package kvscope is the way to them";
  module.attr("writer") = kvscope::writer_name();
  kvscope::python::bind_errors();
  kvscope::python::bind_program(module);
  kvscope::python::bind_trace(module);
  kvscope::python::bind_result(module);
  kvscope::python::bind_call(module);
  kvscope::python::bind_selectors(module);
  kvscope::python::bind_run(module);
  kvscope::python::bind_writer(module);
}
