#include "traces/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/base/error.hpp"
#include "core/base/splitmix64.hpp"
#include "traces/encode.hpp"
#include "traces/hash.hpp"
#include "traces/layout.hpp"
#include "traces/pieces.hpp"
#include "traces/raw_file.hpp"
#include "traces/reader.hpp"
#include "traces/verify_rows.hpp"

namespace kvscope {

namespace {

constexpr std::size_t kMaxSpelledOut = 20;

/// Collects problems; after kMaxSpelledOut of a kind only counts them.
class Problems {
 public:
  void add(const std::string& kind, std::string sentence) {
    const std::size_t n = ++n_of_kind_[kind];
    if (n <= kMaxSpelledOut) sentences_.push_back(std::move(sentence));
  }
  std::vector<std::string> take() {
    for (const auto& [kind, n] : n_of_kind_) {
      if (n > kMaxSpelledOut)
        sentences_.push_back(
            fmt::format("and {} more problems of kind '{}'", n - kMaxSpelledOut, kind));
    }
    return std::move(sentences_);
  }

 private:
  std::map<std::string, std::size_t> n_of_kind_;
  std::vector<std::string> sentences_;
};

/// NaN and Inf of stored floats, reported once per piece.
BlockFn finite_checker(const schema::ArraySpec& array, Problems& problems) {
  const auto dtype = h5::dtype_of(array.type);
  if (!dtype) return {};
  return
      [&array, &problems, dtype = *dtype](Index first, Index n, std::span<const std::byte> rows) {
        std::vector<float> values(static_cast<std::size_t>(n * array.row_size()));
        to_float(dtype, rows.data(), values.data(), values.size());
        try {
          require_finite(array.path, first, array.row_size(), values);
        } catch (const FormatError& error) {
          problems.add("not finite", error.what());
        }
      };
}

/// A dataset's numbers of one head in one call.
struct PieceId {
  std::size_t array;
  Index call, head;
};

void check_pieces(const TraceLayout& layout, Index n_calls, const VerifyOptions& options,
                  Problems& problems, VerifyReport& report, const ProgressFn& progress) {
  std::vector<PieceId> pieces;
  for (std::size_t array = 0; array < layout.arrays.size(); ++array) {
    for (Index head = 0; head < layout.arrays[array].n_heads(); ++head) {
      for (Index call = 0; call < n_calls; ++call) pieces.push_back({array, call, head});
    }
  }
  const auto n = static_cast<Index>(pieces.size());
  report.n_all_checksums += n;
  SampledVisits visits(n, options.bounds.part_of(2), options.seed);
  const Index n_told = std::max<Index>(n / 100, 1);
  for (Index at = visits.next(); at >= 0; at = visits.next()) {
    const auto& [array, call, head] = pieces[static_cast<std::size_t>(at)];
    try {
      std::string problem =
          check_piece(layout, array, call, head, finite_checker(layout.arrays[array], problems));
      ++report.n_checksums;
      if (!problem.empty()) problems.add("checksum", std::move(problem));
    } catch (const Error& error) {
      problems.add("unreadable", error.what());
    }
    if (progress && (visits.n_taken() % n_told == 0 || visits.n_taken() == n))
      progress({"checksums", visits.n_taken(), n, "pieces"});
  }
}

void check_text(const TraceLayout& layout, Index n_calls, Problems& problems,
                VerifyReport& report) {
  if (!layout.token_bytes || !layout.text_checksums) return;
  for (Index call = 0; call < n_calls; ++call) {
    try {
      std::uint64_t recorded = 0;
      layout.text_checksums->read({call}, {1}, &recorded);
      ++report.n_checksums;
      ++report.n_all_checksums;
      if (recorded != text_checksum(layout, call)) {
        problems.add(
            "checksum",
            fmt::format("token text of call {}: does not have the recorded checksum", call));
      }
    } catch (const Error& error) {
      problems.add("unreadable", error.what());
    }
  }
}

void check_content_hash(const TraceLayout& layout, Problems& problems) {
  if (layout.info.status == TraceStatus::recording) return;
  std::vector<std::vector<std::uint64_t>> tables;
  for (std::size_t i = 0; i < layout.checksum_list.size(); ++i)
    tables.push_back(layout.checksums(i).read_all<std::uint64_t>());
  std::vector<std::uint64_t> text;
  if (layout.text_checksums) text = layout.text_checksums->read_all<std::uint64_t>();
  const auto tokens = layout.data(0).read_all<std::int32_t>();
  const std::string found = hash_contents(layout.info, tokens, tables, text);
  if (found != layout.info.content_hash) {
    problems.add("content hash", fmt::format("content_hash is '{}', the file's contents give '{}'",
                                             layout.info.content_hash, found));
  }
}

/// What recomputing attention does not need, but readers believe. Files of older versions have no
/// checksum of it.
void check_model(const TraceLayout& layout, Problems& problems, VerifyReport& report) {
  if (!layout.file.has(schema::kModelChecksum)) return;
  const auto recorded = layout.file.open_dataset(schema::kModelChecksum).read_all<std::uint64_t>();
  ++report.n_checksums;
  ++report.n_all_checksums;
  if (recorded.size() == 1 && recorded[0] == model_checksum(layout.info)) return;
  problems.add("checksum", fmt::format("{} and {}: do not have the recorded checksum",
                                       schema::kConfigJson, schema::kLayerKinds));
}

void check_tokens(const TraceFile& trace, Problems& problems) {
  const auto tokens = trace.tokens();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < trace.info().n_vocab) continue;
    problems.add("token", fmt::format("/tokens: token {} has the id {}, expected 0 to {}", i,
                                      tokens[i], trace.info().n_vocab - 1));
  }
}

