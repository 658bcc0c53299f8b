// Which units a worker does: --unit ID[,ID...], @FILE or -.
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "analysis/units/unit_leases.hpp"

namespace kvscope::cli {

/// Where workers that share the list of ids `list` say what they have taken.
std::filesystem::path leases_of(const std::filesystem::path& list);

/// The ids of a list between commas or of "@FILE". Where leases_of(FILE) is there, several workers
/// share it out among themselves; else one among several ranks takes its share: line rank, rank +
/// size, ... Throws IoError for a file that cannot be read.
UnitLeases listed_units(const std::string& text, const std::filesystem::path& units);

/// A rank and how many there are, as a launcher says it in the environment: mpirun of Open MPI or
/// MPICH, an array job of Slurm. 0 of 1 elsewhere.
struct RankOfMany {
  std::size_t rank = 0;
  std::size_t size = 1;
  bool is_mpi = false;
};
RankOfMany rank_of_many();

/// What a worker that reads ids from standard input prints besides the ids of finished units:
/// first that it listens, and behind an id that its unit failed.
inline constexpr std::string_view kSaysReady = "ready";
inline constexpr std::string_view kSaysFailed = " failed";

/// Lines of standard input; a stop ends the waiting for the next one.
class InputLines {
 public:
  explicit InputLines(std::stop_token stop) : stop_(std::move(stop)) {}
  /// Empty at the end. Throws Interrupted on a stop.
  std::optional<std::string> next();

 private:
  std::stop_token stop_;
  std::string text_;
};

}  // namespace kvscope::cli
