// doublesparsity: scores in a few channels that were chosen once per model, rounded to 4 bits
// (arXiv 2408.07092; official code).
//
// Idea: the channels in which queries and keys are large are the same for every text. Rank the
// channels of each head by the mean of |q k| on a calibration text, keep the best few of each key
// as a label of a few bits, score with labels, keep the best k keys, attend exactly.
//
// Cost per call and layer with T keys before it and r = share d channels: 2 r FLOPs per key and
// list, reads n_kv T (r bits / 8 + 4) bytes of labels (4: scale and zero in fp16; none with 16
// bits). Stores the labels of every key.
//
// Fails when other channels matter for a text than for the calibration text, and at few bits when
// one channel of a label dwarfs the others (its levels are between the label's smallest and largest
// channel).
//
// Decided where the sources differ or are silent: by=qk is the code's qk_proj (mean over tokens of
// |q_c k_c| of the same token, after rotation; summed over the group, since a KV head has one label
// per key here), by=k and by=q its k_proj and q_proj (after rotation here, before it there). 16 of
// 128 channels are a share of 1/8. Only keys are rounded (the evaluation code rounds queries, too;
// the kernels neither). Lists per query head as in both programs, or per KV head by the mean logit
// of its group (owner=kv_head). The past is scored by the mean query of the call, its own keys are
// forced beside the budget. Without a file and without a calibration text there are no channels.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/attention/topk.hpp"
#include "core/selectors/calibration_rows.hpp"
#include "core/selectors/cost_units.hpp"
#include "core/selectors/key_columns.hpp"
#include "core/selectors/learned_heads.hpp"
#include "core/selectors/registry.hpp"
#include "core/selectors/rounded_keys.hpp"
#include "core/selectors/shared_options.hpp"
#include "core/selectors/shared_scores.hpp"

namespace kvscope {

namespace {

enum class ChannelRank { qk, k, q };
enum class LabelOwner { q_head, kv_head };

class DoubleSparsity final : public SharedScoreSelector {
 public:
  std::string channels_ =
      option(channels_, "channels", "",
             "a file of kvscope fit doublesparsity; without one, a calibration text is needed");
  double share_ = option(share_, "share", 0.125,
                         "share of a head's channels that score, at least one", in(0.0, 1.0));
  Index bits_ = option(bits_, "bits", 4, "precision of the labels; 16 keeps them exact", in(1, 16));
  LabelOwner owner_ =
      option(owner_, "owner", LabelOwner::q_head, "one list per query head or per KV head");
  ChannelRank by_ =
      option(by_, "by", ChannelRank::qk,
             "fitting: channels are ranked by the mean of |q k| of a token, of |k| or of |q|");
  Index dense_layers_ = dense_layers_option(dense_layers_);

  SelectorCaps caps() const override {
    return {.owner = owner_ == LabelOwner::q_head ? ListOwner::q_head : ListOwner::kv_head,
            .needs_calibration = !file_.is_named(),
            .budgets = kTokenBudgets,
            .dense_layers = dense_layers_,
            .artifact_option = "channels"};
  }

  void calibrate(const TraceSource& text, std::span<const Index> layers,
                 ThreadPool& pool) override {
    full_attention_layers(text, name());
    ranked_.learn(layers, text.info().n_kv, pool,
                  [&](Index layer, Index kv_head) { return rank_channels(text, layer, kv_head); });
  }
  Learned learned() const override {
    Learned out = ranked_.learned("channels", "");
    out.options = {{"by", std::string(enum_name(by_))}};
    out.summary = fmt::format("channels of {} layers by falling mean of |{}|",
                              ranked_.layers().size(), enum_name(by_));
    return out;
  }
  std::vector<ArtifactOrigin> artifacts() const override { return file_.origins(); }

  void reset(const AttentionShape& shape) override {
    Selector::reset(shape);
    if (file_.is_named())
      ranked_.load(file_, "channels", shape, shape.d_head, /*high=*/shape.d_head - 1);
  }

  SelectCost cost(const SelectCall& call, const Selection& selection) const override {
    if (selection.is_dense) return {};
    const auto r = static_cast<double>(n_channels(call));
    const double lists_per_kv_head =
        owner_ == LabelOwner::q_head ? static_cast<double>(call.q.dim(0) / call.k.dim(0)) : 1.0;
    const double bytes_per_key = bits_ < 16
                                     ? r * static_cast<double>(bits_) / 8.0 + 2.0 * kBytesPerElement
                                     : r * kBytesPerElement;
    return codes_cost(call, bytes_per_key) +
           flops_cost(2.0 * lists_per_kv_head * alive_keys(call, past_range(call)) * r);
  }

