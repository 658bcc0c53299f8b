#include "tests/gui/app/random_user.hpp"

#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

namespace kvscope::gui::test {

namespace fs = std::filesystem;

namespace {

// A sanitized program in the background of a busy machine.
constexpr std::chrono::seconds kPatience{600};

// Plain memory: a program that dies writes it as it is.
constexpr std::size_t kRemembered = 60;
std::array<std::array<char, 120>, kRemembered> last_inputs{};
std::size_t n_inputs = 0;

void remember(std::string_view words) {
  auto& line = last_inputs[n_inputs++ % kRemembered];
  const std::size_t n = std::min(words.size(), line.size() - 2);
  std::memcpy(line.data(), words.data(), n);
  line[n] = '\n';
  line[n + 1] = '\0';
}

/// What the renderer would read: within the buffers, and numbers.
void check_drawing() {
  const ImDrawData* data = ImGui::GetDrawData();
  if (data == nullptr || !data->Valid) return;
  std::string wrong;
  for (int l = 0; l < data->CmdListsCount; ++l) {
    const ImDrawList& list = *data->CmdLists[l];
    for (const ImDrawVert& at : list.VtxBuffer) {
      if (!std::isfinite(at.pos.x) || !std::isfinite(at.pos.y)) wrong = "a corner is no number";
    }
    for (const ImDrawCmd& command : list.CmdBuffer) {
      if (command.UserCallback != nullptr) continue;
      const unsigned end = command.IdxOffset + command.ElemCount;
      if (end > static_cast<unsigned>(list.IdxBuffer.Size)) {
        wrong = "a command ends behind the indices";
        break;
      }
      for (unsigned i = command.IdxOffset; i < end; ++i) {
        const unsigned vertex = list.IdxBuffer[static_cast<int>(i)] + command.VtxOffset;
        if (vertex >= static_cast<unsigned>(list.VtxBuffer.Size)) wrong = "an index without corner";
      }
    }
  }
  CHECK(wrong == "");
}

}  // namespace

void print_last_inputs() {
  const std::size_t n = std::min(n_inputs, kRemembered);
  for (std::size_t i = n_inputs - n; i < n_inputs; ++i) {
    const char* line = last_inputs[i % kRemembered].data();
    if (::write(STDERR_FILENO, line, std::strlen(line)) < 0) return;
  }
}

RandomUser::RandomUser(Rig& rig, std::uint64_t seed, std::vector<fs::path> files)
    : rig_(rig), random_(seed), files_(std::move(files)), size_(rig.backend().size()) {
  remember(fmt::format("seed {}", seed));
}

// Not std::uniform_int_distribution, which differs between standard libraries.
int RandomUser::below(int n) {
  return static_cast<int>(random_() % static_cast<std::uint64_t>(n));
}

template <class T>
T RandomUser::one_of(std::initializer_list<T> all) {
  return all.begin()[below(static_cast<int>(all.size()))];
}

ImVec2 RandomUser::somewhere() {
  // Mostly at what says where it is: a user aims at controls, and at tokens, points and cells.
  const int kind = below(4);
  std::vector<ImVec2> places;
  if (kind < 3) {
    auto marks = rig_.app().state()["landmarks"];
    for (const std::string& name : rig_.app().panel_names()) {
      if (kind == 2) break;
      for (const auto& mark : rig_.app().panel(name).landmarks()) marks.erase(mark.first);
    }
    for (const auto& at : marks) places.push_back({at[0].get<float>(), at[1].get<float>()});
  }
  if (!places.empty()) return places[below(static_cast<int>(places.size()))];
  const auto along = [&](float side) {
    return static_cast<float>(below(std::max(1, static_cast<int>(side))));
  };
  return {along(size_.x), along(size_.y)};
}

void RandomUser::frames(int n) {
  for (int i = 0; i < n; ++i) {
    rig_.frame();
    check_drawing();
  }
}

void RandomUser::press_key() {
  const bool is_plain = below(3) != 0;
  const int key =
      below(2) == 0
          ? one_of({GLFW_KEY_TAB,       GLFW_KEY_LEFT,     GLFW_KEY_RIGHT,     GLFW_KEY_UP,
                    GLFW_KEY_DOWN,      GLFW_KEY_SPACE,    GLFW_KEY_ENTER,     GLFW_KEY_ESCAPE,
                    GLFW_KEY_ESCAPE,    GLFW_KEY_F1,       GLFW_KEY_F2,        GLFW_KEY_F10,
                    GLFW_KEY_PAGE_DOWN, GLFW_KEY_PAGE_UP,  GLFW_KEY_HOME,      GLFW_KEY_END,
                    GLFW_KEY_EQUAL,     GLFW_KEY_MINUS,    GLFW_KEY_BACKSPACE, GLFW_KEY_DELETE,
                    GLFW_KEY_INSERT,    GLFW_KEY_KP_ENTER, GLFW_KEY_SLASH})
          : (below(3) == 0 ? GLFW_KEY_1 + below(9) : GLFW_KEY_A + below(26));
  const bool ctrl = !is_plain && below(3) != 0;
  const bool shift = !is_plain && below(2) == 0;
  if (ctrl && key == GLFW_KEY_Q) return;  // leaves
  remember(fmt::format("key {}{}{}", ctrl ? "ctrl+" : "", shift ? "shift+" : "", key));
  // A window sends the letter too.
  const bool is_letter = (key >= GLFW_KEY_A && key <= GLFW_KEY_Z) || key <= GLFW_KEY_9;
  if (!ctrl && is_letter) {
    const bool lower = !shift && key >= GLFW_KEY_A;
    rig_.backend().type(std::string(1, static_cast<char>(lower ? key - 'A' + 'a' : key)));
  }
  rig_.tap(key, ctrl, shift);
}

void RandomUser::click() {
  const ImVec2 at = somewhere();
  const int button = one_of({0, 0, 0, 0, 0, 1, 2});
  const int n = one_of({1, 1, 1, 2});
  remember(fmt::format("click {} x{} {:.0f} {:.0f}", button, n, at.x, at.y));
  for (int i = 0; i < n; ++i) rig_.click(at, button);
}

void RandomUser::drag() {
  const ImVec2 from = somewhere();
  const ImVec2 to = somewhere();
  const int button = one_of({0, 0, 0, 1, 2});
  const bool shift = below(4) == 0;
  remember(
      fmt::format("drag {} {:.0f} {:.0f} to {:.0f} {:.0f}", button, from.x, from.y, to.x, to.y));
  rig_.backend().set_shift(shift);
  rig_.backend().move_mouse(from);
  frames(1);
  rig_.backend().press_button(button);
  frames(1);
  const int n = 1 + below(4);
  for (int i = 1; i <= n; ++i) {
    const float share = static_cast<float>(i) / static_cast<float>(n);
    rig_.backend().move_mouse({from.x + share * (to.x - from.x), from.y + share * (to.y - from.y)});
    frames(1);
  }
  rig_.backend().release_button(button);
  rig_.backend().set_shift(false);
}

void RandomUser::type() {
  const std::string words = one_of<const char*>({"layer 3",  "12",
                                                 "quest",    "quoka:n-q=8+quest",
                                                 "-1",       "99999999999999999999",
                                                 "äöü😀",     "../",
                                                 "nan",      "1e308",
                                                 "0",        "0.9",
                                                 "heads",    "%s%n",
                                                 "\\",       "a\tb",
                                                 "record",   ".",
                                                 "\xff\xfe", "€"});
  const int n = one_of({1, 1, 1, 40});
  remember(fmt::format("type {} x{}", words, words == "../" ? 1 : n));
  for (int i = 0; i < (words == "../" ? 1 : n); ++i) rig_.backend().type(words);
}

void RandomUser::resize() {
  size_ = {static_cast<float>(one_of({1, 2, 60, 200, 333, 640, 900, 1280, 1600, 2560})),
           static_cast<float>(one_of({1, 2, 40, 100, 260, 480, 600, 800, 900, 1440}))};
  remember(fmt::format("size {}x{}", size_.x, size_.y));
  rig_.backend().resize(size_);
  frames(1);
  if (below(3) != 0) return;
  size_ = {1280, 800};
  rig_.backend().resize(size_);
}

const fs::path& RandomUser::any_file() {
  return files_[below(static_cast<int>(files_.size()))];
}

void RandomUser::drop() {
  const int n = one_of({1, 1, 1, 3});
  for (int i = 0; i < n; ++i) {
    const fs::path& file = any_file();
    remember("drop " + file.filename().string());
    rig_.app().open(file);
  }
}

/// Another program replaces a file that may be open, or takes it away.
void RandomUser::change_file() {
  const fs::path& from = any_file();
  const fs::path& to = any_file();
  std::error_code error;
  if (!fs::is_regular_file(from, error) || fs::is_directory(to, error)) return;
  remember(fmt::format("{} becomes {}", to.filename().string(), from.filename().string()));
  if (below(4) == 0) {
    fs::remove(to, error);
    return;
  }
  const fs::path other = to.string() + ".new";
  fs::copy_file(from, other, fs::copy_options::overwrite_existing, error);
  fs::rename(other, to, error);
  rig_.app().has_news();
}

void RandomUser::act(bool waits) {
  const int kind = below(100);
  if (kind < 45) {
    press_key();
  } else if (kind < 68) {
    click();
  } else if (kind < 78) {
    drag();
  } else if (kind < 86) {
    type();
  } else if (kind < 91) {
    rig_.backend().move_mouse(somewhere());
    const float amount = one_of({-3.0f, -1.0f, 1.0f, 3.0f, 40.0f, -40.0f});
    remember(fmt::format("wheel {}", amount));
    rig_.backend().scroll(amount);
  } else if (kind < 95) {
    resize();
  } else if (kind < 98) {
    drop();
  } else {
    change_file();
  }
  frames(below(4));  // with none, the next input meets what this one has just opened
  if (waits && below(4) != 0) rig_.settle(kPatience);
  // Threads get somewhere, and are met at any point.
  if (!waits && below(2) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1 + below(40)));
}

void RandomUser::expect_life() {
  rig_.backend().resize(size_ = {1280, 800});
  rig_.settle(kPatience);
  // The tour, a dialog, a combo in it, a table: each takes one.
  for (int i = 0; i < 6; ++i) rig_.tap(GLFW_KEY_ESCAPE);
  rig_.settle(kPatience);
  const auto before = rig_.app().settings().theme;
  rig_.tap(GLFW_KEY_T, /*ctrl=*/true, /*shift=*/true);
  rig_.frame(2);
  CHECK(rig_.app().settings().theme != before);
  CHECK_FALSE(rig_.app().state().dump().empty());
}

}  // namespace kvscope::gui::test
