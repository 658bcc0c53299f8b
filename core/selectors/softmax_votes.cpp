#include "core/selectors/softmax_votes.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "core/attention/remote_rows.hpp"
#include "core/attention/row_kernels.hpp"
#include "core/attention/score_kernels.hpp"
#include "core/attention/vote_kernels.hpp"
#include "core/selectors/key_lists.hpp"
#include "core/selectors/owners.hpp"
#include "core/selectors/shared_scores.hpp"
#include "core/tensor/lane_kernels.hpp"
#include "core/tensor/soft_cap_kernel.hpp"

namespace kvscope {

namespace {

constexpr Index kFewVoters = 4;  // rows of a KV head up to which vectors run along the channels
// Keys whose exponentials share a maximum: their scores stay in the first-level cache.
constexpr Index kVoteBlock = 64;
constexpr Index kVotePart = 512;  // keys of a task, a multiple of kVoteBlock
constexpr Index kFewVotersPart = 2048;
constexpr Index kVoteFloats = Index{1} << 24;  // exponentials that are held at a time

/// The keys of one KV head in the order of their positions.
struct VoterKeys {
  TensorView<const float> k;          // [n, d_head]
  std::span<const KeyPos> positions;  // empty: first, first + 1, ...
  Index first = 0;
  Index size() const { return k.dim(0); }
  Index position(Index i) const {
    return positions.empty() ? first + i : positions[static_cast<std::size_t>(i)];
  }
  /// How many lie before `pos`.
  Index count_before(Index pos) const {
    if (positions.empty()) return std::clamp<Index>(pos - first, 0, size());
    return std::lower_bound(positions.begin(), positions.end(), pos) - positions.begin();
  }
  /// Those that query `row` of the call sees.
  TokenRange seen_by(const SelectCall& call, Index row) const {
    const TokenRange seen = row_range(call, row);
    return {count_before(seen.begin), count_before(seen.end)};
  }
};

/// The keys of all KV heads, copied together where only some are attended to.
class AllVoterKeys {
 public:
  AllVoterKeys(const SelectCall& call, std::span<const std::span<const KeyPos>> lists,
               ScoreEngine& engine) {
    const Index d = call.k.dim(2);
    const TokenRange seen = call_range(call);
    for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head) {
      if (lists.empty()) {
        heads_.push_back({call.k.sub(kv_head).range(0, seen.begin, seen.end), {}, seen.begin});
        continue;
      }
      const auto positions = lists[static_cast<std::size_t>(kv_head)];
      copies_.push_back(Tensor<float>::uninitialized({static_cast<Index>(positions.size()), d}));
      heads_.push_back({copies_.back().view(), positions, 0});
    }
    if (lists.empty()) return;
    engine.run(call.k.dim(0), [&](Index kv_head, ScoreWorker&) {
      const auto k = call.k.sub(kv_head);
      float* out = copies_[static_cast<std::size_t>(kv_head)].data();
      for (const KeyPos pos : lists[static_cast<std::size_t>(kv_head)]) {
        const auto key = k.row(pos);
        out = std::copy(key.begin(), key.end(), out);
      }
    });
  }
  const VoterKeys& operator[](Index kv_head) const {
    return heads_[static_cast<std::size_t>(kv_head)];
  }
  Index longest() const {
    Index n = 0;
    for (const VoterKeys& head : heads_) n = std::max(n, head.size());
    return n;
  }

