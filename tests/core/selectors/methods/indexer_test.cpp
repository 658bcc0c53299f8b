// The indexer: maps that a recording teaches, lists by loops over the learned maps, and files that
// hold them.
#include <mutex>
#include <random>

#include "core/base/parallel.hpp"
#include "core/selectors/artifact.hpp"
#include "core/selectors/learned.hpp"
#include "core/selectors/learned_index.hpp"
#include "core/sim/replay.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::indexer_test {

constexpr Index kIndexTokens = 60;

MemoryTrace index_text(unsigned seed) {
  PlantOptions plant{.n_layers = 8,
                     .n_q = 4,
                     .n_kv = 2,
                     .d_head = 16,
                     .n_tokens = kIndexTokens,
                     .band = 1.0,
                     .common = 3.0,
                     .seed = seed};
  return planted_trace(plant);
}

/// The product of two index vectors: of a query of `q_head`, and of a token's keys [n_kv][d].
double index_product(const IndexMaps& maps, Index map, std::span<const float> q,
                     const std::vector<std::span<const float>>& keys, bool is_shared) {
  double sum = 0.0;
  for (Index r = 0; r < maps.of_keys[0].dim(0); ++r) {
    double of_q = 0.0;
    double of_k = 0.0;
    for (std::size_t c = 0; c < q.size(); ++c) {
      of_q += maps.of_queries[map](r, static_cast<Index>(c)) * static_cast<double>(q[c]);
      for (std::size_t h = 0; h < keys.size(); ++h) {
        if (!is_shared && static_cast<Index>(h) != map) continue;
        of_k += maps.of_keys[h](r, static_cast<Index>(c)) * static_cast<double>(keys[h][c]);
      }
    }
    sum += of_q * of_k;
  }
  return sum;
}

/// Over all pairs of the text: squared error of index products, about each query's mean error, and
/// the same of no index at all.
std::pair<double, double> squared_errors(const TraceSource& text, Index layer, Index kv_head,
                                         const IndexMaps& maps) {
  const Tensor<float> k = text.read_k(layer, kv_head, {0, kIndexTokens});
  std::pair<double, double> sums{0.0, 0.0};
  for (Index q_head = 2 * kv_head; q_head < 2 * kv_head + 2; ++q_head) {
    const Tensor<float> q = text.read_q(layer, q_head, {0, kIndexTokens});
    for (Index row = 0; row < kIndexTokens; ++row) {
      std::vector<double> error, score;
      for (Index pos = 0; pos < kIndexTokens; ++pos) {
        double exact = 0.0;
        for (Index c = 0; c < 16; ++c)
          exact += static_cast<double>(q(row, c)) * static_cast<double>(k(pos, c));
        score.push_back(exact);
        error.push_back(exact -
                        index_product(maps, 0, q.view().row(row), {k.view().row(pos)}, true));
      }
      const auto spread = [](const std::vector<double>& x) {
        double mean = 0.0;
        double sum = 0.0;
        for (const double v : x) mean += v / static_cast<double>(x.size());
        for (const double v : x) sum += (v - mean) * (v - mean);
        return sum;
      };
      sums.first += spread(error);
      sums.second += spread(score);
    }
  }
  return sums;
}

TEST_CASE("indexer: learned maps leave the squared error that they say, and no others leave less") {
  const MemoryTrace text = index_text(1);
  const IndexMaps best = fit_index_maps(text, 3, {1, 2}, 5);
  REQUIRE(best.of_keys.size() == 1);
  REQUIRE(best.of_keys[0].shape() == Shape{5, 16});
  const auto [error, all] = squared_errors(text, 3, 1, best);
  CHECK(1.0 - error / all == Approx(best.explained).margin(1e-3));
  CHECK(best.explained < 0.999);
  Random random(7);
  for (int attempt = 0; attempt < 20; ++attempt) {
    IndexMaps other = fit_index_maps(text, 3, {1, 2}, 5);
    const double step = attempt < 10 ? 0.02 : 0.3;
    for (double& x : other.of_keys[0].flat()) x += step * random.normal();
    for (double& x : other.of_queries[0].flat()) x += step * random.normal();
    CHECK(squared_errors(text, 3, 1, other).first > error * (1.0 - 1e-3));
  }
  // Channels come by falling importance.
  double before = 0.0;
  for (const Index rank : {1, 2, 8, 16}) {
    const IndexMaps maps = fit_index_maps(text, 3, {1, 2}, rank);
    CHECK(maps.explained > before);
    before = maps.explained;
  }
  CHECK(before == Approx(1.0));
  CHECK_THROWS_AS(fit_index_maps(text, 3, {1, 2}, 17), ConfigError);
  CHECK_THROWS_AS(fit_index_maps(text, 3, {1, 2}, 0), ConfigError);
}

