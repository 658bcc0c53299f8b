#include "tests/traces/synthetic.hpp"
#include "tests/support/test.hpp"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

namespace kvscope::test {

Plan plan_of_many_calls() {
  Plan plan;
  plan.n_prompt = 60;
  plan.n_decode = 20;
  plan.chunk = 4;
  plan.rows = {0, 80};
  plan.capture.attn_dense = plan.capture.logits = plan.capture.stats = true;
  plan.capture.attn_topk = 3;
  plan.capture.page_size = 8;
  return plan;
}

TraceInfo make_info(const Plan& plan) {
  TraceInfo info{.model_name = "synthetic",
                 .model_family = "llama",
                 .model_config = "{\"model_type\": \"llama\"}",
                 .n_layers = 3,
                 .n_q = 4,
                 .n_kv = 2,
                 .d_head = 8,
                 .d_model = 32,
                 .n_vocab = 50,
                 .score_scale = 0.35355338f,
                 .window = {std::nullopt, 6, std::nullopt},
                 .rope_kind = "default",
                 .rope_theta = 10000.0,
                 .capture = plan.capture,
                 .dtype = plan.dtype,
                 .layers = plan.layers,
                 .q_heads = plan.q_heads,
                 .kv_heads = plan.kv_heads,
                 .rows = plan.rows,
                 .n_tokens = plan.n_prompt + plan.n_decode,
                 .n_prompt = plan.n_prompt,
                 .chunk = plan.chunk};
  for (Index t = 0; t < plan.n_prompt; t += plan.chunk)
    info.calls.push_back({{t, std::min(t + plan.chunk, plan.n_prompt)}, false});
  for (Index t = plan.n_prompt; t < info.n_tokens; ++t) info.calls.push_back({{t, t + 1}, true});
  info.token_text_capacity = plan.with_text ? info.n_tokens * 8 : 0;
  info.layer_shapes = plan.layer_shapes;
  info.created = "2026-01-02T03:04:05Z";
  info.writer = "kvscope test";
  info.command_line = "kvscope record --out \xC3\xA9t\xC3\xA9.h5";
  info.host = "here";
  info.text_source = "a book";
  info.tokenizer_hash = "xxh128:0";
  info.seed = 18446744073709551615ULL;
  return info;
}

namespace {

Tensor<float> random_tensor(Shape shape, std::mt19937_64& rng) {
  std::normal_distribution<float> normal;
  Tensor<float> out(shape);
  for (float& x : out.flat()) x = normal(rng);
  return out;
}

/// Naive causal attention within the layer's window, on the values as they will be stored.
void attend(SyntheticTrace& trace, Index index) {
  auto& layer = trace.layers[index];
  const TraceInfo& info = trace.info;
  const auto window = info.window[index];
  const LayerShape shape = info.shape(index);
  layer.lse = Tensor<float>({info.n_q, info.n_tokens});
  layer.attn = Tensor<float>({info.n_q, info.n_tokens, info.n_tokens});
  for (Index h = 0; h < info.n_q; ++h) {
    for (Index t = 0; t < info.n_tokens; ++t) {
      std::vector<double> score(static_cast<std::size_t>(t) + 1, -INFINITY);
      double sum = 0;
      for (Index j = 0; j <= t; ++j) {
        if (window && j <= t - *window) continue;
        double s = 0;
        for (Index c = 0; c < shape.d_head; ++c) {
          s += static_cast<double>(stored(info.dtype, layer.q(h, t, c))) *
               stored(info.dtype, layer.k(h / info.group(index), j, c));
        }
        score[j] = s * shape.score_scale;
        sum += std::exp(score[j]);
      }
      layer.lse(h, t) = static_cast<float>(std::log(sum));
      for (Index j = 0; j <= t; ++j)
        layer.attn(h, t, j) = static_cast<float>(std::exp(score[j]) / sum);
    }
  }
}

/// Heads `heads` and positions [begin, end) of [heads, n, ...] as a tensor of its own.
Tensor<float> pick(TensorView<const float> from, const std::vector<Index>& heads, Index begin,
                   Index end, Index columns = -1) {
  Shape shape = from.shape();
  shape.dim[0] = static_cast<Index>(heads.size());
  shape.dim[1] = end - begin;
  if (columns >= 0) shape.dim[2] = columns;
  Tensor<float> out(shape);
  for (Index h = 0; h < shape[0]; ++h) {
    for (Index t = 0; t < shape[1]; ++t) {
      const Index head = heads[h];
      if (shape.rank == 2) {
        out(h, t) = from(head, begin + t);
      } else {
        for (Index c = 0; c < shape[2]; ++c) out(h, t, c) = from(head, begin + t, c);
      }
    }
  }
  return out;
}

Tensor<float> norms(const Tensor<float>& rows) {
  Tensor<float> out({rows.dim(0), rows.dim(1)});
  for (Index h = 0; h < rows.dim(0); ++h) {
    for (Index t = 0; t < rows.dim(1); ++t) {
      double sum = 0;
      for (Index c = 0; c < rows.dim(2); ++c)
        sum += static_cast<double>(rows(h, t, c)) * rows(h, t, c);
      out(h, t) = static_cast<float>(std::sqrt(sum));
    }
  }
  return out;
}

Tensor<float> pages(TensorView<const float> keys, const std::vector<Index>& heads, Index page_size,
                    Index first, Index last, bool largest) {
  Tensor<float> out({static_cast<Index>(heads.size()), last - first, keys.dim(2)});
  for (Index h = 0; h < out.dim(0); ++h) {
    for (Index p = 0; p < out.dim(1); ++p) {
      for (Index c = 0; c < out.dim(2); ++c) {
        float best = largest ? -INFINITY : INFINITY;
        for (Index i = 0; i < page_size; ++i) {
          const float x = keys(heads[h], (first + p) * page_size + i, c);
          best = largest ? std::max(best, x) : std::min(best, x);
        }
        out(h, p, c) = best;
      }
    }
  }
  return out;
}

void write_attention(const SyntheticTrace& trace, TraceReceiver& receiver, Index layer, Index begin,
                     Index end, Index call_end) {
  const TraceInfo& info = trace.info;
  const Index n_top = info.capture.attn_topk;
  // One row at a time, to see that blocks add up.
  for (Index t = begin; t < end; ++t) {
    const auto attn = pick(trace.layers[layer].attn.view(), info.q_heads, t, t + 1, call_end);
    CallRows rows;
    if (info.capture.attn_dense) rows.arrays.push_back({layer, "attn", attn.view()});
    Tensor<std::int32_t> pos;
    Tensor<float> prob;
    if (n_top > 0) {
      pos = Tensor<std::int32_t>({attn.dim(0), 1, n_top});
      prob = Tensor<float>({attn.dim(0), 1, n_top});
      for (Index h = 0; h < attn.dim(0); ++h) {
        std::vector<std::pair<float, Index>> sorted;
        for (Index j = 0; j <= t; ++j) {
          if (attn(h, 0, j) > 0) sorted.emplace_back(-attn(h, 0, j), j);
        }
        std::sort(sorted.begin(), sorted.end());
        for (Index i = 0; i < n_top; ++i) {
          const bool there = i < static_cast<Index>(sorted.size());
          pos(h, 0, i) = there ? static_cast<std::int32_t>(sorted[i].second) : -1;
          prob(h, 0, i) = there ? -sorted[i].first : 0.0f;
        }
      }
      rows.arrays.push_back({layer, "topk_pos", pos.view()});
      rows.arrays.push_back({layer, "topk_prob", prob.view()});
    }
    receiver.write(rows);
  }
}

}  // namespace

SyntheticTrace make_trace(const Plan& plan, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  SyntheticTrace trace{.info = make_info(plan)};
  const TraceInfo& info = trace.info;
  for (Index t = 0; t < info.n_tokens; ++t) {
    trace.tokens.push_back(static_cast<TokenId>(rng() % 50));
    trace.texts.push_back(
        std::string(static_cast<std::size_t>(rng() % 8), static_cast<char>('a' + t % 26)));
  }
  for (Index i = 0; i < info.n_layers; ++i) {
    SyntheticTrace::Layer layer;
    const Index n_kv = info.shape(i).n_kv;
    const Index d_head = info.shape(i).d_head;
    layer.q = random_tensor({info.n_q, info.n_tokens, d_head}, rng);
    layer.k = random_tensor({n_kv, info.n_tokens, d_head}, rng);
    for (float& x : layer.k.flat()) x *= i == 0 ? plan.key_scale : 1.0F;
    layer.v = random_tensor({n_kv, info.n_tokens, d_head}, rng);
    trace.layers.push_back(std::move(layer));
    attend(trace, i);
  }
  trace.logits = random_tensor({info.n_tokens, info.n_vocab}, rng);
  return trace;
}

void write_calls(const SyntheticTrace& trace, TraceReceiver& receiver, std::size_t first,
                 std::size_t last, const std::function<void(std::size_t)>& after_commit) {
  const TraceInfo& info = trace.info;
  for (std::size_t u = first; u < last; ++u) {
    const Index begin = info.calls[u].tokens.begin;
    const Index end = info.calls[u].tokens.end;
    const Index row_begin = std::clamp(begin, info.rows.begin, info.rows.end);
    const Index row_end = std::clamp(end, info.rows.begin, info.rows.end);
    const Index page = info.capture.page_size;
    for (const Index i : info.layers) {
      const auto& layer = trace.layers[i];
      const auto q = pick(layer.q.view(), info.q_heads, row_begin, row_end);
      const std::vector<Index> kv_heads = info.kv_heads_of(i);
      const auto k = pick(layer.k.view(), kv_heads, begin, end);
      const auto v = pick(layer.v.view(), kv_heads, begin, end);
      const auto lse = pick(layer.lse.view(), info.q_heads, row_begin, row_end);
      const auto q_norm = norms(q);
      const auto k_norm = norms(k);
      const auto low =
          pages(layer.k.view(), kv_heads, page, begin / page, end / page, /*largest=*/false);
      const auto high =
          pages(layer.k.view(), kv_heads, page, begin / page, end / page, /*largest=*/true);
      CallRows rows;
      const auto add = [&](bool is_captured, const char* name, const Tensor<float>& part) {
        if (is_captured) rows.arrays.push_back({i, name, part.view()});
      };
      add(info.capture.qkv, "q", q);
      add(info.capture.qkv, "k", k);
      add(info.capture.qkv, "v", v);
      add(info.capture.lse, "lse", lse);
      add(info.capture.stats, "stats/q_norm", q_norm);
      add(info.capture.stats, "stats/k_norm", k_norm);
      add(info.capture.stats, "stats/page_min", low);
      add(info.capture.stats, "stats/page_max", high);
      receiver.write(rows);
      if (info.capture.attn_dense || info.capture.attn_topk > 0)
        write_attention(trace, receiver, i, row_begin, row_end, end);
    }
    if (info.capture.logits && row_end > row_begin)
      receiver.write(
          {.arrays = {{-1, "/logits", trace.logits.view().range(0, row_begin, row_end)}}});
    const auto b = static_cast<std::size_t>(begin);
    const auto n = static_cast<std::size_t>(end - begin);
    receiver.write_tokens(std::span(trace.tokens).subspan(b, n),
                          std::span(trace.texts).subspan(b, n));
    receiver.commit_call();
    if (after_commit) after_commit(u);
  }
}

void write_begun(const SyntheticTrace& trace, TraceReceiver& receiver, std::size_t n_calls) {
  receiver.begin(trace.info);
  write_calls(trace, receiver, 0, n_calls);
}

void write_all(const SyntheticTrace& trace, TraceReceiver& receiver) {
  write_begun(trace, receiver, trace.info.calls.size());
  receiver.finish(TraceStatus::complete);
}

VerifyReport verified(const std::filesystem::path& file) {
  ThreadPool pool(2);
  return verify_trace(file, {}, pool);
}

void check_verifies(const std::filesystem::path& file) {
  const VerifyReport report = verified(file);
  INFO((report.problems.empty() ? "" : report.problems.front()));
  CHECK(report.ok);
}

float stored(DType dtype, float value) {
  std::uint32_t bytes = 0;
  from_float(&value, dtype, &bytes, 1);
  float out = 0;
  to_float(dtype, &bytes, &out, 1);
  return out;
}

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::size_t place_of(float value, const std::string& bytes) {
  const std::size_t at =
      bytes.find(std::string(reinterpret_cast<const char*>(&value), sizeof value));
  REQUIRE(at != std::string::npos);
  return at;
}

void damage(const std::filesystem::path& file, float value) {
  std::string bytes = slurp(file);
  bytes[place_of(value, bytes)] ^= 4;
  spill(file, bytes);
}

std::string run_python(const std::string& script, const std::vector<std::string>& args) {
  const TempFolder folder;
  spill(folder / "script.py", script);
  // The sanitizers' preloaded run time would make Python report its own leaks.
  std::string command =
      "ASAN_OPTIONS=detect_leaks=0 /usr/bin/python3 '" + (folder / "script.py").string() + "'";
  for (const auto& arg : args) command += " '" + arg + "'";
  command += " > '" + (folder / "out").string() + "' 2>&1";
  const int status = std::system(command.c_str());
  const std::string output = slurp(folder / "out");
  INFO(output);
  REQUIRE(status == 0);
  return output;
}

}  // namespace kvscope::test