 private:
  std::vector<Tensor<float>> copies_;
  std::vector<VoterKeys> heads_;
};

/// sums[pos - keys.begin] += factor * votes[i] for the keys first .. first + votes.size() - 1.
template <class T>
void add_at_positions(const VoterKeys& from, Index first, std::span<const T> votes, double factor,
                      TokenRange keys, std::span<double> sums) {
  if (from.positions.empty()) {
    const Index begin = std::max(keys.begin, from.first + first);
    const Index end = std::min(keys.end, from.first + first + static_cast<Index>(votes.size()));
    double* const to = sums.data() - keys.begin;
    const T* const vote = votes.data() - (from.first + first);
    for (Index pos = begin; pos < end; ++pos) to[pos] += factor * static_cast<double>(vote[pos]);
    return;
  }
  for (std::size_t i = 0; i < votes.size(); ++i) {
    const Index pos = from.position(first + static_cast<Index>(i));
    if (pos >= keys.begin && pos < keys.end)
      sums[static_cast<std::size_t>(pos - keys.begin)] += factor * static_cast<double>(votes[i]);
  }
}

/// The few rows of decode: scores [n_q * n_rows][longest] as rows of doubles.
void add_votes_of_few(const SelectCall& call, const VoteQuestion& question,
                      const AllVoterKeys& keys, std::span<const std::span<double>> sums,
                      ScoreEngine& engine) {
  const Index n_kv = call.k.dim(0);
  const Index d = call.k.dim(2);
  const Index group = call.q.dim(0) / n_kv;
  const auto n_rows = static_cast<Index>(question.rows.size());
  const Index n_voters = group * n_rows;  // per KV head: head by head
  const Index stride = keys.longest();
  const Index n_parts = (stride + kFewVotersPart - 1) / kFewVotersPart;
  const std::span<double> memory =
      engine.scratch<double>(ScoreEngine::Use::softmax,
                             static_cast<std::size_t>(n_kv * n_voters * (stride + 2 * n_parts)));
  double* const scores = memory.data();
  // [n_kv * n_voters][n_parts], then weights of the parts.
  double* const maxima = scores + n_kv * n_voters * stride;
  double* const totals = maxima + n_kv * n_voters * n_parts;
  std::vector<float> q(static_cast<std::size_t>(n_kv * n_voters * d));
  for (Index voter = 0; voter < n_kv * n_voters; ++voter) {
    const auto row =
        call.q.sub(voter / n_rows).row(question.rows[static_cast<std::size_t>(voter % n_rows)]);
    for (Index c = 0; c < d; ++c)
      q[static_cast<std::size_t>(voter * d + c)] =
          call.score_scale * row[static_cast<std::size_t>(c)];
  }
  engine.run(n_kv * n_parts, [&](Index task, ScoreWorker&) {
    const Index kv_head = task / n_parts;
    const Index part = task % n_parts;
    const VoterKeys& head = keys[kv_head];
    const Index begin = std::min(part * kFewVotersPart, head.size());
    const Index end = std::min(begin + kFewVotersPart, head.size());
    const Index first = kv_head * n_voters;
    std::vector<float> unused;
    key_dots_f32(std::span<const float>(q).subspan(static_cast<std::size_t>(first * d),
                                                   static_cast<std::size_t>(n_voters * d)),
                 n_voters, head.k.range(0, begin, end), unused, scores + first * stride + begin,
                 stride);
    for (Index voter = first; voter < first + n_voters; ++voter) {
      soft_cap(std::span(scores + voter * stride + begin, static_cast<std::size_t>(end - begin)),
               call.score_rule().cap);
      const TokenRange seen =
          head.seen_by(call, question.rows[static_cast<std::size_t>(voter % n_rows)]);
      const std::span<double> row(scores + voter * stride + begin,
                                  static_cast<std::size_t>(end - begin));
      const auto low = static_cast<std::ptrdiff_t>(std::clamp(seen.begin, begin, end) - begin);
      const auto high = static_cast<std::ptrdiff_t>(std::clamp(seen.end, begin, end) - begin);
      const double nothing = -std::numeric_limits<double>::infinity();
      std::fill(row.begin(), row.begin() + std::min(low, high), nothing);
      std::fill(row.begin() + high, row.end(), nothing);
      const double max = max_of(row);
      maxima[voter * n_parts + part] = max;
      totals[voter * n_parts + part] = exp_row(row, max == nothing ? 0.0 : max, row).sum;
    }
  });
  for (Index voter = 0; voter < n_kv * n_voters; ++voter) {
    const std::span<double> max(maxima + voter * n_parts, static_cast<std::size_t>(n_parts));
    const double* total = totals + voter * n_parts;
    const std::optional<double> sink_logit = sink_logit_of(call, voter / n_rows);
    const double largest =
        std::max(max_of(max), sink_logit.value_or(-std::numeric_limits<double>::infinity()));
    double sum = sink_logit ? std::exp(*sink_logit - largest) : 0.0;
    for (Index part = 0; part < n_parts; ++part) {
      double& weight = max[static_cast<std::size_t>(part)];
      weight = total[part] > 0.0 ? std::exp(weight - largest) : 0.0;
      sum += weight * total[part];
    }
    for (double& weight : max) weight *= sum > 0.0 ? question.factor / sum : 0.0;
  }
  const Index voters_per_owner = question.owner == ListOwner::q_head ? n_rows : n_voters;
  engine.run(n_kv * n_parts, [&](Index task, ScoreWorker&) {
    const Index kv_head = task / n_parts;
    const Index part = task % n_parts;
    const VoterKeys& head = keys[kv_head];
    const Index begin = std::min(part * kFewVotersPart, head.size());
    const auto n = static_cast<std::size_t>(std::min(begin + kFewVotersPart, head.size()) - begin);
    for (Index voter = kv_head * n_voters; voter < (kv_head + 1) * n_voters; ++voter) {
      const double weight = maxima[voter * n_parts + part];
      if (weight > 0.0)
        add_at_positions<double>(head, begin, {scores + voter * stride + begin, n}, weight,
                                 question.keys,
                                 sums[static_cast<std::size_t>(voter / voters_per_owner)]);
    }
  });
}

/// Voters of one list owner that lie in one lane block.
struct VoterLanes {
  Index owner = 0;
  Index kv_head = 0;
  Index lanes = 0;
  Index n_voters = 0;
  Index q_head[kWideLanes] = {};
  Index row[kWideLanes] = {};
  // Keys that each lane sees, counted inside its KV head's keys.
  std::int32_t begin[kWideLanes] = {};
  std::int32_t end[kWideLanes] = {};
  float sink_logits[kWideLanes] = {};
  bool has_sink_logits = false;
  float max[kWideLanes] = {};  // of all keys
  float scale[kWideLanes] = {};
  RawVector<float> q;             // [d_head, lanes]
  float* exponentials = nullptr;  // [n_blocks][kVoteBlock, lanes]
  float* block_max = nullptr;     // [n_blocks, lanes]
  float* block_sum = nullptr;
};

/// Many rows: lane blocks of voters against blocks of keys, as many at a time as the memory
/// for exponentials holds.
class LaneVotes {
 public:
  LaneVotes(const SelectCall& call, const VoteQuestion& question, const AllVoterKeys& keys,
            ScoreEngine& engine, std::span<const std::span<double>> sums,
            std::span<const std::span<double>> offsets)
      : call_(call),
        question_(question),
        keys_(keys),
        engine_(engine),
        sums_(sums),
        offsets_(offsets) {
    const Index group = call.q.dim(0) / call.k.dim(0);
    const Index heads_per_owner = question.owner == ListOwner::q_head ? 1 : group;
    const auto n_rows = static_cast<Index>(question.rows.size());
    for (Index owner = 0; owner < call.q.dim(0) / heads_per_owner; ++owner) {
      const Index n_voters = heads_per_owner * n_rows;
      for (Index first = 0; first < n_voters;) {
        VoterLanes& block = blocks_.emplace_back();
        block.owner = owner;
        block.kv_head = owner * heads_per_owner / group;
        block.lanes = n_voters - first > kNarrowLanes ? kWideLanes : kNarrowLanes;
        block.n_voters = std::min(block.lanes, n_voters - first);
        for (Index lane = 0; lane < block.n_voters; ++lane) {
          block.q_head[lane] = owner * heads_per_owner + (first + lane) / n_rows;
          block.row[lane] = question.rows[static_cast<std::size_t>((first + lane) % n_rows)];
        }
        first += block.n_voters;
      }
    }
  }

