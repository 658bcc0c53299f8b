#include "gui/model/data_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "analysis/analysis.hpp"
#include "core/base/error.hpp"

namespace kvscope::gui {

namespace {

constexpr Index kRowsPerRead = 4096;

using Read = std::function<Tensor<float>(TokenRange)>;

/// The first position of a range that cannot be read, which at least one cannot; and why.
std::pair<Index, std::string> first_unreadable(const Read& read, TokenRange range) {
  std::string why;
  while (range.size() > 1) {
    const Index middle = range.begin + range.size() / 2;
    try {
      (void)read({range.begin, middle});
      range.begin = middle;
    } catch (const Error&) {
      range.end = middle;
    }
  }
  try {
    (void)read(range);
  } catch (const Error& e) {
    why = e.what();
  }
  for (const char* kind : {"NaN", "Inf"}) {
    if (why.ends_with(fmt::format("is {}", kind))) why = kind;
  }
  return {range.begin, why};
}

/// Adds norms bin by bin; bins are positions.begin + i * width.
class NormSums {
 public:
  explicit NormSums(TokenRange positions)
      : begin_(positions.begin),
        per_bin_(std::max<Index>(1, (positions.size() + kNormBins - 1) / kNormBins)),
        sums_(static_cast<std::size_t>((positions.size() + per_bin_ - 1) / per_bin_), 0.0),
        counts_(sums_.size(), 0) {}

  void add(TokenRange range, const Tensor<float>& rows) {
    const Index d = rows.dim(1);
    for (Index i = 0; i < range.size(); ++i) {
      double sum = 0.0;
      for (Index c = 0; c < d; ++c) {
        const auto x = static_cast<double>(rows.data()[i * d + c]);
        sum += x * x;
      }
      const double norm = std::sqrt(sum);
      const auto bin = static_cast<std::size_t>((range.begin + i - begin_) / per_bin_);
      sums_[bin] += norm;
      ++counts_[bin];
      largest_ = std::max(largest_, norm);
    }
  }

  void finish(HeadNorms& norms) const {
    double sum = 0.0;
    Index count = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      norms.bins.push_back(counts_[i] > 0
                               ? static_cast<float>(sums_[i] / static_cast<double>(counts_[i]))
                               : std::numeric_limits<float>::quiet_NaN());
      sum += sums_[i];
      count += counts_[i];
    }
    norms.mean = count > 0 ? sum / static_cast<double>(count) : 0.0;
    norms.largest = largest_;
  }

 private:
  Index begin_;
  Index per_bin_;
  std::vector<double> sums_;
  std::vector<Index> counts_;
  double largest_ = 0.0;
};

/// Reads all positions of one head; norms of what is finite, the first problem of what is not.
HeadNorms check_head(GroupCheck& check, Index layer, std::string_view array, Index head,
                     TokenRange positions, const Read& read, const JobContext& job) {
  HeadNorms norms;
  norms.head = head;
  norms.positions = positions;
  NormSums sums(positions);
  bool has_problem = false;
  for (Index begin = positions.begin; begin < positions.end; begin += kRowsPerRead) {
    check_stop(job.stop, "the data check");
    const TokenRange range{begin, std::min(begin + kRowsPerRead, positions.end)};
    try {
      sums.add(range, read(range));
    } catch (const Error&) {
      if (has_problem) continue;
      has_problem = true;
      const auto [pos, what] = first_unreadable(read, range);
      check.problems.push_back({layer, std::string(array), head, pos, what});
    }
  }
  sums.finish(norms);
  return norms;
}

}  // namespace

std::string DataProblem::sentence() const {
  const std::string place =
      fmt::format("Layer {}, {} head {}", layer, array == "q" ? "query" : "key/value", head);
  if (what == "NaN" || what == "Inf") {
    return fmt::format("{}: {} holds {}, first at position {}. Views of this head fail there.",
                       place, array, what, pos);
  }
  return fmt::format("{}: {} cannot be read from position {} on: {}", place, array, pos, what);
}

std::size_t GroupCheck::bytes() const {
  std::size_t bytes = sizeof *this + k.bins.size() * sizeof(float);
  for (const HeadNorms& norms : q) bytes += sizeof norms + norms.bins.size() * sizeof(float);
  for (const DataProblem& problem : problems) bytes += sizeof problem + problem.what.size();
  return bytes;
}

std::string group_check_key(Index layer, Index kv_head) {
  return fmt::format("check/{}/{}", layer, kv_head);
}

GroupCheck check_group(const Document& document, Index layer, Index kv_head, JobContext& job) {
  const TraceFile& file = document.file();
  const TraceInfo& info = document.info();
  if (!info.capture.qkv) {
    throw ConfigError(fmt::format("{}: holds no q, k and v to check", document.path().string()));
  }
  info.layer_slot(layer);
  info.kv_slot(kv_head);
  GroupCheck check;
  const TokenRange all{0, info.n_tokens};
  std::int64_t done = 0;
  const auto total = static_cast<std::int64_t>(info.group()) + 2;
  const auto tell = [&] {
    if (job.progress) job.progress({"reading", ++done, total, "arrays"});
  };
  for (const Index head : info.q_heads) {
    if (head / info.group() != kv_head) continue;
    check.q.push_back(check_head(
        check, layer, "q", head, info.rows,
        [&](TokenRange range) { return file.read_q(layer, head, range); }, job));
    tell();
  }
  check.k = check_head(
      check, layer, "k", kv_head, all,
      [&](TokenRange range) { return file.read_k(layer, kv_head, range); }, job);
  tell();
  check_head(
      check, layer, "v", kv_head, all,
      [&](TokenRange range) { return file.read_v(layer, kv_head, range); }, job);
  tell();
  return check;
}

}  // namespace kvscope::gui
