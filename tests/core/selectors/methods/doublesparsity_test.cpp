// Double Sparsity: channels ranked by loops, lists by products of rounded labels.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "core/selectors/learned.hpp"
#include "core/selectors/method_spec.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::doublesparsity_test {

MemoryTrace channel_text(unsigned seed) {
  PlantOptions plant{
      .n_layers = 8, .n_q = 4, .n_kv = 2, .d_head = 16, .n_tokens = 50, .seed = seed};
  return planted_trace(plant);
}

/// All channels of a KV head by falling size.
std::vector<Index> naive_channels(const TraceSource& text, Index layer, Index kv_head,
                                  const std::string& by) {
  std::vector<double> size(16, 0.0);
  for (Index q_head = 2 * kv_head; q_head < 2 * kv_head + 2; ++q_head) {
    for (Index t = 0; t < 50; ++t) {
      const Tensor<float> q = text.read_q(layer, q_head, {t, t + 1});
      const Tensor<float> k = text.read_k(layer, kv_head, {t, t + 1});
      for (Index c = 0; c < 16; ++c) {
        const double a = by == "k" ? 1.0 : std::abs(static_cast<double>(q(0, c)));
        const double b = by == "q" ? 1.0 : std::abs(static_cast<double>(k(0, c)));
        size[c] += a * b;
      }
    }
  }
  std::vector<Index> order(16);
  std::iota(order.begin(), order.end(), Index{0});
  std::ranges::stable_sort(order, [&](Index a, Index b) { return size[a] > size[b]; });
  return order;
}

/// Mean logit of some heads and all rows with a key's label.
double label_score(const CallFixture& fixture, std::vector<Index> q_heads, Index pos,
                   std::vector<Index> channels, int bits) {
  std::ranges::sort(channels);
  const Index kv_head = q_heads[0] / fixture.group();
  double low = 1e30;
  double high = -1e30;
  for (const Index c : channels) {
    low = std::min(low, static_cast<double>(fixture.k(kv_head, pos, c)));
    high = std::max(high, static_cast<double>(fixture.k(kv_head, pos, c)));
  }
  const double step = (high - low) / (std::pow(2.0, bits) - 1.0);
  double sum = 0.0;
  for (const Index c : channels) {
    double q = 0.0;
    for (const Index q_head : q_heads) {
      for (Index row = 0; row < fixture.call.n_tok; ++row)
        q += static_cast<double>(fixture.q(q_head, row, c)) /
             static_cast<double>(static_cast<Index>(q_heads.size()) * fixture.call.n_tok);
    }
    const auto x = static_cast<double>(fixture.k(kv_head, pos, c));
    const double label = bits == 16 ? x : low + step * std::floor((x - low) / step + 0.5);
    sum +=
        static_cast<double>(static_cast<float>(q * static_cast<double>(fixture.call.score_scale))) *
        static_cast<double>(static_cast<float>(label));
  }
  return sum;
}

TEST_CASE(
    "doublesparsity: channels are ranked by the mean of |q k|, |k| or |q| on the calibration "
    "text") {
  const MemoryTrace text = channel_text(2);
  const CallFixture fixture;
  for (const std::string by : {"qk", "k", "q"}) {
    const Learned learned = made_from(text, "doublesparsity:by=" + by, fixture)->learned();
    for (Index layer = 0; layer < 8; ++layer) {
      for (Index head = 0; head < 2; ++head) {
        INFO(by << ", layer " << layer << ", head " << head);
        CHECK(learned.values["channels"][layer][head] ==
              nlohmann::ordered_json(naive_channels(text, layer, head, by)));
      }
    }
  }
}

TEST_CASE("doublesparsity: lists are the best past keys by their labels") {
  const MemoryTrace text = channel_text(3);
  for (const int bits : {4, 8, 16}) {
    for (const std::string owner : {"q_head", "kv_head"}) {
      for (const Index n_tok : {Index{1}, Index{5}}) {
        CallFixture fixture(
            {.n_past = 90, .n_tok = n_tok, .phase = n_tok == 1 ? Phase::decode : Phase::prefill});
        fixture.call.budget = Budget::parse("tokens=12");
        fixture.alive.kill(0, 40);
        auto selector = made_from(
            text, fmt::format("doublesparsity:share=0.25,bits={},owner={}", bits, owner), fixture);
        const Selection selection = selector->select(fixture.call);
        const Index n_lists = owner == "q_head" ? 4 : 2;
        REQUIRE(selection.n_lists() == n_lists);
        for (Index i = 0; i < n_lists; ++i) {
          const std::vector<Index> heads =
              owner == "q_head" ? std::vector<Index>{i} : std::vector<Index>{2 * i, 2 * i + 1};
          const Index kv_head = heads[0] / 2;
          std::vector<Index> channels = naive_channels(text, 5, kv_head, "qk");
          channels.resize(4);
          std::vector<double> scores;
          for (Index pos = 0; pos < 90; ++pos) {
            scores.push_back(fixture.alive.is_alive(kv_head, static_cast<KeyPos>(pos))
                                 ? label_score(fixture, heads, pos, channels, bits)
                                 : -std::numeric_limits<double>::infinity());
          }
          INFO(bits << " bits, " << owner << ", list " << i);
          CHECK(selection.at(i).scored() == naive_top_k(scores, 12));
          CHECK(selection.at(i).forced() == positions(90, 90 + n_tok));
        }
      }
    }
  }
}

}  // namespace kvscope::test::doublesparsity_test
