// What tests of selectors begin with: random calls and sequences, and lists by loops.
#pragma once

#include <fmt/format.h>

#include <random>
#include <set>

#include "core/base/parallel.hpp"
#include "core/selectors/method_spec.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/score_engine.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"