/// Reading a layer's routing names experts that it does not have.
void check_routing(const TraceFile& trace, const VerifyBounds& bounds, Problems& problems) {
  const TraceInfo& info = trace.info();
  if (!info.capture.routing) return;
  for (const Index layer : info.layers) {
    if (!info.has_experts(layer)) continue;
    if (bounds.is_over()) return;
    try {
      trace.read_routing(layer, info.rows);
    } catch (const FormatError& error) {
      problems.add("routing", error.what());
    }
  }
}

/// Reading the chosen blocks names those that a row cannot see; reading side tensors, numbers that
/// are not finite (where there are checksums, check_pieces has named these).
void check_side(const TraceFile& trace, const VerifyBounds& bounds, bool has_checksums,
                Problems& problems) {
  const TraceInfo& info = trace.info();
  const auto read = [&](const char* kind, const auto& part) {
    if (bounds.is_over()) return;
    try {
      part();
    } catch (const FormatError& error) {
      problems.add(kind, error.what());
    }
  };
  for (const Index layer : info.index.layers) {
    for (Index list = 0; list < info.index.n_lists; ++list)
      read("chosen blocks", [&] { trace.read_selected(layer, list, info.rows); });
  }
  if (has_checksums) return;
  const TokenRange all{0, info.n_tokens};
  for (const Index layer : info.layers) {
    for (Index head = 0; info.index.has_layer(layer) && head < info.index.n_heads; ++head) {
      read("not finite", [&] { trace.read_side(SideTensor::index_q, layer, head, info.rows); });
      if (info.index.has_gates)
        read("not finite", [&] { trace.read_side(SideTensor::index_w, layer, head, info.rows); });
    }
    for (Index head = 0; info.index.has_layer(layer) && head < info.index.n_key_heads; ++head)
      read("not finite", [&] { trace.read_side(SideTensor::index_k, layer, head, all); });
    if (!info.capture.k_pre_rope) continue;
    for (const Index head : info.kv_heads_of(layer))
      read("not finite", [&] { trace.read_side(SideTensor::k_pre_rope, layer, head, all); });
  }
}

void check_calls(const TraceInfo& info, Problems& problems) {
  for (std::size_t i = 0; i < info.calls.size(); ++i) {
    const ForwardCall& call = info.calls[i];
    const bool fits = call.is_decode
                          ? call.tokens.begin >= info.n_prompt && call.tokens.size() == 1
                          : call.tokens.end <= info.n_prompt && call.tokens.size() <= info.chunk;
    if (fits) continue;
    problems.add(
        "units",
        fmt::format("/units: call {} (tokens {} to {}) contradicts n_prompt = {} and chunk = {}", i,
                    call.tokens.begin, call.tokens.end, info.n_prompt, info.chunk));
  }
}

