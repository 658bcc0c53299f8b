// What speed_guard measures: pieces of the program, each beside a piece of work that does not use
// it and takes a like share of the same processor.
#pragma once

#include <cstddef>
#include <functional>

namespace kvscope::bench {

/// Both return seconds of processor time, of all threads together, for one run of theirs.
struct Subject {
  std::function<double()> ours;
  std::function<double()> reference;
};

/// Processor time of this process so far, in seconds.
double processor_seconds();

/// Seconds of processor time that body takes.
double timed(const std::function<void()>& body);

// Each makes its data anew. The references: products in registers (attention, prefill; in f64 the
// sweep), products of queries with the rows of as much memory (choices), forks (first look), a
// frame with one picture (map).
Subject first_look();
Subject chunk_attention();
Subject prefill();
Subject quoka_choice();
Subject quest_choice();
Subject sweep();
/// Throws IoError, saying what is missing, where nothing can be drawn without a display.
Subject map_frame();

// References, on the vector target that the kernels run on (speed_guard_reference.cpp).

/// About n multiply-adds in tiles of vector registers; returns a number that depends on all.
float f32_products(double n);
double f64_products(double n);
/// Products of n_q queries (a multiple of 4) [n_q, width] with rows k [n, width]; returns the
/// largest. width: a multiple of the vectors' lanes.
float row_products(const float* q, std::ptrdiff_t n_q, const float* k, std::ptrdiff_t n,
                   std::ptrdiff_t width);

}  // namespace kvscope::bench
