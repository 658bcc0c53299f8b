# A guard of speed: exit code 1 where something takes half as long again as it did, beside other work in the same process.
add_executable(speed_guard bench/speed_guard.cpp bench/speed_guard_reference.cpp bench/speed_guard_subjects.cpp)
target_link_libraries(speed_guard PRIVATE kvscope::analysis kvscope_test_support kvscope_flags)
if(KVSCOPE_BUILD_GUI)
  target_sources(speed_guard PRIVATE bench/speed_guard_frame.cpp)
  target_compile_definitions(speed_guard PRIVATE KVSCOPE_WITH_WINDOW)
  target_link_libraries(speed_guard PRIVATE kvscope::gui)
endif()
set_source_files_properties(bench/speed_guard_reference.cpp PROPERTIES COMPILE_DEFINITIONS HWY_BROKEN_EMU128=1)
# No entry of CTest yet: the ratios were measured once, under AVX-512, and how far they vary is not known.
