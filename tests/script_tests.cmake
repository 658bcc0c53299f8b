# Tests that scripts run: the programs in windows, under launchers, attacked, from notebooks, from Python. Each is skipped
# (exit code 77), with the reason, where what it needs is missing.
if(NOT KVSCOPE_PYTHON)
  message(STATUS "the tests that need Python are left out: there is no python3")
  return()
endif()

# kvscope_script_test(name script [LABELS ...] [TIMEOUT seconds] [ARGS ...])
function(kvscope_script_test name script)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT ${KVSCOPE_TEST_TIMEOUT})
  endif()
  add_test(NAME "${name}" COMMAND "${KVSCOPE_PYTHON}" "${CMAKE_CURRENT_SOURCE_DIR}/${script}" ${ARG_ARGS})
  set_tests_properties("${name}" PROPERTIES LABELS "${ARG_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${ARG_TIMEOUT}
                       ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endfunction()

set(program "$<TARGET_FILE:kvscope>")

if(KVSCOPE_BUILD_GUI)
  # The real program in a real window, under Xvfb with xdotool, each entry on a display of its own.
  set(window gui_window/window_test.py)
  set(programs ${program} "$<TARGET_FILE:kvscope-explorer>")
  kvscope_script_test("window: a typed layer and position" ${window} LABELS window ARGS ${programs} typed_layer)
  foreach(file files layout live program selection)
    kvscope_script_test("window: ${file}" ${window} LABELS window slow TIMEOUT 900 ARGS ${programs} --file ${file}_test)
  endforeach()
endif()

# The notebooks, executed under Jupyter, which a virtual environment in the build folder gets from pip.
set(notebooks ARGS ${program} "${CMAKE_CURRENT_BINARY_DIR}/notebooks" "${CMAKE_CURRENT_SOURCE_DIR}/golden/results/passkey.csv")
kvscope_script_test("notebooks: one runs under jupyter nbconvert" notebooks_export/run_notebooks.py LABELS notebooks
                    ${notebooks} recall)
kvscope_script_test("notebooks: every one runs under jupyter nbconvert" notebooks_export/run_notebooks.py
                    LABELS notebooks slow ${notebooks})
set_tests_properties("notebooks: one runs under jupyter nbconvert" "notebooks: every one runs under jupyter nbconvert"
                     PROPERTIES RESOURCE_LOCK notebooks)
# A page of kvscope export in headless Chromium.
kvscope_script_test("notebooks: a page of attention maps in a browser" notebooks_export/page_in_browser.py LABELS browser
                    TIMEOUT 120 ARGS ${program} "${CMAKE_CURRENT_BINARY_DIR}/page_in_browser")

# Damaged and hostile files, texts and options against the built program. A finding prints its input; attack.py says how to
# repeat it.
kvscope_script_test("attack: five seconds of hostile input" attack/attack.py ARGS ${program} --seconds 5 --seed 3)
kvscope_script_test("attack: every kind of hostile input, a little of each" attack/attack.py LABELS slow
                    ARGS ${program} --seconds 25 --seed 1)
kvscope_script_test("attack: every kind of hostile input, half an hour" attack/attack.py LABELS heavy TIMEOUT 2400
                    ARGS ${program} --seconds 1700 --seed 2)

# Every call that can fail, fails once: for the cheapest commands each of them, for all commands a share that a seed draws.
kvscope_script_test("faults: every failing call of small commands" faults/faults.py LABELS slow
                    ARGS ${program} "$<TARGET_FILE:kvscope_failing_disk>" --commands "tokenize,table,figure,sweep of a store that knows all")
kvscope_script_test("faults: a tenth of the failing calls of every command" faults/faults.py LABELS slow
                    ARGS ${program} "$<TARGET_FILE:kvscope_failing_disk>" --share 0.1 --reads 0.01 --seed 1)
kvscope_script_test("faults: every failing call of every command" faults/faults.py LABELS heavy TIMEOUT 3600
                    ARGS ${program} "$<TARGET_FILE:kvscope_failing_disk>")

# What a power cut may leave of a command's files, and what is made of it.
kvscope_script_test("faults: power cuts" faults/power_cut.py LABELS slow
                    ARGS ${program} "$<TARGET_FILE:kvscope_failing_disk>" --share 0.1 --seed 1)
kvscope_script_test("faults: power cuts at every change" faults/power_cut.py LABELS heavy TIMEOUT 3600
                    ARGS ${program} "$<TARGET_FILE:kvscope_failing_disk>")

# Units under the launchers of clusters; Slurm's is a cluster of one node that the test starts itself.
foreach(engine mpi slurm ray)
  kvscope_script_test("engines: items by ${engine}" engines/engines_test.py LABELS heavy ${engine} ARGS ${program} ${engine})
  set_tests_properties("engines: items by ${engine}" PROPERTIES RUN_SERIAL ON)
endforeach()
# A study on a full disk, with damaged recordings, other code and fifty deaths.
kvscope_script_test("engines: a study that everything happens to" engines/study_ordeal.py LABELS heavy TIMEOUT 3600 ARGS ${program})

# The sixty planted faults still have their places in the sources; whether tests notice them is for people to ask.
kvscope_script_test("mutation: every planted fault has its place" mutation/mutation.py ARGS --check)

# What documents show of stored results, and the first page's first session, as a reader would type it.
kvscope_script_test("readme: tables are what their commands print" readme/tables.py ARGS ${program})
kvscope_script_test("readme: the first hour, command by command" readme/first_hour.py ARGS ${program})

# The Python package has its own environment (PyTorch, transformers), which its script makes if test.sh did not.
function(kvscope_python_test name)
  add_test(NAME "${name}" COMMAND "${PROJECT_SOURCE_DIR}/traces/python/test.sh" ${ARGN})
  set_tests_properties("${name}" PROPERTIES RESOURCE_LOCK build_folder LABELS python TIMEOUT 2400 SKIP_RETURN_CODE 77
                       ENVIRONMENT "KVSCOPE_PROGRAM=${program}")
endfunction()
kvscope_python_test("python: the package, own selectors, the recorder for transformers models" -m "not slow")
kvscope_python_test("python: every family, all list rules" -m slow)
set_property(TEST "python: every family, all list rules" APPEND PROPERTY LABELS slow)
