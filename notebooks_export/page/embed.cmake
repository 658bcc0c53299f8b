# Scripts and styles of HTML pages as one C++ file of raw strings. Included by CMakeLists.txt, which thereby gets a rule;
# run with -P by that rule.
if(CMAKE_SCRIPT_MODE_FILE)
  set(entries "")
  file(GLOB sources "${SOURCES}/*.js" "${SOURCES}/*.css")
  list(SORT sources)
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME)
    file(READ "${source}" text)
    string(APPEND entries "    {\"${name}\", R\"kvscope(${text})kvscope\"},\n")
  endforeach()
  file(WRITE "${OUTPUT}" "#include <string>
#include <utility>

#include \"core/base/error.hpp\"
#include \"notebooks_export/page_sources.hpp\"

namespace kvscope {

std::string_view page_source(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kPages[] = {
${entries}  };
  for (const auto& [file, text] : kPages) {
    if (file == name) return text;
  }
  throw ConfigError(\"no page source \" + std::string(name) + \" was built in\");
}

}  // namespace kvscope
")
else()
  file(GLOB page_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.js" "${CMAKE_CURRENT_LIST_DIR}/*.css")
  set(embedded "${CMAKE_CURRENT_BINARY_DIR}/page_sources.cpp")
  add_custom_command(OUTPUT "${embedded}"
    COMMAND "${CMAKE_COMMAND}" "-DSOURCES=${CMAKE_CURRENT_LIST_DIR}" "-DOUTPUT=${embedded}"
            -P "${CMAKE_CURRENT_LIST_FILE}"
    DEPENDS ${page_sources} "${CMAKE_CURRENT_LIST_FILE}" VERBATIM COMMENT "Embedding the scripts of HTML pages")
  target_sources(kvscope_notebooks_export PRIVATE "${embedded}")
endif()
