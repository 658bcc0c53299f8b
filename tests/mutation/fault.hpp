// Which planted fault is switched on, in the copy of the tree that mutation.py makes.
#pragma once

#include <cstdlib>

/// True for the number in the environment variable KVSCOPE_FAULT, which is read once.
inline bool kvscope_fault(int number) {
  static const int switched_on = [] {
    const char* const text = std::getenv("KVSCOPE_FAULT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return number == switched_on;
}