/// n positions of [begin, end), ascending and spread evenly, moved by the seed; the last one is
/// always among them.
std::vector<Index> sample_rows(TokenRange range, Index n, std::uint64_t seed) {
  std::vector<Index> rows;
  n = std::min(n, range.size());
  std::uint64_t state = seed;
  for (Index i = 0; i < n; ++i) {
    const Index low = range.begin + range.size() * i / n;
    const Index high = range.begin + range.size() * (i + 1) / n;
    state += kSplitMix64Step;
    rows.push_back(
        low + static_cast<Index>(splitmix64_mix(state) % static_cast<std::uint64_t>(high - low)));
  }
  if (!rows.empty()) rows.back() = range.end - 1;
  return rows;
}

struct LayerHead {
  Index layer, kv_head;
};

/// Every recorded KV head of every recorded layer.
std::vector<LayerHead> all_kv_heads(const TraceInfo& info) {
  std::vector<LayerHead> heads;
  for (const Index layer : info.layers) {
    for (const Index kv_head : info.kv_heads_of(layer)) heads.push_back({layer, kv_head});
  }
  return heads;
}

/// Visits layers' KV heads in threads, as many as the bounds allow: the same ones, and in the same
/// order, for everything that is asked of them. How many that were.
Index visit_heads(const std::vector<LayerHead>& heads, const VerifyOptions& options,
                  ThreadPool& pool, const char* what, const ProgressFn& progress,
                  const std::function<void(std::size_t pair, Index layer, Index kv_head)>& visit) {
  const Index n_pairs = std::ssize(heads);
  SampledVisits visits(n_pairs, options.bounds, options.seed);
  for (;;) {
    std::vector<Index> pairs;
    for (Index i = 0; i < std::max<Index>(pool.n_threads(), 1); ++i) {
      const Index pair = visits.next();
      if (pair >= 0) pairs.push_back(pair);
    }
    if (pairs.empty()) return visits.n_taken();
    pool.parallel_for(static_cast<Index>(pairs.size()), [&](Index i, int) {
      const auto pair = static_cast<std::size_t>(pairs[static_cast<std::size_t>(i)]);
      visit(pair, heads[pair].layer, heads[pair].kv_head);
    });
    if (progress) progress({what, visits.n_taken(), n_pairs, "KV heads"});
  }
}

constexpr double kMostUnsaid = 0.5;  // nat

/// The log-sum-exp moves by no more than scores do.
bool is_said(const TraceInfo& info, std::size_t slot, double lse_error) {
  return !info.moved_scores.empty() && info.moved_scores[slot] >= lse_error;
}