struct Case {
  std::string options;
  std::string owner = "kv_head";
  std::string score = "softmax";
  Index block = 1;
  bool is_max = false;
  Index n_local = 0;
  bool inside = false;
  bool per_layer = false;
};

/// The list of one row by loops.
std::vector<KeyPos> naive_list(const CallFixture& fixture, const IndexMaps& maps, const Case& one,
                               Index owner, Index row, Index budget) {
  const Index n_heads = one.owner == "q_head" ? 1 : one.owner == "kv_head" ? 2 : 4;
  const Index end = fixture.call.pos_begin + row + 1;
  const auto held = [&](Index pos) {
    if (one.owner == "layer")
      return fixture.alive.is_alive(0, static_cast<KeyPos>(pos)) ||
             fixture.alive.is_alive(1, static_cast<KeyPos>(pos));
    return fixture.alive.is_alive(owner * n_heads / 2, static_cast<KeyPos>(pos));
  };
  const Index n_blocks = (end + one.block - 1) / one.block;
  const Index n_forced = std::max<Index>(one.n_local, end % one.block != 0 ? 1 : 0);
  std::vector<double> scores(static_cast<std::size_t>(n_blocks), 0.0);
  for (Index head = owner * n_heads; head < (owner + 1) * n_heads; ++head) {
    std::vector<double> products;
    for (Index block = 0; block < n_blocks; ++block) {
      double mean = 0.0;
      double best = -1e300;
      Index n_held = 0;
      for (Index pos = block * one.block; pos < std::min((block + 1) * one.block, end); ++pos) {
        const double product =
            static_cast<double>(fixture.call.score_scale) *
            index_product(maps, head / 2, fixture.q.view().sub(head).row(row),
                          {fixture.k.view().sub(0).row(pos), fixture.k.view().sub(1).row(pos)},
                          one.per_layer);
        mean += product / static_cast<double>(one.block);
        if (!held(pos)) continue;
        ++n_held;
        best = std::max(best, product);
      }
      const bool competes = n_held > 0 && block < n_blocks - n_forced;
      products.push_back(!competes                      ? -std::numeric_limits<double>::infinity()
                         : one.is_max || one.block == 1 ? best
                                                        : mean);
    }
    double sum = 0.0;
    for (const double x : products) sum += std::exp(x);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double x = products[i];
      scores[i] += x == -std::numeric_limits<double>::infinity() ? x
                   : one.score == "softmax"                      ? std::exp(x) / sum
                   : one.score == "relu"                         ? std::max(0.0, x)
                                                                 : x;
    }
  }
  Index n_always = 0;
  for (Index pos = 0; pos < end; ++pos)
    n_always += held(pos) && pos / one.block >= n_blocks - n_forced ? 1 : 0;
  const Index paid = one.inside ? std::max<Index>(0, budget - n_always) : budget;
  const std::vector<KeyPos> kept = naive_top_k(scores, paid / one.block);
  std::vector<KeyPos> list;
  for (Index pos = 0; pos < end; ++pos) {
    const Index block = pos / one.block;
    const bool is_kept = block >= n_blocks - n_forced ||
                         std::ranges::find(kept, static_cast<KeyPos>(block)) != kept.end();
    if (is_kept && held(pos)) list.push_back(static_cast<KeyPos>(pos));
  }
  return list;
}