  void run() {
    for (std::size_t first = 0; first < blocks_.size();) {
      std::size_t last = first;
      Index n_floats = 0;
      while (last < blocks_.size() &&
             (last == first || n_floats + floats_of(blocks_[last]) <= kVoteFloats))
        n_floats += floats_of(blocks_[last++]);
      run_batch(std::span(blocks_).subspan(first, last - first), n_floats);
      first = last;
    }
  }

 private:
  static Index blocks_of(Index n_keys) { return (n_keys + kVoteBlock - 1) / kVoteBlock; }
  Index floats_of(const VoterLanes& block) const {
    return blocks_of(keys_[block.kv_head].size()) * (kVoteBlock + 2) * block.lanes;
  }

  /// Calls task(voters, part) for the voters of each KV head and each part of its keys.
  void for_each_part(std::span<VoterLanes> batch,
                     const std::function<void(std::span<VoterLanes>, Index)>& task) {
    struct Part {
      std::span<VoterLanes> voters;
      Index part;
    };
    std::vector<Part> parts;
    for (std::size_t first = 0; first < batch.size();) {
      std::size_t last = first;
      while (last < batch.size() && batch[last].kv_head == batch[first].kv_head) ++last;
      const Index n_keys = keys_[batch[first].kv_head].size();
      for (Index part = 0; part * kVotePart < n_keys; ++part)
        parts.push_back({batch.subspan(first, last - first), part});
      first = last;
    }
    engine_.run(static_cast<Index>(parts.size()), [&](Index i, ScoreWorker&) {
      const Part& one = parts[static_cast<std::size_t>(i)];
      task(one.voters, one.part);
    });
  }