void check_attention(const TraceFile& trace, const VerifyOptions& options, ThreadPool& pool,
                     Problems& problems, VerifyReport& report, const ProgressFn& progress) {
  const TraceInfo& info = trace.info();
  if (!info.capture.qkv || info.rows.size() == 0 || options.n_rows <= 0) {
    report.notes.emplace_back(
        "no attention was recomputed: the trace holds no q, k and v, or no rows were asked for");
    return;
  }
  const RowTolerance tolerance = base_tolerance(info.dtype);
  const std::vector<LayerHead> heads = all_kv_heads(info);
  // Per pair (layer, KV head): keys and values are read once for all query heads of the group.
  struct Outcome {
    std::vector<RowCheck> checks;
    std::string failure;
  };
  std::vector<Outcome> outcomes(heads.size());
  report.n_heads_checked = visit_heads(
      heads, options, pool, "attention", progress,
      [&](std::size_t pair, Index layer, Index kv_head) {
        Outcome& outcome = outcomes[pair];
        try {
          const TokenRange seen = {0, info.rows.end};
          const CheckedHead head(trace.read_k(layer, kv_head, seen),
                                 trace.read_v(layer, kv_head, seen), info.dtype);
          for (const Index q_head : info.q_heads) {
            if (q_head / info.group(layer) != kv_head) continue;
            const std::uint64_t seed =
                options.seed + static_cast<std::uint64_t>(layer * info.n_q + q_head);
            outcome.checks.push_back(check_rows(
                trace, layer, q_head, sample_rows(info.rows, options.n_rows, seed), head));
          }
        } catch (const Error& error) {
          outcome.failure = error.what();
        }
      });
  report.n_all_heads = std::ssize(heads);
  std::vector<LseRow> lse_rows;
  report.lse_errors.resize(info.layers.size());
  for (std::size_t pair = 0; pair < outcomes.size(); ++pair) {
    Outcome& outcome = outcomes[pair];
    if (!outcome.failure.empty()) problems.add("unreadable", outcome.failure);
    for (auto& check : outcome.checks) {
      report.n_rows_checked += check.n_rows;
      report.max_lse_error = std::max(report.max_lse_error, check.lse_error);
      double& of_layer =
          report.lse_errors[static_cast<std::size_t>(info.layer_slot(heads[pair].layer))];
      of_layer = std::max(of_layer, check.lse_error);
      report.max_attn_error = std::max(report.max_attn_error, check.attn_error);
      report.max_row_sum_error = std::max(report.max_row_sum_error, check.row_sum_error);
      report.max_output_norm = std::max(report.max_output_norm, check.output_norm);
      for (auto& sentence : check.problems) problems.add("recomputation", std::move(sentence));
      lse_rows.insert(lse_rows.end(), check.lse_rows.begin(), check.lse_rows.end());
    }
  }
  for (auto& sentence : rows_of_other_keys(lse_rows, info.dtype)) {
    problems.add("lse of other keys", std::move(sentence));
  }
  for (std::size_t slot = 0; slot < report.lse_errors.size(); ++slot) {
    const double error = report.lse_errors[slot];
    if (error <= kMostUnsaid || is_said(info, slot, error)) continue;
    problems.add(
        "rounding",
        fmt::format("/layers/{}: storing q and k in {} moved the log-sum-exp of a row by {:.2g}, "
                    "expected at most {}, or a trace that says so in {}: rows of this layer are "
                    "not the model's; record it with --dtype auto",
                    info.layers[slot], enum_name(info.dtype), error, kMostUnsaid,
                    schema::kMovedScores));
  }
}

/// How far a recorded statistic of this size may be from the one of stored rows: rows are rounded
/// to the storage type, small ones of f16 to multiples of 2^-24, and norms are sums in f32.
double allowed_difference(double value, DType dtype) {
  return std::fabs(value) * (1.01 * unit_roundoff(dtype) + 1e-5) + 1e-6;
}

/// The first norm that is not that of its row; rows and norms begin at position `first`.
void check_norms(const std::string& array, Index head, Index first, TensorView<const float> rows,
                 const Tensor<float>& norms, DType dtype, std::vector<std::string>& problems) {
  for (Index i = 0; i < norms.count(); ++i) {
    double sum = 0.0;
    for (const float x : rows.row(i)) sum += static_cast<double>(x) * x;
    const double exact = std::sqrt(sum);
    const double allowed = allowed_difference(exact, dtype);
    if (std::fabs(norms.data()[i] - exact) <= allowed) continue;
    problems.push_back(
        fmt::format("{}: head {}, position {}: the norm is {:.6g}, of the recorded row {:.6g} "
                    "(allowed difference {:.2g})",
                    array, head, first + i, norms.data()[i], exact, allowed));
    return;
  }
}

/// The first bound that is not that of its page. bounds [n_pages, d_head].
void check_bounds(const std::string& array, Index head, Index page_size, bool is_max,
                  TensorView<const float> keys, const Tensor<float>& bounds, DType dtype,
                  std::vector<std::string>& problems) {
  for (Index page = 0; page < bounds.dim(0); ++page) {
    for (Index c = 0; c < bounds.dim(1); ++c) {
      float exact = keys(page * page_size, c);
      for (Index t = page * page_size; t < (page + 1) * page_size; ++t)
        exact = is_max ? std::max(exact, keys(t, c)) : std::min(exact, keys(t, c));
      const double allowed = allowed_difference(exact, dtype);
      if (std::fabs(static_cast<double>(bounds(page, c)) - exact) <= allowed) continue;
      problems.push_back(
          fmt::format("{}: head {}, page {}, channel {}: the bound is {:.6g}, of the recorded keys "
                      "{:.6g} (allowed difference {:.2g})",
                      array, head, page, c, bounds(page, c), exact, allowed));
      return;
    }
  }
}