TEST_CASE(
    "indexer: lists are the best keys or blocks of every row, by loops over the learned maps") {
  const MemoryTrace text = index_text(3);
  const std::vector<Case> cases = {
      {.options = ""},
      {.options = ",score=relu", .score = "relu"},
      {.options = ",score=dot,owner=q_head,n-local=3",
       .owner = "q_head",
       .score = "dot",
       .n_local = 3},
      {.options = ",score=relu,owner=layer", .owner = "layer", .score = "relu"},
      {.options = ",owner=layer,per=layer", .owner = "layer", .per_layer = true},
      {.options = ",block=4,score=relu", .score = "relu", .block = 4},
      {.options = ",block=4,pool=max,score=dot,n-local=1,inside=true",
       .score = "dot",
       .block = 4,
       .is_max = true,
       .n_local = 1,
       .inside = true},
      {.options = ",block=8,n-local=1", .block = 8, .n_local = 1},
      {.options = ",block=4,owner=layer,score=relu",
       .owner = "layer",
       .score = "relu",
       .block = 4}};
  for (const Case& one : cases) {
    for (const Index n_tok : {Index{1}, Index{6}}) {
      CallFixture fixture(
          {.n_past = 58, .n_tok = n_tok, .phase = n_tok == 1 ? Phase::decode : Phase::prefill});
      if (one.owner != "layer") {
        fixture.alive.kill(0, 30);
        fixture.alive.kill(1, 31);
      }
      fixture.call.budget = Budget::parse("tokens=16");
      auto selector = made_from(text, "indexer:index-share=0.375" + one.options, fixture);
      IndexMaps maps;
      for (Index head = 0; head < (one.per_layer ? 1 : 2); ++head) {
        IndexMaps part = fit_index_maps(
            text, 5, one.per_layer ? TokenRange{0, 2} : TokenRange{head, head + 1}, 6);
        for (auto& map : part.of_queries) maps.of_queries.push_back(std::move(map));
        for (auto& map : part.of_keys) maps.of_keys.push_back(std::move(map));
      }
      const Selection selection = selector->select(fixture.call);
      const Index n_owners = one.owner == "q_head" ? 4 : one.owner == "kv_head" ? 2 : 1;
      REQUIRE(selection.n_lists() == n_owners * n_tok);
      for (Index owner = 0; owner < n_owners; ++owner) {
        for (Index row = 0; row < n_tok; ++row) {
          INFO(one.options << ", owner " << owner << ", row " << row << " of " << n_tok);
          const auto keys = selection.list(owner, row).keys;
          CHECK(std::vector<KeyPos>(keys.begin(), keys.end()) ==
                naive_list(fixture, maps, one, owner, row, 16));
        }
      }
    }
  }
}

TEST_CASE("indexer: a file may be used in part; what does not fit is refused with a sentence") {
  const testing::TempDir dir;
  const MemoryTrace text = index_text(5);
  const CallFixture fixture({.n_past = 50, .n_tok = 1, .phase = Phase::decode});
  CallFixture asked({.n_past = 50, .n_tok = 1, .phase = Phase::decode});
  asked.call.budget = Budget::parse("tokens=9");
  const auto fit = [&](const std::string& spec, const std::string& name) {
    auto selector = made_from(text, spec, fixture);
    return dir.write(name, artifact_text("indexer", selector->learned(), text.info())).string();
  };
  const std::string large = fit("indexer:d-index=8", "large.json");
  const auto keys_of = [&](Selector& selector) {
    return selector.select(asked.call).at(1).scored();
  };
  CHECK(keys_of(*made("indexer:d-index=3,index=" + large, fixture)) ==
        keys_of(*made_from(text, "indexer:d-index=3", fixture)));
  CHECK(keys_of(*made("indexer:index=" + large, fixture)) ==
        keys_of(*made_from(text, "indexer:d-index=8", fixture)));
  const std::string shared = fit("indexer:d-index=20,per=layer", "shared.json");
  CHECK(keys_of(*made("indexer:index=" + shared, fixture)) ==
        keys_of(*made_from(text, "indexer:d-index=20,per=layer", fixture)));
  CHECK_SAYS(made("indexer:d-index=9,index=" + large, fixture), "at most the 8 channels");
  asked.call.budget = Budget::parse("p=0.9");
  CHECK_SAYS(made_from(text, "indexer", fixture)->select(asked.call), "does not fit");
}