  void run_batch(std::span<VoterLanes> batch, Index n_floats) {
    float* memory =
        engine_.scratch<float>(ScoreEngine::Use::softmax, static_cast<std::size_t>(n_floats))
            .data();
    for (VoterLanes& voters : batch) {
      const Index n_blocks = blocks_of(keys_[voters.kv_head].size());
      voters.exponentials = memory;
      voters.block_max = memory + n_blocks * kVoteBlock * voters.lanes;
      voters.block_sum = voters.block_max + n_blocks * voters.lanes;
      memory += floats_of(voters);
    }
    engine_.run(static_cast<Index>(batch.size()),
                [&](Index i, ScoreWorker&) { prepare(batch[static_cast<std::size_t>(i)]); });
    for_each_part(batch, [&](std::span<VoterLanes> voters, Index part) { score(voters, part); });
    engine_.run(static_cast<Index>(batch.size()), [&](Index i, ScoreWorker&) {
      VoterLanes& voters = batch[static_cast<std::size_t>(i)];
      join_maxima(voters.block_max, voters.block_sum, blocks_of(keys_[voters.kv_head].size()),
                  voters.lanes, voters.has_sink_logits ? voters.sink_logits : nullptr, voters.max,
                  voters.scale);
      std::fill(voters.scale + voters.n_voters, voters.scale + voters.lanes, 0.0f);
    });
    partial_offsets_.assign(offsets_.empty() ? 0 : batch.size(), {});
    for (std::size_t i = 0; i < partial_offsets_.size(); ++i)
      partial_offsets_[i].resize(
          static_cast<std::size_t>((keys_[batch[i].kv_head].size() + kVotePart - 1) / kVotePart));
    for_each_part(batch, [&](std::span<VoterLanes> voters, Index part) {
      add_columns(voters, part);
      if (!offsets_.empty()) {
        for (VoterLanes& one : voters)
          add_offsets(one, part, static_cast<std::size_t>(&one - batch.data()));
      }
    });
    for (std::size_t i = 0; i < partial_offsets_.size(); ++i) {
      const std::span<double> out = offsets_[static_cast<std::size_t>(batch[i].owner)];
      for (const Offsets& part : partial_offsets_[i]) {
        for (std::size_t j = 0; j < part.weights.size(); ++j)
          out[static_cast<std::size_t>(part.first) + j] +=
              question_.factor * static_cast<double>(part.weights[j]);
      }
    }
  }

  void prepare(VoterLanes& voters) const {
    const Index d = call_.k.dim(2);
    voters.q.resize(static_cast<std::size_t>(d * voters.lanes));
    for (Index lane = 0; lane < voters.lanes; ++lane) {
      const Index source = lane < voters.n_voters ? lane : 0;  // spare lanes repeat the first one
      const auto row = call_.q.sub(voters.q_head[source]).row(voters.row[source]);
      for (Index c = 0; c < d; ++c)
        voters.q[static_cast<std::size_t>(c * voters.lanes + lane)] =
            call_.score_scale * row[static_cast<std::size_t>(c)];
      const TokenRange seen = keys_[voters.kv_head].seen_by(call_, voters.row[source]);
      voters.begin[lane] = static_cast<std::int32_t>(seen.begin);
      voters.end[lane] = static_cast<std::int32_t>(seen.end);
      const std::optional<double> sink_logit = sink_logit_of(call_, voters.q_head[source]);
      voters.has_sink_logits = sink_logit.has_value();
      voters.sink_logits[lane] = static_cast<float>(sink_logit.value_or(0.0));
    }
  }

