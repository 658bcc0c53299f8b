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
      string(APPEND entries "    {\"${name}\", R\"kvscope(${text})kvscope\"sv},\n")
    endforeach()
  endforeach()
  file(WRITE "${OUTPUT}" "#include \"core/base/embedded_file.hpp\"

namespace kvscope {

std::span<const EmbeddedFile> ${FUNCTION}();
std::span<const EmbeddedFile> ${FUNCTION}() {
  using namespace std::string_view_literals;
  static constexpr EmbeddedFile kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace kvscope
")
  return()
endif()

# `function` gives `target` the files of `folder` that fit the patterns behind `key` (core/base/embedded_file.hpp) by their
# names: NAME, or NAME_WE without its ending.
function(kvscope_embed target function folder key)
  set(sources "${CMAKE_CURRENT_SOURCE_DIR}/${folder}")
  list(TRANSFORM ARGN PREPEND "${sources}/" OUTPUT_VARIABLE globs)
  file(GLOB files CONFIGURE_DEPENDS ${globs})
  set(embedded "${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp")
  set(script "${CMAKE_CURRENT_FUNCTION_LIST_FILE}")
  add_custom_command(OUTPUT "${embedded}"
    COMMAND "${CMAKE_COMMAND}" "-DSOURCES=${sources}" "-DPATTERNS=${ARGN}" "-DKEY=${key}" "-DFUNCTION=${function}"
            "-DOUTPUT=${embedded}" -P "${script}"
    DEPENDS ${files} "${script}" VERBATIM COMMENT "Embedding ${folder}")
  target_sources(${target} PRIVATE "${embedded}")
endfunction()
