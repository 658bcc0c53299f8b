// A user without aim: keys, clicks, drags, texts, wheels, sizes and files by a seed, into an
// explorer without a window.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <random>
#include <vector>

#include "tests/gui/app_rig.hpp"

namespace kvscope::gui::test {

/// Saves and exports where dialogs stand, so the current folder has to be one of its own, many
/// levels below any that matters: "Up" leads out of a folder.
class RandomUser {
 public:
  /// `files`: what is dropped onto the window, and changes on disk meanwhile.
  RandomUser(Rig& rig, std::uint64_t seed, std::vector<std::filesystem::path> files);

  /// One input and the frames that follow it. With `waits`, the next input finds the work of this
  /// one done, and the seed alone decides what happens; without, inputs and threads race.
  void act(bool waits);

  /// What holds after anything: work ends, Esc leaves every dialog, and a key is answered. Fails
  /// the test otherwise.
  void expect_life();

 private:
  int below(int n);
  template <class T>
  T one_of(std::initializer_list<T> all);
  ImVec2 somewhere();
  const std::filesystem::path& any_file();
  void frames(int n);
  void press_key();
  void click();
  void drag();
  void type();
  void resize();
  void drop();
  void change_file();

  Rig& rig_;
  std::mt19937_64 random_;
  std::vector<std::filesystem::path> files_;
  ImVec2 size_;
};

/// The latest inputs, one a line, to standard error: for the last words of a program that dies.
void print_last_inputs();

/// Traces, results, sessions and texts in `folder`: whole, cut, empty, damaged, or something else
/// under their names.
std::vector<std::filesystem::path> files_to_drop(const std::filesystem::path& folder);

}  // namespace kvscope::gui::test
