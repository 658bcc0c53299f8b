#include "analysis/cli/unit_source.hpp"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>

#include "analysis/cli/child_process.hpp"
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

std::vector<std::string> listed_units(const std::string& text) {
  if (!text.starts_with('@')) return split_words(text, ',');
  const std::string lines = read_regular_file(text.substr(1), kMostOfList);
  const RankOfMany share = rank_of_many();
  std::vector<std::string> ids;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    if (end > begin && number++ % share.size == share.rank)
      ids.push_back(lines.substr(begin, end - begin));
    begin = end + 1;
  }
  return ids;
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
