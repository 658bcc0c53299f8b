# A guard of speed: exit code 1 where something takes half as long again as it did, beside other work in the same process.
add_executable(speed_guard bench/speed_guard.cpp bench/speed_guard_reference.cpp bench/speed_guard_subjects.cpp)
target_link_libraries(speed_guard PRIVATE kvscope::analysis kvscope::traces kvscope_test_support kvscope_flags)
if(KVSCOPE_BUILD_GUI)
  target_sources(speed_guard PRIVATE bench/speed_guard_frame.cpp)
  target_compile_definitions(speed_guard PRIVATE KVSCOPE_WITH_WINDOW)
  target_link_libraries(speed_guard PRIVATE kvscope::gui)
endif()
set_source_files_properties(bench/speed_guard_reference.cpp PROPERTIES COMPILE_DEFINITIONS HWY_BROKEN_EMU128=1)
# By itself, since other work takes more from some ratios than from others. The second entry shows that the guard barks.
add_test(NAME "bench: nothing takes half as long again as it did" COMMAND speed_guard)
add_test(NAME "bench: what takes twice as long is noticed" COMMAND speed_guard --slowed 2 --only "quoka's choice")
set_tests_properties("bench: nothing takes half as long again as it did" "bench: what takes twice as long is noticed"
                     PROPERTIES LABELS slow RUN_SERIAL ON SKIP_RETURN_CODE 77 TIMEOUT 120)
set_tests_properties("bench: what takes twice as long is noticed"
                     PROPERTIES PASS_REGULAR_EXPRESSION "slower than it was;not measured;not judged")
