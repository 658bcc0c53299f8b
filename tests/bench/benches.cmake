# Measurements, not tests: built on request ("cmake --build DIR --target bench_engine").
function(kvscope_bench name source)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE ${ARGN} kvscope_flags)
endfunction()

# How long a large trace takes to open, and what the look by another process costs.
kvscope_bench(bench_explorer_files bench/explorer_files.cpp kvscope::gui_model fmt::fmt)
# Recording against the bare prefill.
kvscope_bench(bench_recording bench/recording.cpp kvscope_cli fmt::fmt)
# Published speeds beside the cost model's predictions, and the model's error.
kvscope_bench(bench_ledger bench/ledger.cpp kvscope::analysis kvscope::core fmt::fmt)
# This machine as a profile of kvscope cost.
kvscope_bench(bench_machine bench/machine.cpp kvscope::analysis kvscope::core fmt::fmt)
# Attention and a nucleus on random data; table.py compares them with their peers.
kvscope_bench(bench_engine bench/engine.cpp kvscope::core fmt::fmt)
# How often vAttention's error exceeds what it states, on a recording.
kvscope_bench(bench_vattention bench/vattention_guarantee.cpp kvscope::traces fmt::fmt)
if(KVSCOPE_BUILD_GUI)
  # Frame times of the explorer.
  kvscope_bench(bench_explorer_panels bench/explorer_panels.cpp kvscope::gui fmt::fmt)
endif()
if(TARGET kvscope_cuda)
  add_library(bench_cuda_selection SHARED EXCLUDE_FROM_ALL bench/cuda_selection_api.cu)
  set_target_properties(bench_cuda_selection PROPERTIES CUDA_STANDARD 20 CUDA_RUNTIME_LIBRARY Static)
  target_link_libraries(bench_cuda_selection PRIVATE kvscope::cuda)
  # Whole models on the GPU: time to first token, recording.
  kvscope_bench(bench_cuda_model bench/cuda_model.cpp kvscope::cuda kvscope::traces fmt::fmt)
endif()