/// Index vectors of a model with an indexer, beside a question.
struct SideFixture {
  Tensor<float> q, k, w;
  SideView view;
  SideFixture(Index n_heads, Index n_key_heads, Index n_tok, Index n_ctx, unsigned seed) {
    std::mt19937 rng(seed);
    q = random_tensor({n_heads, n_tok, 6}, rng);
    k = random_tensor({n_key_heads, n_ctx, 6}, rng);
    w = random_tensor({n_heads, n_tok}, rng);
    view = {q.view(), k.view(), w.view()};
  }
  double product(Index head, Index row, Index pos) const {
    double sum = 0.0;
    for (Index c = 0; c < 6; ++c)
      sum += static_cast<double>(q(head, row, c)) *
             static_cast<double>(k(head / (q.dim(0) / k.dim(0)), pos, c));
    return sum / std::sqrt(6.0);
  }
};

TEST_CASE("indexer: presets choose by recorded index vectors, by loops") {
  for (const Index n_tok : {Index{1}, Index{7}}) {
    CallFixture fixture({.n_past = 61, .n_tok = n_tok});
    fixture.call.budget = Budget::parse("tokens=16");
    const Index n_ctx = 61 + n_tok;
    const SideFixture lightning(8, 1, n_tok, n_ctx, 3);
    const SideFixture grouped(2, 1, n_tok, n_ctx, 4);
    const SideFixture gates(2, 2, n_tok, n_ctx, 5);
    const auto lists_of = [&](const std::string& spec, const SideFixture& side, bool has_gates) {
      SideView view = side.view;
      if (!has_gates) view.index_w = {};
      fixture.call.side = &view;
      auto selector = made(spec, fixture);
      CHECK(selector->caps().needs_side);
      CHECK(!selector->caps().needs_calibration);
      Selection selection = selector->select(fixture.call);
      fixture.call.side = nullptr;
      return selection;
    };
    const Selection dsa = lists_of("dsa:type=exact", lightning, true);
    const Selection qsa = lists_of("qsa", lightning, false);
    const Selection msa = lists_of("msa:block=8", grouped, false);
    const Selection seer = lists_of("seer:block=8", gates, false);
    REQUIRE(dsa.owner == ListOwner::layer);
    REQUIRE(msa.owner == ListOwner::kv_head);
    const auto equal = [](const ListView& list, const std::vector<KeyPos>& expected) {
      CHECK(std::vector<KeyPos>(list.keys.begin(), list.keys.end()) == expected);
    };
    for (Index row = 0; row < n_tok; ++row) {
      const Index end = 62 + row;
      INFO("row " << row << " of " << n_tok);
      std::vector<double> tokens, blocks;
      for (Index pos = 0; pos < end; ++pos) {
        double sum = 0.0;
        double sum_without = 0.0;
        for (Index h = 0; h < 8; ++h) {
          sum += static_cast<double>(lightning.w(h, row)) *
                 std::max(0.0, lightning.product(h, row, pos));
          sum_without += std::max(0.0, lightning.product(h, row, pos));
        }
        tokens.push_back(sum);
        if (pos % 4 == 3) blocks.push_back(sum_without);  // a block's key is its last token's
      }
      equal(dsa.list(0, row), naive_top_k(tokens, 16));
      const auto spread = [&](const std::vector<KeyPos>& kept, Index size, Index forced_from) {
        std::vector<KeyPos> keys;
        for (Index pos = 0; pos < end; ++pos) {
          if (pos >= forced_from ||
              std::ranges::find(kept, static_cast<KeyPos>(pos / size)) != kept.end())
            keys.push_back(static_cast<KeyPos>(pos));
        }
        return keys;
      };
      equal(qsa.list(0, row), spread(naive_top_k(blocks, 4), 4, end / 4 * 4));
      const Index own = (end - 1) / 8 * 8;
      const Index n_best = (16 - (end - own)) / 8;  // the own block counts inside
      for (Index kv_head = 0; kv_head < 2; ++kv_head) {
        std::vector<double> best, last;
        for (Index first = 0; first < own; first += 8) {
          double largest = -1e300;
          for (Index pos = first; pos < first + 8; ++pos)
            largest = std::max(largest, grouped.product(kv_head, row, pos));
          best.push_back(largest);
          last.push_back(gates.product(kv_head, row, first + 7));  // softmax keeps the order
        }
        equal(msa.list(kv_head, row), spread(naive_top_k(best, n_best), 8, own));
        equal(seer.list(kv_head, row), spread(naive_top_k(last, n_best), 8, own));
      }
    }
  }
}

