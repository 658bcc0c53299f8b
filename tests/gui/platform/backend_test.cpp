// A backend's frame: closed whatever happens inside it.
#include <GLFW/glfw3.h>

#include <catch2/catch_test_macros.hpp>

#include "core/base/error.hpp"
#include "tests/gui/platform/null_backend.hpp"

namespace kvscope::gui::test::backend_test {
namespace {

TEST_CASE("an exception inside a frame goes on, and leaves a backend that still draws",
          "[platform]") {
  NullBackend backend;
  const auto broken = [] {
    ImGui::Begin("window");
    ImGui::BeginChild("child");
    ImGui::PushStyleVar(ImGuiStyleVar_FrameRounding, 1.0F);
    ImGui::PushID("id");
    throw IoError("the disk is full");
  };
  CHECK_THROWS_AS(backend.frame(broken), IoError);
  backend.frame([] {
    ImGui::GetForegroundDrawList()->AddRectFilled({0, 0}, {9, 9}, IM_COL32_WHITE);
  });
  CHECK(backend.n_vertices() >= 4);
}

}  // namespace
}  // namespace kvscope::gui::test::backend_test
