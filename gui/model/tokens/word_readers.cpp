#include "gui/model/tokens/word_readers.hpp"

#include <algorithm>
#include <utility>

#include "analysis/base/analysis.hpp"
#include "gui/model/map/attention_head.hpp"

namespace kvscope::gui {

WordReaders word_readers(const TraceSource& trace, TokenRange word, JobContext& job) {
  constexpr Index kBlock = 256;  // queries between two looks at the stop
  const TraceInfo& info = trace.info();
  WordReaders readers{word, {}};
  const TokenRange queries{std::max(word.end, info.rows.begin), info.rows.end};
  std::vector<double> weights(static_cast<std::size_t>(std::max<Index>(0, queries.size())));
  Index n_done = 0;
  const auto n_heads = static_cast<Index>(info.layers.size() * info.q_heads.size());
  for (const Index layer : info.layers) {
    for (const Index q_head : info.q_heads) {
      const auto head = AttentionHead::load(trace, layer, q_head, job.stop);
      std::ranges::fill(weights, 0.0);
      const Index n_blocks = (static_cast<Index>(weights.size()) + kBlock - 1) / kBlock;
      job.pool.parallel_for(n_blocks, [&](Index block, int) {
        if (job.stop.stop_requested()) return;
        const Index begin = queries.begin + block * kBlock;
        for (Index query = begin; query < std::min(begin + kBlock, queries.end); ++query) {
          double& weight = weights[static_cast<std::size_t>(query - queries.begin)];
          for (Index key = word.begin; key < word.end; ++key)
            weight += head->weight(query, key).value_or(0.0);
        }
      });
      check_stop(job.stop, "readers of a word");
      WordReader reader{layer, q_head, 0.0, 0.0, queries.begin};
      for (std::size_t i = 0; i < weights.size(); ++i) {
        reader.received += weights[i];
        if (weights[i] <= reader.most) continue;
        reader.most = weights[i];
        reader.from = queries.begin + static_cast<Index>(i);
      }
      readers.heads.push_back(reader);
      if (job.progress) job.progress({"readers", ++n_done, n_heads, "heads"});
    }
  }
  std::ranges::stable_sort(readers.heads, std::ranges::greater{}, &WordReader::received);
  return readers;
}

}  // namespace kvscope::gui
