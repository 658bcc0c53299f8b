// Keys between frames: what each frame sees of them.
#include <GLFW/glfw3.h>
#include <imgui.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "gui/platform/key_queue.hpp"

namespace kvscope::gui::key_queue_test {
namespace {

struct Rig {
  ImGuiIO io;
  KeyQueue queue;

  void tap(int key) {
    queue.key(key, /*is_down=*/true);
    queue.key(key, /*is_down=*/false);
  }
  void type(char letter) {
    const int key = letter - 'a' + GLFW_KEY_A;
    queue.key(key, /*is_down=*/true);
    queue.letter(static_cast<unsigned>(letter));
    queue.key(key, /*is_down=*/false);
  }
  std::string take_letters() {
    std::string letters;
    for (const ImWchar c : io.InputQueueCharacters) letters += static_cast<char>(c);
    io.InputQueueCharacters.resize(0);
    return letters;
  }
};

TEST_CASE("a tap shorter than a frame is down for one frame", "[keys]") {
  Rig rig;
  rig.tap(GLFW_KEY_L);
  REQUIRE(rig.queue.feed(rig.io));
  REQUIRE(rig.io.KeysDown[GLFW_KEY_L]);
  REQUIRE_FALSE(rig.queue.feed(rig.io));
  REQUIRE_FALSE(rig.io.KeysDown[GLFW_KEY_L]);
  REQUIRE_FALSE(rig.queue.feed(rig.io));
}

TEST_CASE("letters right behind Ctrl and a key wait for the field that it opens", "[keys]") {
  Rig rig;
  rig.queue.key(GLFW_KEY_LEFT_CONTROL, /*is_down=*/true);
  rig.tap(GLFW_KEY_K);
  rig.queue.key(GLFW_KEY_LEFT_CONTROL, /*is_down=*/false);
  rig.type('l');
  for (int frame = 0; frame < 3; ++frame) {
    REQUIRE(rig.queue.feed(rig.io));
    REQUIRE(rig.take_letters().empty());
  }
  rig.io.WantTextInput = true;
  while (rig.queue.feed(rig.io)) {
  }
  REQUIRE(rig.take_letters() == "l");
}

TEST_CASE("two quick taps are two presses", "[keys]") {
  Rig rig;
  rig.tap(GLFW_KEY_L);
  rig.tap(GLFW_KEY_L);
  int n_presses = 0;
  bool was_down = false;
  for (int frame = 0; frame < 6; ++frame) {
    rig.queue.feed(rig.io);
    if (rig.io.KeysDown[GLFW_KEY_L] && !was_down) ++n_presses;
    was_down = rig.io.KeysDown[GLFW_KEY_L];
  }
  REQUIRE(n_presses == 2);
}

TEST_CASE("a chord within a frame keeps its modifier", "[keys]") {
  Rig rig;
  rig.queue.key(GLFW_KEY_RIGHT_CONTROL, /*is_down=*/true);
  rig.tap(GLFW_KEY_Z);
  rig.queue.key(GLFW_KEY_RIGHT_CONTROL, /*is_down=*/false);
  rig.queue.feed(rig.io);
  REQUIRE(rig.io.KeysDown[GLFW_KEY_Z]);
  REQUIRE(rig.io.KeyCtrl);
  rig.queue.feed(rig.io);
  REQUIRE_FALSE(rig.io.KeysDown[GLFW_KEY_Z]);
  REQUIRE_FALSE(rig.io.KeyCtrl);
}

TEST_CASE("a modifier that is let go of before its letter still counts in a slow frame", "[keys]") {
  for (const int modifier : {GLFW_KEY_LEFT_CONTROL, GLFW_KEY_LEFT_SHIFT}) {
    Rig rig;
    rig.queue.key(modifier, /*is_down=*/true);
    rig.queue.key(GLFW_KEY_S, /*is_down=*/true);
    rig.queue.key(modifier, /*is_down=*/false);  // as many fast typists do
    rig.queue.key(GLFW_KEY_S, /*is_down=*/false);
    REQUIRE(rig.queue.feed(rig.io));
    REQUIRE(rig.io.KeysDown[GLFW_KEY_S]);
    REQUIRE((rig.io.KeyCtrl || rig.io.KeyShift));
    for (int frame = 0; frame < 3; ++frame) rig.queue.feed(rig.io);
    REQUIRE_FALSE(rig.io.KeysDown[GLFW_KEY_S]);
    REQUIRE_FALSE((rig.io.KeyCtrl || rig.io.KeyShift));
  }
}

TEST_CASE("different keys are pressed in different frames, unless text is typed", "[keys]") {
  Rig rig;
  rig.queue.key(GLFW_KEY_L, /*is_down=*/true);
  rig.queue.key(GLFW_KEY_H, /*is_down=*/true);
  REQUIRE(rig.queue.feed(rig.io));
  REQUIRE(rig.io.KeysDown[GLFW_KEY_L]);
  REQUIRE_FALSE(rig.io.KeysDown[GLFW_KEY_H]);
  REQUIRE_FALSE(rig.queue.feed(rig.io));
  REQUIRE(rig.io.KeysDown[GLFW_KEY_H]);

  Rig typing;
  typing.io.WantTextInput = true;
  typing.type('a');
  typing.type('b');
  REQUIRE_FALSE(typing.queue.feed(typing.io));
  REQUIRE(typing.take_letters() == "ab");
}

TEST_CASE("letters stay on their side of Backspace and Enter", "[keys]") {
  Rig rig;
  rig.io.WantTextInput = true;
  rig.type('x');
  rig.tap(GLFW_KEY_BACKSPACE);
  rig.type('y');
  REQUIRE(rig.queue.feed(rig.io));
  REQUIRE(rig.take_letters() == "x");
  REQUIRE(rig.io.KeysDown[GLFW_KEY_BACKSPACE]);
  REQUIRE_FALSE(rig.queue.feed(rig.io));
  REQUIRE(rig.take_letters() == "y");
  REQUIRE_FALSE(rig.io.KeysDown[GLFW_KEY_BACKSPACE]);
}

TEST_CASE("keys that have no code are no keys", "[keys]") {
  Rig rig;
  rig.tap(GLFW_KEY_UNKNOWN);
  rig.tap(100000);
  REQUIRE_FALSE(rig.queue.feed(rig.io));
}

}  // namespace
}  // namespace kvscope::gui::key_queue_test