 protected:
  ListOwner owner_of_call(const SelectCall&) const override {
    return owner_ == LabelOwner::q_head ? ListOwner::q_head : ListOwner::kv_head;
  }

  bool score_owners(const SelectCall& call, ListOwner owner_kind, TokenRange keys,
                    std::span<const std::span<double>> scores) override {
    const Index width = n_channels(call);
    labels_.append_made(call, width, [&](Index kv_head) -> KeyColumns::WriteColumns {
      return [this, channels = channels_of(call, kv_head),
              label = std::vector<float>(static_cast<std::size_t>(width)),
              rounded = std::vector<double>(static_cast<std::size_t>(width))](
                 std::span<const float> key, std::span<float> columns) mutable {
        for (std::size_t c = 0; c < label.size(); ++c)
          label[c] = key[static_cast<std::size_t>(channels[c])];
        round_to_levels(label, static_cast<int>(bits_), rounded);
        std::transform(rounded.begin(), rounded.end(), columns.begin(),
                       [](double x) { return static_cast<float>(x); });
      };
    });
    const Index group = call.q.dim(0) / call.k.dim(0);
    const Index heads_per_list = owner_kind == ListOwner::q_head ? 1 : group;
    std::vector<KeyColumns::Question> questions(static_cast<std::size_t>(call.k.dim(0)));
    for (Index first = 0; first < call.q.dim(0); first += heads_per_list) {
      const Index kv_head = first / group;
      std::vector<float>& to = questions[static_cast<std::size_t>(kv_head)].q;
      const std::vector<double> q = mean_query(call, {first, first + heads_per_list});
      for (const Index c : channels_of(call, kv_head))
        to.push_back(static_cast<float>(q[static_cast<std::size_t>(c)] *
                                        static_cast<double>(call.score_scale)));
    }
    labels_.scores(call, questions, keys, scores);
    return true;
  }

 private:
  Index n_channels(const SelectCall& call) const {
    return std::max<Index>(
        1, static_cast<Index>(std::floor(share_ * static_cast<double>(call.k.dim(2)))));
  }

  /// The channels that score, ascending.
  std::vector<Index> channels_of(const SelectCall& call, Index kv_head) const {
    const std::span<const Index> ranked =
        ranked_.of_channels("doublesparsity", "channels", call, kv_head);
    std::vector<Index> best(ranked.begin(), ranked.begin() + n_channels(call));
    std::sort(best.begin(), best.end());
    return best;
  }

  /// All channels by falling size, equal ones in order.
  std::vector<Index> rank_channels(const TraceSource& text, Index layer, Index kv_head) const {
    const TraceInfo& info = text.info();
    const TokenRange all{0, info.n_tokens};
    const Tensor<float> k = text.read_k(layer, kv_head, all);
    std::vector<double> size(static_cast<std::size_t>(info.d_head), 0.0);
    for (Index q_head = kv_head * info.group(); q_head < (kv_head + 1) * info.group(); ++q_head) {
      const Tensor<float> q = text.read_q(layer, q_head, all);
      for (Index t = 0; t < info.n_tokens; ++t) {
        for (std::size_t c = 0; c < size.size(); ++c) {
          const auto of_q = std::abs(static_cast<double>(q(t, static_cast<Index>(c))));
          const auto of_k = std::abs(static_cast<double>(k(t, static_cast<Index>(c))));
          size[c] += (by_ == ChannelRank::k ? 1.0 : of_q) * (by_ == ChannelRank::q ? 1.0 : of_k);
        }
      }
    }
    return top_k(size, static_cast<Index>(size.size()));
  }

  ArtifactFile file_{"doublesparsity", channels_};
  KeyColumns labels_;
  LearnedHeads<Index> ranked_;  // [d_head] each
};

}  // namespace

void register_doublesparsity(SelectorRegistry& registry) {
  registry.add<DoubleSparsity>("doublesparsity", "Double Sparsity: channels chosen offline",
                               "arXiv 2408.07092",
                               "scores keys by a few channels, chosen once per model, in 4 bits");
}

}  // namespace kvscope