/// What is wrong with the statistics of one layer's KV head and of the recorded query heads that
/// share it: at most one sentence per array and head, for its first wrong number. Differences that
/// storing q and k in the trace's number type explains are allowed. The trace has to hold q, k and
/// statistics. Reads all keys of the head.
std::vector<std::string> check_stats(const TraceFile& trace, Index layer, Index kv_head) {
  const TraceInfo& info = trace.info();
  const TokenRange all{0, info.n_tokens};
  const std::string at = fmt::format("/layers/{}/stats/", layer);
  std::vector<std::string> problems;
  const Tensor<float> keys = trace.read_k(layer, kv_head, all);
  check_norms(at + "k_norm", kv_head, 0, keys.view(),
              trace.read_stat("k_norm", layer, kv_head, all), info.dtype, problems);
  const Index page_size = info.capture.page_size;
  check_bounds(at + "page_min", kv_head, page_size, /*is_max=*/false, keys.view(),
               trace.read_stat("page_min", layer, kv_head), info.dtype, problems);
  check_bounds(at + "page_max", kv_head, page_size, /*is_max=*/true, keys.view(),
               trace.read_stat("page_max", layer, kv_head), info.dtype, problems);
  for (const Index q_head : info.q_heads) {
    if (q_head / info.group(layer) != kv_head || info.rows.size() == 0) continue;
    check_norms(at + "q_norm", q_head, info.rows.begin,
                trace.read_q(layer, q_head, info.rows).view(),
                trace.read_stat("q_norm", layer, q_head, info.rows), info.dtype, problems);
  }
  return problems;
}

void check_all_stats(const TraceFile& trace, const VerifyOptions& options, ThreadPool& pool,
                     Problems& problems, VerifyReport& report, const ProgressFn& progress) {
  const TraceInfo& info = trace.info();
  if (!info.capture.stats || !info.capture.qkv) return;
  const std::vector<LayerHead> heads = all_kv_heads(info);
  std::vector<std::vector<std::string>> found(heads.size());
  const Index n_visited = visit_heads(heads, options, pool, "statistics", progress,
                                      [&](std::size_t pair, Index layer, Index kv_head) {
                                        try {
                                          found[pair] = check_stats(trace, layer, kv_head);
                                        } catch (const Error& error) {
                                          found[pair] = {error.what()};
                                        }
                                      });
  for (auto& of_head : found) {
    for (auto& sentence : of_head) problems.add("statistics", std::move(sentence));
  }
  if (report.n_all_heads == 0) {
    report.n_all_heads = std::ssize(heads);
    report.n_heads_checked = n_visited;
  }
  report.n_heads_checked = std::min(report.n_heads_checked, n_visited);
}

// By how much a key differs from the one before rotation, turned by the trace's own numbers, as a
// share of the latter's largest channel. The angle is rounded to f32, as models do.
double rotation_error(std::span<const float> before, std::span<const float> after, Index pos,
                      std::span<const float> frequencies, double amplitude, bool is_interleaved) {
  const std::size_t n_pairs = frequencies.size();
  double largest = 1e-30, error = 0.0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    largest = std::max<double>(largest, std::abs(before[i]));
    if (i >= 2 * n_pairs) error = std::max<double>(error, std::abs(after[i] - before[i]));
  }
  for (std::size_t i = 0; i < n_pairs; ++i) {
    const std::size_t a = is_interleaved ? 2 * i : i;
    const std::size_t b = is_interleaved ? 2 * i + 1 : i + n_pairs;
    const auto angle = static_cast<double>(static_cast<float>(pos) * frequencies[i]);
    const double c = amplitude * std::cos(angle), s = amplitude * std::sin(angle);
    error = std::max({error, std::abs(before[a] * c - before[b] * s - after[a]),
                      std::abs(before[b] * c + before[a] * s - after[b])});
  }
  return error / largest;
}

