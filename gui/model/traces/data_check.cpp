#include "gui/model/traces/data_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/base/analysis.hpp"
#include "core/base/error.hpp"
#include "gui/model/traces/trace_facts.hpp"

namespace kvscope::gui {

namespace {

constexpr Index kRowsPerRead = 4096;
constexpr Index kMostQuickNumbers = Index{1} << 24;  // of a group: larger ones keep no row waiting

using Read = std::function<Tensor<float>(TokenRange)>;

/// "NaN" or "Inf" if that is why a reader refused; else all of its words.
std::string brief_reason(const std::string& why) {
  for (const char* kind : {"NaN", "Inf"}) {
    if (why.ends_with(fmt::format("is {}", kind))) return kind;
  }
  return why;
}

/// The first position of a range that cannot be read for this reason, which at least one
/// cannot; and why. A piece that holds NaN may not have its checksum either: then no part of it
/// can be read.
std::pair<Index, std::string> first_unreadable(const Read& read, TokenRange range,
                                               const std::string& reason) {
  const bool is_number = reason == "NaN" || reason == "Inf";
  std::string why = reason;
  while (range.size() > 1) {
    const Index middle = range.begin + range.size() / 2;
    try {
      (void)read({range.begin, middle});
      range.begin = middle;
    } catch (const Error& e) {
      const std::string found = brief_reason(e.what());
      if (is_number && found != "NaN" && found != "Inf") {
        range.begin = middle;
        continue;
      }
      why = found;
      range.end = middle;
    }
  }
  try {
    (void)read(range);
  } catch (const Error& e) {
    why = brief_reason(e.what());
  }
  return {range.begin, why};
}

/// Adds norms bin by bin; bins are positions.begin + i * width.
class NormSums {
 public:
  explicit NormSums(TokenRange positions)
      : begin_(positions.begin),
        per_bin_(norm_bin_width(positions)),
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
  HeadNorms norms{.head = head, .positions = positions};
  NormSums sums(positions);
  bool has_problem = false;
  for (Index begin = positions.begin; begin < positions.end; begin += kRowsPerRead) {
    check_stop(job.stop, "the data check");
    const TokenRange range{begin, std::min(begin + kRowsPerRead, positions.end)};
    try {
      sums.add(range, read(range));
    } catch (const Error& e) {
      if (has_problem) continue;
      has_problem = true;
      const auto [pos, what] = first_unreadable(read, range, brief_reason(e.what()));
      check.problems.push_back({layer, std::string(array), head, pos, what});
    }
  }
  sums.finish(norms);
  return norms;
}

}  // namespace

Index norm_bin_width(TokenRange positions) {
  return std::max<Index>(1, (positions.size() + kNormBins - 1) / kNormBins);
}

std::string DataProblem::brief() const {
  const bool is_number = what == "NaN" || what == "Inf";
  return is_number ? fmt::format("{} holds {}", array, what) : array + " cannot be read";
}

std::string DataProblem::sentence() const {
  const std::string place =
      fmt::format("Layer {}, {} head {}", layer, array == "q" ? "query" : "key/value", head);
  if (what == "NaN" || what == "Inf") {
    return fmt::format("{}: {}, first at position {}. Views of this head fail there.", place,
                       brief(), pos);
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
  if (!info.capture.qkv)
    throw ConfigError("{}: holds no q, k and v to check", document.path().string());
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

std::optional<plot::Figure> norms_figure(const Document& document, Index layer, Index q_head,
                                         const GroupCheck& check) {
  const auto found = std::ranges::find(check.q, q_head, &HeadNorms::head);
  if (found == check.q.end() || found->bins.empty() || check.k.bins.empty()) return std::nullopt;
  Index widest = 1;
  const auto line_of = [&](const HeadNorms& norms, std::string label, int slot) {
    plot::Line line{
        .label = std::move(label), .tone = {plot::Role::series, slot}, .markers = false};
    const Index width = norm_bin_width(norms.positions);
    widest = std::max(widest, width);
    for (std::size_t i = 0; i < norms.bins.size(); ++i) {
      const Index begin = norms.positions.begin + static_cast<Index>(i) * width;
      const Index end = std::min(begin + width, norms.positions.end);
      line.add(0.5 * static_cast<double>(begin + end - 1), static_cast<double>(norms.bins[i]));
    }
    return line;
  };
  plot::Panel panel;
  panel.x.label = "position";
  panel.x.whole_numbers = true;
  panel.y.label = "Euclidean norm";
  panel.aspect = 0.5;
  panel.legend = plot::LegendPlace::above;
  panel.marks.push_back(line_of(*found, fmt::format("query head {}", q_head), 0));
  panel.marks.push_back(line_of(check.k, fmt::format("keys of head {}", check.k.head), 1));
  plot::Figure figure{.name = "norms",
                      .title = fmt::format("Norms of layer {}, query head {}", layer, q_head)};
  figure.panels.push_back(std::move(panel));
  figure.caption.push_back(
      fmt::format("Norms of the queries of head {} and of the keys they read, layer {} of {} ({}).",
                  q_head, layer, document.info().model_name, document.name()));
  if (widest > 1) {
    figure.caption.push_back(fmt::format("Means of {} neighbouring positions.", widest));
  }
  return figure;
}

// ---- checks as they are needed ----

void DataChecks::update(Workbench bench, const std::shared_ptr<const Document>& document,
                        Index layer) {
  const std::string key = document ? document->key() : std::string();
  if (key != document_) {
    slot_.clear();
    groups_.clear();
    skipped_.clear();
    problems_.clear();
    asked_.clear();
    largest_q_norm_ = 0.0;
    document_ = key;
  }
  is_busy_ = false;
  if (!document) return;
  const TraceInfo& info = document->info();
  if (!info.capture.qkv || !info.has_layer(layer)) return;
  for (const Index kv_head : info.kv_heads) {
    const Place place{layer, kv_head};
    if (groups_.contains(place) || skipped_.contains(place)) continue;
    const std::string wanted = key + group_check_key(layer, kv_head);
    is_busy_ = true;
    const bool is_known = bench.cache.find<GroupCheck>(wanted) != nullptr;
    if (wanted != asked_ && !is_known && bench.jobs.is_computing()) return;
    asked_ = wanted;
    const Index numbers = (info.group() + 2) * info.n_tokens * info.d_head;
    const Lane lane = numbers > kMostQuickNumbers ? Lane::heavy : Lane::quick;
    const auto view =
        slot_.ask(bench, wanted, {fmt::format("Checking the numbers of layer {}", layer), lane},
                  [document, layer, kv_head](JobContext& job) {
                    return check_group(*document, layer, kv_head, job);
                  });
    if (view.fresh) {
      take(place, view.value);
    } else if (view.status.is_over() && view.status.state != JobState::done) {
      skipped_.insert(place);
      slot_.retry();
      asked_.clear();
    } else {
      return;
    }
    is_busy_ = false;
  }
}

void DataChecks::take(Place place, std::shared_ptr<const GroupCheck> check) {
  problems_.insert(problems_.end(), check->problems.begin(), check->problems.end());
  for (const HeadNorms& norms : check->q) largest_q_norm_ = std::max(largest_q_norm_, norms.mean);
  groups_[place] = std::move(check);
}

const GroupCheck* DataChecks::find(Index layer, Index kv_head) const {
  const auto found = groups_.find({layer, kv_head});
  return found == groups_.end() ? nullptr : found->second.get();
}

const HeadNorms* DataChecks::find_q(Index layer, Index q_head) const {
  for (auto group = groups_.lower_bound({layer, 0});
       group != groups_.end() && group->first.first == layer; ++group) {
    for (const HeadNorms& norms : group->second->q) {
      if (norms.head == q_head) return &norms;
    }
  }
  return nullptr;
}

std::string head_table_csv(const TraceInfo& info, const DataChecks& checks) {
  const HeadGrid grid = head_grid(info);
  std::string csv = "layer,q_head,kv_head,recorded,kind,q_norm_mean,k_norm_mean\n";
  for (const GridLayer& layer : grid.layers) {
    const std::string kind = fmt::format("\"{}\"", fmt::join(layer.words, ", "));
    for (Index head = 0; head < info.n_q; ++head) {
      const Index kv_head = head / grid.group;
      const HeadNorms* q = checks.find_q(layer.layer, head);
      const GroupCheck* group = checks.find(layer.layer, kv_head);
      csv += fmt::format("{},{},{},{},{},{},{}\n", layer.layer, head, kv_head,
                         grid.is_recorded(layer.layer, head) ? 1 : 0, kind,
                         q != nullptr ? fmt::format("{:.6g}", q->mean) : "",
                         group != nullptr ? fmt::format("{:.6g}", group->k.mean) : "");
    }
  }
  return csv;
}

}  // namespace kvscope::gui
