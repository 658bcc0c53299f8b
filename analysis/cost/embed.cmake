# The hardware profiles as one C++ file of raw strings, so that the program needs no files of its own at
# run time. Included by analysis/CMakeLists.txt, which thereby gets a rule; run with -P by that rule.
if(CMAKE_SCRIPT_MODE_FILE)
  set(entries "")
  file(GLOB sources "${SOURCES}/*.json")
  list(SORT sources)
  foreach(source IN LISTS sources)
    get_filename_component(name "${source}" NAME_WE)
    file(READ "${source}" text)
    string(APPEND entries "    {\"${name}\", R\"kvscope(${text})kvscope\"},\n")
  endforeach()
  file(WRITE "${OUTPUT}" "#include \"analysis/cost/cost_data.hpp\"

namespace kvscope {

std::span<const CostData> cost_data() {
  static constexpr CostData kData[] = {
${entries}  };
  return kData;
}

}  // namespace kvscope
")
else()
  file(GLOB cost_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/data/*.json")
  set(cost_embedded "${CMAKE_CURRENT_BINARY_DIR}/cost_data.cpp")
  add_custom_command(OUTPUT "${cost_embedded}"
    COMMAND "${CMAKE_COMMAND}" "-DSOURCES=${CMAKE_CURRENT_LIST_DIR}/data" "-DOUTPUT=${cost_embedded}"
            -P "${CMAKE_CURRENT_LIST_FILE}"
    DEPENDS ${cost_sources} "${CMAKE_CURRENT_LIST_FILE}" VERBATIM COMMENT "Embedding hardware profiles")
  target_sources(kvscope_analysis PRIVATE "${cost_embedded}")
endif()
