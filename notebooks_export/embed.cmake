# Files as one C++ file of raw strings, so that the program needs no files of its own at run time: kvscope_embed makes the
# rule, which runs this file with -P.
if(CMAKE_SCRIPT_MODE_FILE)
  set(entries "")
  foreach(pattern IN LISTS PATTERNS)
    file(GLOB sources "${SOURCES}/${pattern}")
    list(SORT sources)
    foreach(source IN LISTS sources)
      get_filename_component(name "${source}" ${KEY})
      file(READ "${source}" text)
      string(APPEND entries "    {\"${name}\", R\"kvscope(${text})kvscope\"},\n")
    endforeach()
  endforeach()
  file(WRITE "${OUTPUT}" "#include <string>
#include <utility>

#include \"core/base/error.hpp\"
#include \"notebooks_export/${HEADER}\"

namespace kvscope {

std::string_view ${FUNCTION}(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kSources[] = {
${entries}  };
  for (const auto& [file, text] : kSources) {
    if (file == name) return text;
  }
  throw ConfigError(\"${FUNCTION}: no \" + std::string(name) + \" was built in\");
}

}  // namespace kvscope
")
  return()
endif()

# `function` of `header` gives the text of a file of `folder` by its name: NAME, or NAME_WE without its ending.
set(kvscope_embed_script "${CMAKE_CURRENT_LIST_FILE}")
function(kvscope_embed function header folder key)
  set(sources "${CMAKE_CURRENT_LIST_DIR}/${folder}")
  list(TRANSFORM ARGN PREPEND "${sources}/" OUTPUT_VARIABLE globs)
  file(GLOB files CONFIGURE_DEPENDS ${globs})
  set(embedded "${CMAKE_CURRENT_BINARY_DIR}/${function}s.cpp")
  add_custom_command(OUTPUT "${embedded}"
    COMMAND "${CMAKE_COMMAND}" "-DSOURCES=${sources}" "-DPATTERNS=${ARGN}" "-DKEY=${key}" "-DHEADER=${header}"
            "-DFUNCTION=${function}" "-DOUTPUT=${embedded}" -P "${kvscope_embed_script}"
    DEPENDS ${files} "${kvscope_embed_script}" VERBATIM COMMENT "Embedding ${folder}")
  target_sources(kvscope_notebooks_export PRIVATE "${embedded}")
endfunction()
