# A guard of speed, run by hand before and after a change of speed: exit code 1 where something takes half as long again as it
# did, beside other work in the same process. No test: on a machine that is shared, what reads memory slows more than its reference.
add_executable(speed_guard bench/speed_guard.cpp bench/speed_guard_reference.cpp bench/speed_guard_subjects.cpp)
target_link_libraries(speed_guard PRIVATE kvscope::analysis kvscope::traces kvscope_test_support kvscope_flags)
if(KVSCOPE_BUILD_GUI)
  target_sources(speed_guard PRIVATE bench/speed_guard_frame.cpp)
  target_compile_definitions(speed_guard PRIVATE KVSCOPE_WITH_WINDOW)
  target_link_libraries(speed_guard PRIVATE kvscope::gui)
endif()
set_source_files_properties(bench/speed_guard_reference.cpp PROPERTIES COMPILE_DEFINITIONS HWY_BROKEN_EMU128=1)
