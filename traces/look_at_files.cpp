#include "traces/look_at_files.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace kvscope {

namespace {

/// Takes files until none is left.
void look_at_rest(std::span<const std::filesystem::path> files, OpenFunction open,
                  std::unique_ptr<Looker> looker, std::atomic<std::size_t>& next,
                  std::span<std::optional<std::string>> said) {
  for (std::size_t i = next++; i < files.size(); i = next++) {
    const auto stamp = FileStamp::of(files[i]);
    if (!stamp) continue;
    if (!looker) looker = Looker::start(Looker::Life::stays);
    if (!looker) return;
    Answer answer = looker->ask(files[i], *stamp, open, /*options=*/0);
    if (answer.kind == Answer::Kind::good)
      said[i] = std::move(answer.words);
    else
      looker.reset();
  }
}

}  // namespace

std::vector<std::optional<std::string>> look_at_files(std::span<const std::filesystem::path> files,
                                                      OpenFunction open, int n_processes) {
  std::vector<std::optional<std::string>> said(files.size());
#ifdef __SANITIZE_THREAD__
  (void)open, (void)n_processes;  // it forbids the fork
#else
  std::atomic<std::size_t> next = 0;
  std::vector<std::unique_ptr<Looker>> lookers;  // all before the first thread
  for (int i = 0; i < n_processes; ++i) lookers.push_back(Looker::start(Looker::Life::stays));
  std::vector<std::jthread> threads;
  for (std::unique_ptr<Looker>& looker : lookers)
    threads.emplace_back([&, own = std::move(looker)]() mutable {
      look_at_rest(files, open, std::move(own), next, said);
    });
#endif
  return said;
}

}  // namespace kvscope
