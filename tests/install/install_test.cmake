# Installs into a scratch prefix (with a space in its name), configures and builds the consumer against it, runs it, and
# runs the installed program away from the source tree.
function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${SCRATCH}" RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed (${code}): ${ARGN}\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

set(prefix "${SCRATCH}/the prefix")
file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}")
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${prefix}")

file(READ "${CONSUMER}/../../../FIRST_HOUR.md" page)
if(NOT page MATCHES "```cpp\n([^`]+)```")
  message(FATAL_ERROR "FIRST_HOUR.md shows no program of the libraries")
endif()
file(WRITE "${SCRATCH}/mine.cpp" "${CMAKE_MATCH_1}")

set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
run("${CMAKE_COMMAND}" -S "${CONSUMER}" -B "${SCRATCH}/build" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${prefix}"
    "-DEXAMPLE=${SCRATCH}/mine.cpp"
    "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_FLAGS=${flags}")
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${SCRATCH}/build/consumer")
if(NOT output MATCHES "8 layers.*1 row of layer")
  message(FATAL_ERROR "the consumer printed something else: ${output}")
endif()

# Packages of programs have no headers and libraries.
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${SCRATCH}/programs" --component programs)
if(EXISTS "${SCRATCH}/programs/include" OR NOT EXISTS "${SCRATCH}/programs/bin/kvscope")
  message(FATAL_ERROR "the component \"programs\" has headers, or no program")
endif()
file(GLOB_RECURSE libraries "${SCRATCH}/programs/*.a" "${SCRATCH}/programs/*.cmake")
if(libraries)
  message(FATAL_ERROR "the component \"programs\" has ${libraries}")
endif()

run("${prefix}/bin/kvscope" info verifier)
if(NOT output MATCHES "the prefix/share/kvscope/samples/verifier")
  message(FATAL_ERROR "the installed program does not use the installed samples: ${output}")
endif()
set(desktop "")
if(EXISTS "${prefix}/bin/kvscope-explorer")
  set(desktop share/applications/kvscope-explorer.desktop share/mime/packages/kvscope.xml
      share/icons/hicolor/scalable/apps/kvscope.svg)
endif()
foreach(file IN ITEMS ${desktop} share/kvscope/samples/verifier/model.safetensors share/kvscope/samples/texts/kidnapped.txt
        share/bash-completion/completions/kvscope share/man/man1/kvscope.1)
  if(NOT EXISTS "${prefix}/${file}")
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()