// Loose enough for models that rotate in bf16; another frequency differs by about 1.
constexpr double kMostRotationError = 0.05;

std::string rotation_problem(const TraceFile& trace, const VerifyOptions& options, Index layer,
                             Index kv_head) try {
  const TraceInfo& info = trace.info();
  const TokenRange all = {0, info.n_tokens};
  const Tensor<float> after = trace.read_k(layer, kv_head, all);
  const Tensor<float> before = trace.read_side(SideTensor::k_pre_rope, layer, kv_head, all);
  const double amplitude = info.rope_amplitudes[static_cast<std::size_t>(layer)];
  double least = std::numeric_limits<double>::infinity();
  for (const bool is_interleaved : {false, true}) {  // the files do not say how pairs lie
    double worst = 0.0;
    for (const Index pos : sample_rows(all, options.n_rows, options.seed)) {
      worst =
          std::max(worst, rotation_error(before.view().row(pos), after.view().row(pos), pos,
                                         info.frequencies_of(layer), amplitude, is_interleaved));
    }
    least = std::min(least, worst);
  }
  if (least <= kMostRotationError) return {};
  return fmt::format(
      "{}: KV head {} differs by up to {:.2g} of a key's largest channel from k_pre_rope rotated "
      "by {} and {}, expected at most {}: the keys have another rotation than the trace says",
      fmt::format("/layers/{}/k", layer), kv_head, least, schema::kRopeFrequencies,
      schema::kRopeAmplitudes, kMostRotationError);
} catch (const Error& error) {
  return error.what();
}

void check_rotation(const TraceFile& trace, const VerifyOptions& options, ThreadPool& pool,
                    Problems& problems, VerifyReport& report, const ProgressFn& progress) {
  const TraceInfo& info = trace.info();
  if (!info.capture.k_pre_rope || !info.capture.qkv) return;
  if (info.rope_frequencies.empty()) {
    report.notes.emplace_back(
        "keys were not compared with the keys before rotation: the trace does not say by what they "
        "were rotated (it is older than 1.3, or the recorder could not tell)");
    return;
  }
  const std::vector<LayerHead> heads = all_kv_heads(info);
  std::vector<std::string> found(heads.size());
  visit_heads(heads, options, pool, "rotation", progress,
              [&](std::size_t pair, Index layer, Index kv_head) {
                found[pair] = rotation_problem(trace, options, layer, kv_head);
              });
  for (auto& sentence : found) {
    if (!sentence.empty()) problems.add("rotation", std::move(sentence));
  }
}

}  // namespace

VerifyReport verify_trace(const std::filesystem::path& path, const VerifyOptions& options,
                          ThreadPool& pool, const ProgressFn& progress) {
  VerifyReport report;
  Problems problems;
  try {
    const TraceFile trace = TraceFile::open(path, {.allow_partial = true, .check_data = false});
    report.status = trace.info().status;
    report.notes = trace.warnings();
    if (report.status == TraceStatus::recording) {
      problems.add(
          "status",
          fmt::format(
              "this recording did not end: {} of {} tokens are whole; kvscope recover keeps them",
              trace.info().n_tokens, trace.planned().n_tokens));
    }
    const TraceLayout layout = open_layout(path);
    check_tokens(trace, problems);
    check_calls(trace.info(), problems);
    check_routing(trace, options.bounds, problems);
    check_side(trace, options.bounds, layout.has_checksums(), problems);
    if (layout.has_checksums()) {
      check_model(layout, problems, report);
      if (!layout.progress) {
        problems.add("structure", fmt::format("dataset {} is missing", schema::kProgress));
      }
      check_pieces(layout, static_cast<Index>(trace.info().calls.size()), options, problems, report,
                   progress);
      check_text(layout, static_cast<Index>(trace.info().calls.size()), problems, report);
      check_content_hash(layout, problems);
    }
    check_attention(trace, options, pool, problems, report, progress);
    check_all_stats(trace, options, pool, problems, report, progress);
    check_rotation(trace, options, pool, problems, report, progress);
  } catch (const FormatError& error) {
    problems.add("structure", error.what());
  }
  report.problems = problems.take();
  report.ok = report.problems.empty();
  return report;
}

}  // namespace kvscope