  void score(std::span<VoterLanes> batch, Index part) const {
    const TensorView<const float> k = keys_[batch.front().kv_head].k;
    const Index d = k.dim(1);
    const Index end = std::min(k.dim(0), (part + 1) * kVotePart);
    for (Index t = part * kVotePart; t < end; t += kVoteBlock) {
      const Index n = std::min(kVoteBlock, end - t);
      const Index block = t / kVoteBlock;
      for (VoterLanes& voters : batch) {
        const Index lanes = voters.lanes;
        float* out = voters.exponentials + block * kVoteBlock * lanes;
        lane_matmul(&k(t, Index{0}), k.stride(0), n, d, nullptr, voters.q.data(), out, lanes);
        soft_cap(std::span(out, static_cast<std::size_t>(n * lanes)), call_.score_cap);
        std::int32_t begin[kWideLanes], last[kWideLanes];
        bool sees_all = true;
        for (Index lane = 0; lane < lanes; ++lane) {
          begin[lane] = voters.begin[lane] - static_cast<std::int32_t>(t);
          last[lane] = voters.end[lane] - static_cast<std::int32_t>(t);
          sees_all = sees_all && begin[lane] <= 0 && last[lane] >= n;
        }
        exp_of_block(out, n, lanes, sees_all ? nullptr : begin, last,
                     voters.block_max + block * lanes, voters.block_sum + block * lanes);
      }
    }
  }

  void add_columns(std::span<VoterLanes> batch, Index part) const {
    const VoterKeys& keys = keys_[batch.front().kv_head];
    const Index end = std::min(keys.size(), (part + 1) * kVotePart);
    for (Index t = part * kVotePart; t < end; t += kVoteBlock) {
      const Index n = std::min(kVoteBlock, end - t);
      float votes[kVoteBlock];
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (i == 0 || batch[i].owner != batch[i - 1].owner) std::fill(votes, votes + n, 0.0f);
        const VoterLanes& voters = batch[i];
        const Index block = t / kVoteBlock;
        float factors[kWideLanes];
        block_factors(voters.block_max + block * voters.lanes, voters.max, voters.scale,
                      voters.lanes, factors);
        add_weights_of_lanes(voters.exponentials + block * kVoteBlock * voters.lanes, n,
                             voters.lanes, factors, votes);
        if (i + 1 == batch.size() || batch[i + 1].owner != voters.owner) {
          add_at_positions<float>(keys, t, {votes, static_cast<std::size_t>(n)}, question_.factor,
                                  question_.keys, sums_[static_cast<std::size_t>(voters.owner)]);
        }
      }
    }
  }

  /// Weights of one part's keys by their distance before the query: a part of the
  /// sums over distances.
  struct Offsets {
    Index first = 0;
    std::vector<float> weights;
  };

  void add_offsets(const VoterLanes& voters, Index part, std::size_t index_in_batch) {
    const VoterKeys& keys = keys_[voters.kv_head];
    const Index begin = part * kVotePart;
    const Index end = std::min(keys.size(), begin + kVotePart);
    const auto [first_row, last_row] =
        std::minmax_element(voters.row, voters.row + voters.n_voters);
    Offsets& out = partial_offsets_[index_in_batch][static_cast<std::size_t>(part)];
    out.first = std::max<Index>(0, call_.pos_begin + *first_row - keys.position(end - 1));
    const Index n = call_.pos_begin + *last_row - keys.position(begin) + 1 - out.first;
    if (n <= 0) return;  // no voter sees these keys
    out.weights.assign(static_cast<std::size_t>(n), 0.0f);
    for (Index t = begin; t < end; t += kVoteBlock) {
      const Index block = t / kVoteBlock;
      float factors[kWideLanes];
      block_factors(voters.block_max + block * voters.lanes, voters.max, voters.scale, voters.lanes,
                    factors);
      const float* e = voters.exponentials + block * kVoteBlock * voters.lanes;
      for (Index lane = 0; lane < voters.n_voters; ++lane) {
        const Index row_pos = call_.pos_begin + voters.row[lane];
        const Index n_seen = std::min<Index>({kVoteBlock, end - t, voters.end[lane] - t});
        const float factor = factors[lane];
        const float* from = e + lane;
        if (keys.positions.empty()) {  // distances fall by one from key to key
          float* to = out.weights.data() + (row_pos - keys.position(t) - out.first);
          for (Index i = 0; i < n_seen; ++i) to[-i] += factor * from[i * voters.lanes];
          continue;
        }
        for (Index i = 0; i < n_seen; ++i)
          out.weights[static_cast<std::size_t>(row_pos - keys.position(t + i) - out.first)] +=
              factor * from[i * voters.lanes];
      }
    }
  }

