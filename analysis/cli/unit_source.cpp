#include "analysis/cli/unit_source.hpp"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>

#include "analysis/cli/child_process.hpp"
#include "analysis/units/unit_folder.hpp"
#include "core/base/error.hpp"
#include "core/base/lists.hpp"
#include "core/base/number_text.hpp"
#include "core/base/whole_file.hpp"

namespace kvscope::cli {

namespace {

constexpr std::size_t kMostOfList = std::size_t{1} << 32U;

std::optional<std::size_t> number_in_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::nullopt : number_from<std::size_t>(text);
}

}  // namespace

RankOfMany rank_of_many() {
  // Of an array job first: its tasks may lie within an MPI environment of the submitting shell.
  if (const auto task = number_in_environment("SLURM_ARRAY_TASK_ID")) {
    const auto first = number_in_environment("SLURM_ARRAY_TASK_MIN").value_or(0);
    const auto step = number_in_environment("SLURM_ARRAY_TASK_STEP").value_or(1);
    const auto count = number_in_environment("SLURM_ARRAY_TASK_COUNT").value_or(1);
    if (*task >= first && step > 0 && (*task - first) / step < count)
      return {(*task - first) / step, count};
  }
  constexpr std::pair<const char*, const char*> kLaunchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank_name, size_name] : kLaunchers) {
    const auto rank = number_in_environment(rank_name);
    const auto size = number_in_environment(size_name);
    if (rank && size && *rank < *size) return {*rank, *size, /*is_mpi=*/true};
  }
  return {};
}

std::filesystem::path leases_of(const std::filesystem::path& list) {
  return list.string() + std::string(kLeasesEnding);
}

UnitLeases listed_units(const std::string& text, const std::filesystem::path& units) {
  if (!text.starts_with('@')) return UnitLeases(split_words(text, ','));
  const std::string file = text.substr(1);
  std::vector<std::string> ids;
  for (std::string& line : split_words(read_regular_file(file, kMostOfList), '\n')) {
    if (!line.empty()) ids.push_back(std::move(line));
  }
  const RankOfMany share = rank_of_many();
  std::error_code error;
  if (std::filesystem::is_directory(leases_of(file), error))
    return UnitLeases(std::move(ids), share.rank, share.size, leases_of(file), units);
  std::vector<std::string> own;
  for (std::size_t i = share.rank; i < ids.size(); i += share.size) own.push_back(ids[i]);
  return UnitLeases(std::move(own));
}

std::optional<std::string> InputLines::next() {
  for (;;) {
    if (const std::size_t end = text_.find('\n'); end != std::string::npos) {
      std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      return line;
    }
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int n = ::poll(&input, 1, /*milliseconds=*/100);
    if (stop_.stop_requested()) throw Interrupted("units: stopped before the next one");
    if (n > 0 && !read_some(STDIN_FILENO, text_)) break;
  }
  if (text_.empty()) return std::nullopt;
  return std::exchange(text_, std::string());
}

}  // namespace kvscope::cli
