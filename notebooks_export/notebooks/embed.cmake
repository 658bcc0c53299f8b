# The Python cells of the notebooks as one C++ file of raw strings, so that the program needs no files of its own at run
# time. Included by CMakeLists.txt, which thereby gets a rule; run with -P by that rule.
if(CMAKE_SCRIPT_MODE_FILE)
  set(entries "")
  file(GLOB sources "${SOURCES}/*.py")
  list(SORT sources)
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    file(READ "${source}" text)
    string(APPEND entries "    {\"${name}\", R\"kvscope(${text})kvscope\"},\n")
  endforeach()
  file(WRITE "${OUTPUT}" "#include <string>
#include <utility>

#include \"core/base/error.hpp\"
#include \"notebooks_export/notebook_kinds.hpp\"

namespace kvscope {

std::string_view notebook_source(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kSources[] = {
${entries}  };
  for (const auto& [file, text] : kSources) {
    if (file == name) return text;
  }
  throw ConfigError(\"no notebook source \" + std::string(name) + \" was built in\");
}

}  // namespace kvscope
")
else()
  file(GLOB notebook_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.py")
  set(embedded "${CMAKE_CURRENT_BINARY_DIR}/notebook_sources.cpp")
  add_custom_command(OUTPUT "${embedded}"
    COMMAND "${CMAKE_COMMAND}" "-DSOURCES=${CMAKE_CURRENT_LIST_DIR}" "-DOUTPUT=${embedded}"
            -P "${CMAKE_CURRENT_LIST_FILE}"
    DEPENDS ${notebook_sources} "${CMAKE_CURRENT_LIST_FILE}" VERBATIM COMMENT "Embedding the notebooks' cells")
  target_sources(kvscope_notebooks_export PRIVATE "${embedded}")
endif()