  const SelectCall& call_;
  const VoteQuestion& question_;
  const AllVoterKeys& keys_;
  ScoreEngine& engine_;
  std::span<const std::span<double>> sums_;
  std::span<const std::span<double>> offsets_;
  std::vector<VoterLanes> blocks_;
  std::vector<std::vector<Offsets>> partial_offsets_;  // [batch][n_parts]
};

/// The votes of rows that lie elsewhere. Rows must follow each other.
void add_remote_votes(const SelectCall& call, const VoteQuestion& question,
                      std::span<const std::span<const KeyPos>> lists,
                      std::span<const std::span<double>> sums) {
  const Index first_row = question.rows.front();
  const Index end_row = question.rows.back() + 1;
  assert(question.owner == ListOwner::kv_head);
  assert(end_row - first_row == static_cast<Index>(question.rows.size()));
  const KeyValues votes = call.remote->softmax_votes(lists, first_row, end_row);
  for (std::size_t kv_head = 0; kv_head < votes.size(); ++kv_head) {
    for (std::size_t i = 0; i < votes[kv_head].size(); ++i) {
      const Index pos = lists.empty() ? static_cast<Index>(i) : Index{lists[kv_head][i]};
      if (pos < question.keys.begin || pos >= question.keys.end) continue;
      sums[kv_head][static_cast<std::size_t>(pos - question.keys.begin)] +=
          question.factor * votes[kv_head][i];
    }
  }
}

}  // namespace

void add_votes_f32(const SelectCall& call, const VoteQuestion& question,
                   std::span<const std::span<const KeyPos>> lists,
                   std::span<const std::span<double>> sums,
                   std::span<const std::span<double>> offsets) {
  if (question.rows.empty()) return;
  if (call.remote != nullptr) return add_remote_votes(call, question, lists, sums);
  ScoreEngine& engine = engine_of(call);
  const AllVoterKeys keys(call, lists, engine);
  const Index group = call.q.dim(0) / call.k.dim(0);
  if (group * static_cast<Index>(question.rows.size()) <= kFewVoters && offsets.empty()) {
    add_votes_of_few(call, question, keys, sums, engine);
  } else {
    LaneVotes(call, question, keys, engine, sums, offsets).run();
  }
}

std::vector<std::span<const KeyPos>> alive_lists(const SelectCall& call,
                                                 std::vector<std::vector<KeyPos>>& memory) {
  memory.clear();
  if (all_alive(call)) return {};
  for (Index kv_head = 0; kv_head < call.k.dim(0); ++kv_head)
    memory.push_back(candidates(call, kv_head, call_range(call)));
  return {memory.begin(), memory.end()};
}

std::vector<std::vector<double>> softmax_votes(const SelectCall& call,
                                               const VoteQuestion& question) {
  const Index n_owners = question.owner == ListOwner::q_head ? call.q.dim(0) : call.k.dim(0);
  std::vector<std::vector<double>> sums(static_cast<std::size_t>(n_owners));
  for (auto& row : sums) row.resize(static_cast<std::size_t>(question.keys.size()));
  softmax_votes(call, question, rows_of(sums));
  return sums;
}

void softmax_votes(const SelectCall& call, const VoteQuestion& question,
                   std::span<const std::span<double>> sums) {
  const Index group = call.q.dim(0) / call.k.dim(0);
  const Index heads_per_owner = question.owner == ListOwner::q_head ? 1 : group;
  ScoreEngine& engine = engine_of(call);
  const bool is_exact = engine.precision() == ScorePrecision::f64;
  engine.run(static_cast<Index>(sums.size()), [&](Index owner, ScoreWorker& worker) {
    const std::span<double> row = sums[static_cast<std::size_t>(owner)];
    std::fill(row.begin(), row.end(), 0.0);
    const TokenRange q_heads{owner * heads_per_owner, (owner + 1) * heads_per_owner};
    if (is_exact) {
      add_softmax_weights(call, q_heads, q_heads.begin / group, question.rows, question.keys,
                          question.factor, worker.dots, row);
    }
  });
  if (is_exact) return;
  std::vector<std::vector<KeyPos>> memory;
  add_votes_f32(call, question, alive_lists(call, memory), sums);
}

}  // namespace kvscope
