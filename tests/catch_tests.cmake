# kvscope_test(area [FIXTURES] [LABEL label] LINK libraries...): one Catch2 program per area, of every .cpp file of its folder, and one CTest
# entry per file that holds test cases: "core: selectors/methods/quoka" runs those of core/selectors/methods/quoka_test.cpp. Catch2 knows a file's
# cases by the tag [#name of the file], so a case stands in a namespace of its file's name (tests/architecture checks both), and
# several files can be compiled as one.
#
# Cases tagged [heavy] (minutes each) or [slow] (seconds, and seldom the only ones to fail) are entries of their own, with that
# label. FIXTURES: what an area's cases read and none changes is made once by a set-up entry, the cases of its set_up.cpp
# (tests/support/fixture.hpp).
# Catch2 ends with 4 where all cases were skipped.
add_library(kvscope_test_main OBJECT "${CMAKE_CURRENT_SOURCE_DIR}/support/catch/skipped_cases.cpp")
target_link_libraries(kvscope_test_main PRIVATE Catch2::Catch2 kvscope_flags)

set(KVSCOPE_FIXTURES "${CMAKE_CURRENT_BINARY_DIR}/fixtures")
set(KVSCOPE_TEST_ENVIRONMENT "KVSCOPE_SKIPPED_CASES=${CMAKE_CURRENT_BINARY_DIR}/skipped_cases.txt")

# kvscope_catch_entry(name program spec labels...)
function(kvscope_catch_entry name program spec)
  set(limit ${KVSCOPE_TEST_TIMEOUT})
  if("heavy" IN_LIST ARGN)
    set(limit 1800)
  endif()
  add_test(NAME "${name}" COMMAND ${program} "-#" "${spec}")
  set_tests_properties("${name}" PROPERTIES TIMEOUT ${limit} SKIP_RETURN_CODE 4 LABELS "${ARGN}"
                       ENVIRONMENT "${KVSCOPE_TEST_ENVIRONMENT}")
endfunction()

function(kvscope_test area)
  cmake_parse_arguments(ARG "FIXTURES" "LABEL" "LINK" ${ARGN})
  set(folder "${CMAKE_CURRENT_SOURCE_DIR}/${area}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  add_executable(test_${area} ${sources})
  target_link_libraries(test_${area} PRIVATE ${ARG_LINK} kvscope_test_support kvscope_test_main Catch2::Catch2WithMain
                        kvscope_flags)
  kvscope_group_sources(test_${area} ${sources})
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(test_${area} PRIVATE -O1)  # what takes time is in the libraries
  endif()

  foreach(source IN LISTS sources)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")  # its cases and their tags
    file(STRINGS "${source}" cases REGEX "TEST_CASE(_METHOD)?\\(|^ .*\"(\\[[^]\"]*\\])+\"\\)")
    get_filename_component(file "${source}" NAME_WE)
    if(NOT cases MATCHES "TEST_CASE" OR file STREQUAL "set_up")
      continue()
    endif()
    file(RELATIVE_PATH name "${folder}" "${source}")
    string(REGEX REPLACE "(_test)?\\.cpp$" "" name "${name}")
    set(left_out "~[.]")
    foreach(label heavy slow)
      if(cases MATCHES "\\[${label}\\]")
        string(APPEND left_out "~[${label}]")
        kvscope_catch_entry("${area}: ${name} (${label})" test_${area} "[#${file}][${label}]" ${label} ${ARG_LABEL})
        list(APPEND entries "${area}: ${name} (${label})")
      endif()
    endforeach()
    string(REGEX MATCHALL "TEST_CASE" all "${cases}")
    string(REGEX MATCHALL "\\[(heavy|slow|\\.)\\]" later "${cases}")
    list(LENGTH all n_all)
    list(LENGTH later n_later)
    if(n_all GREATER n_later)
      kvscope_catch_entry("${area}: ${name}" test_${area} "[#${file}]${left_out}" ${ARG_LABEL})
      list(APPEND entries "${area}: ${name}")
    endif()
  endforeach()
  if(ARG_FIXTURES)
    # Makes what the others read; without it they are not run, which CTest counts as failed.
    add_test(NAME "${area}: set-up" COMMAND test_${area} "[.set-up]")
    set_tests_properties("${area}: set-up" PROPERTIES FIXTURES_SETUP ${area}_files TIMEOUT ${KVSCOPE_TEST_TIMEOUT}
                         ENVIRONMENT "KVSCOPE_MAKE_FIXTURES=${KVSCOPE_FIXTURES}/${area}")
    set_tests_properties(${entries} PROPERTIES FIXTURES_REQUIRED ${area}_files
                         ENVIRONMENT "${KVSCOPE_TEST_ENVIRONMENT};KVSCOPE_FIXTURES=${KVSCOPE_FIXTURES}/${area}")
  endif()
endfunction()
