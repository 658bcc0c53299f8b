#include "core/selectors/key_columns.hpp"

#include <algorithm>

#include "core/attention/score_kernels.hpp"
#include "core/base/raw_vector.hpp"
#include "core/selectors/owners.hpp"

namespace kvscope {

namespace {

constexpr Index kColumnsPart = 32 * kColumnKeys;  // keys of a task

/// Of one KV head.
struct Columns {
  Index n_keys = 0;
  Index width = 0;
  RawVector<float> blocks;  // [n_blocks, width, kColumnKeys]
  void truncate(Index n) { n_keys = std::min(n_keys, n); }
};

}  // namespace

void KeyColumns::append_up_to(const SelectCall& call, Index width, const Directions& directions) {
  append_made(call, width, [&](Index kv_head) -> WriteColumns {
    if (!directions) {
      return [width](std::span<const float> key, std::span<float> columns) {
        std::copy_n(key.begin(), width, columns.begin());
      };
    }
    const double* from = directions(kv_head).data();
    const Index d = call.k.dim(2);
    return
        [width, d, axes = std::vector<float>(from, from + width * d),
         row = std::vector<double>(static_cast<std::size_t>(width)), memory = std::vector<float>()](
            std::span<const float> key, std::span<float> columns) mutable {
          // the axes are the "keys" of this product
          key_dots_f32(key, 1, TensorView<const float>(axes.data(), Shape{width, d}), memory,
                       row.data(), 0);
          std::transform(row.begin(), row.end(), columns.begin(),
                         [](double x) { return static_cast<float>(x); });
        };
  });
}

void KeyColumns::append_made(const SelectCall& call, Index width,
                             const std::function<WriteColumns(Index kv_head)>& make) {
  ScoreEngine& engine = engine_of(call);
  engine.run(call.k.dim(0), [&](Index kv_head, ScoreWorker&) {
    auto& head = engine.kept<Columns>(this, call.layer, kv_head);
    head.width = width;
    const auto k = call.k.sub(kv_head);
    const Index n_blocks = (k.dim(0) + kColumnKeys - 1) / kColumnKeys;
    const auto n_floats = static_cast<std::size_t>(n_blocks * width * kColumnKeys);
    if (head.blocks.size() < n_floats) head.blocks.resize(n_floats);
    if (head.n_keys >= k.dim(0)) return;
    const WriteColumns write = make(kv_head);
    std::vector<float> columns(static_cast<std::size_t>(width));
    for (; head.n_keys < k.dim(0); ++head.n_keys) {
      const Index t = head.n_keys;
      write(k.row(t), columns);
      float* out = head.blocks.data() + t / kColumnKeys * width * kColumnKeys + t % kColumnKeys;
      for (Index c = 0; c < width; ++c) out[c * kColumnKeys] = columns[static_cast<std::size_t>(c)];
    }
  });
}

void KeyColumns::scores(const SelectCall& call, std::span<const Question> questions,
                        TokenRange keys, std::span<const std::span<double>> out) const {
  // Tasks begin at blocks; what lies before the range is left out.
  const Index first_block = keys.begin / kColumnKeys;
  const Index begin = first_block * kColumnKeys;
  const Index n_parts = (std::max<Index>(keys.end - begin, 0) + kColumnsPart - 1) / kColumnsPart;
  const auto n_kv = static_cast<Index>(questions.size());
  const auto n_rows = static_cast<Index>(out.size()) / n_kv;
  ScoreEngine& engine = engine_of(call);
  engine.run(n_kv * n_parts, [&](Index task, ScoreWorker&) {
    const Index kv_head = task / n_parts;
    const Question& question = questions[static_cast<std::size_t>(kv_head)];
    const Columns& head = *engine.known<Columns>(this, call.layer, kv_head);
    std::vector<Index> channels = question.channels;
    for (Index c = 0; question.channels.empty() && c < head.width; ++c) channels.push_back(c);
    const Index from = begin + task % n_parts * kColumnsPart;
    const Index to = std::min(keys.end, from + kColumnsPart);
    const Index skipped = std::max<Index>(keys.begin - from, 0);
    const float* blocks = head.blocks.data() + from * head.width;
    const auto row_of = [&](Index row) {
      return out[static_cast<std::size_t>(kv_head * n_rows + row)];
    };
    if (engine.precision() == ScorePrecision::f64) {
      const std::size_t width = channels.size();
      for (Index row = 0; row < n_rows; ++row) {
        const auto q = std::span(question.q).subspan(static_cast<std::size_t>(row) * width, width);
        for (Index t = std::max(from, keys.begin); t < to; ++t) {
          const float* key =
              head.blocks.data() + t / kColumnKeys * head.width * kColumnKeys + t % kColumnKeys;
          double sum = 0.0;
          for (std::size_t c = 0; c < width; ++c)
            sum += static_cast<double>(q[c]) * static_cast<double>(key[channels[c] * kColumnKeys]);
          row_of(row)[static_cast<std::size_t>(t - keys.begin)] = sum;
        }
      }
      return;
    }
    const Index stride = n_rows > 1 ? row_of(1).data() - row_of(0).data() : 0;
    bool is_table = skipped == 0;  // rows at equal distances
    for (Index row = 2; row < n_rows; ++row)
      is_table = is_table && row_of(row).data() - row_of(row - 1).data() == stride;
    if (is_table) {
      column_dots(question.q, n_rows, channels, blocks, head.width, to - from,
                  row_of(0).data() + (from - keys.begin), stride);
      return;
    }
    std::vector<double> part(static_cast<std::size_t>(n_rows * kColumnsPart));
    column_dots(question.q, n_rows, channels, blocks, head.width, to - from, part.data(),
                kColumnsPart);
    for (Index row = 0; row < n_rows; ++row) {
      const double* source = part.data() + row * kColumnsPart;
      std::copy(source + skipped, source + (to - from),
                row_of(row).begin() + (from + skipped - keys.begin));
    }
  });
}

}  // namespace kvscope
