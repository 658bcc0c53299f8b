#include "traces/python/native/errors.hpp"

#include <filesystem>
#include <utility>

#include "traces/python/native/module.hpp"

namespace kvscope::python {

namespace nb = nanobind;

namespace {

// Under the GIL; leaked, since static objects outlive the interpreter.
std::optional<nb::python_error>& kept_failure() {
  static auto* const kept = new std::optional<nb::python_error>;
  return *kept;
}

}  // namespace

void keep_failure(nb::python_error error) {
  if (!kept_failure()) kept_failure().emplace(std::move(error));
}

std::optional<nb::python_error> take_failure() {
  return std::exchange(kept_failure(), std::nullopt);
}

void bind_errors() {
  // The class of an error says whose fault it is: of the call, or of a file.
  static PyObject* usage_error = nullptr;
  static PyObject* input_error = nullptr;
  const nb::module_ errors = nb::module_::import_("kvscope.errors");
  usage_error = nb::object(errors.attr("UsageError")).release().ptr();
  input_error = nb::object(errors.attr("InputError")).release().ptr();
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const IoError& error) {
      PyErr_SetString(input_error, error.what());
    } catch (const FormatError& error) {
      PyErr_SetString(input_error, error.what());
    } catch (const Interrupted& error) {
      PyErr_SetString(PyExc_KeyboardInterrupt, error.what());
    } catch (const Error& error) {
      PyErr_SetString(usage_error, error.what());
    } catch (const std::filesystem::filesystem_error& error) {
      PyErr_SetString(input_error, error.what());
    }
  });
}

}  // namespace kvscope::python
