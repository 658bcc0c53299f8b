// What Twilight says about itself before it is asked: it needs what its base needs.

#include "core/selectors/method_spec.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::twilight_test {

using namespace kvscope::test;

TEST_CASE("twilight: caps are its base's before the first call") {
  CHECK(MethodSpec("twilight:base=specattn,base-budget=p=0.9").caps().needs_draft);
  CHECK(MethodSpec("twilight:base=lessismore").caps().cross_layer);
  CHECK(MethodSpec("twilight:base=loki:basis=calibrated").caps().needs_calibration);
  CHECK(MethodSpec("twilight:base=sparq").caps().needs_values);
  CHECK(MethodSpec("twilight:base=oracle-topk").caps().uses_pool);
  CHECK_FALSE(MethodSpec("twilight:base=recent,bits=16").caps().needs_draft);
}

}  // namespace kvscope::twilight_test