TEST_CASE("indexer: recorded index vectors in replay; layers and traces without them") {
  TraceInfo info = make_trace_info(3, 4, 2, 8, 64, 16);
  info.index = {.layers = {0, 2}, .n_heads = 4, .n_key_heads = 1, .width = 6, .has_gates = true};
  MemoryTrace trace(info);
  Random random(9);
  for (const Index layer : {0, 1, 2}) {
    for (TensorView<float> one : {trace.q(layer), trace.k(layer), trace.v(layer)}) {
      for (Index i = 0; i < one.shape().count(); ++i)
        one.data()[i] = static_cast<float>(random.normal());
    }
    for (const SideTensor what : {SideTensor::index_q, SideTensor::index_k, SideTensor::index_w}) {
      const TensorView<float> one = trace.side(what, layer);
      for (Index i = 0; i < one.shape().count() && !one.empty(); ++i)
        one.data()[i] = static_cast<float>(random.normal());
    }
  }
  trace.set_tokens(std::vector<TokenId>(64, 1));
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    ReplayOptions options{.calls = {.phase = phase, .chunk = 16, .steps = 3}, .rows_per_chunk = 2};
    std::mutex mutex;
    Index n_rows = 0;
    options.on_row = [&](const MeasuredRow& row) {
      std::vector<double> scores;
      for (Index pos = 0; pos <= row.pos && row.layer != 1; ++pos) {
        double sum = 0.0;
        for (Index h = 0; h < 4; ++h) {
          const Tensor<float> q =
              trace.read_side(SideTensor::index_q, row.layer, h, {row.pos, row.pos + 1});
          const Tensor<float> k =
              trace.read_side(SideTensor::index_k, row.layer, 0, {pos, pos + 1});
          double product = 0.0;
          for (Index c = 0; c < 6; ++c)
            product += static_cast<double>(q(0, c)) * static_cast<double>(k(0, c));
          sum += static_cast<double>(trace.read_side(SideTensor::index_w, row.layer, h,
                                                     {row.pos, row.pos + 1})(0)) *
                 std::max(0.0, product);
        }
        scores.push_back(sum);
      }
      std::vector<KeyPos> expected = naive_top_k(scores, 10);
      if (row.layer == 1) expected = positions(0, row.pos + 1);  // no indexer: dense
      const std::lock_guard lock(mutex);
      ++n_rows;
      CHECK(std::vector<KeyPos>(row.kept[0].begin(), row.kept[0].end()) == expected);
    };
    ThreadPool pool(2);
    replay_layers(trace, nullptr, {0, 1, 2}, {{"dsa:type=exact", Budget::parse("tokens=10")}},
                  options, pool);
    CHECK(n_rows > 0);
  }
  const MemoryTrace plain = index_text(1);
  ThreadPool pool(1);
  CHECK_SAYS(replay_layers(plain, nullptr, {0}, {{"dsa", Budget::parse("tokens=10")}}, {}, pool),
             "record a model that has an indexer", "index=FILE");
}

}  // namespace kvscope::test::indexer_test
