// Counted work of one call of every method and preset, by hand: what the columns of a sweep and the
// figures over bytes are made of.
//
// The question: 4 query heads, 2 KV heads (groups of 2), 8 channels, 40 keys, in layer 2 of 8.
//   chunk    prefill: 32 past keys, 8 queries
//   step     decode: 39 past keys, 1 query
//   evicted  the chunk again (the step, where a method rests in prefill), after KV head 0 lost keys
//            0 to 9 and KV head 1 keys 0 to 19. Left: 30 + 20 = 50 keys, 22 + 12 = 34 of them past.
// One multiplication with its addition is 2 FLOPs; a dot product of keys is 16. An element of a key
// is 2 bytes, a key 16; a probability 4.
#include <optional>

#include "core/attention/visible.hpp"
#include "core/base/parallel.hpp"
#include "core/selectors/registry.hpp"
#include "tests/core/selectors/call_fixture.hpp"
#include "tests/core/selectors/lists.hpp"
#include "tests/core/selectors/sequence.hpp"
#include "tests/support/planted_trace.hpp"
#include "tests/support/test.hpp"

namespace kvscope::test::cost_test {

struct Counted {
  double flops = 0.0;
  double bytes = 0.0;  // read to score
  double held = 0.0;   // besides the cache
};

struct CostCase {
  std::string_view spec;  // a method or preset, with options that fit the small question
  std::optional<Counted> chunk;
  std::optional<Counted> step;
  std::optional<Counted> evicted;
};

constexpr Counted kNothing{};
constexpr std::nullopt_t kRests = std::nullopt;

// Exact scores of all rows: 4 heads x 8 rows x 40 keys x 16, of one row 4 x 40 x 16; with evicted
// keys 2 heads of a group x 8 rows x 50 keys x 16. Every key is read once: 80 x 16, or 50 x 16.
constexpr Counted kExactChunk{20480, 1280, 0};
constexpr Counted kExactStep{2560, 1280, 0};
constexpr Counted kExactEvicted{12800, 800, 0};

// H2O adds every weight of every row: 4 heads x 8 rows x 40 keys, which must be written (4 bytes
// each), and holds a sum per key and KV head: 80 x 4.
constexpr Counted kH2oChunk{1280, 5120, 320};
constexpr Counted kH2oStep{160, 640, 320};
constexpr Counted kH2oEvicted{800, 3200, 200};  // 2 x 8 x 50; 50 sums

// TOVA adds one row of each head: 4 x 40 weights, and holds their mean by position. With evicted
// keys the heads see 30, 30, 20, 20; 30 positions have a mean.
constexpr Counted kTovaCall{160, 640, 160};
constexpr Counted kTovaEvicted{100, 400, 120};

// SnapKV: the chunk's 8 queries vote with exact scores; nothing in decode.
constexpr Counted kSnapStep = kNothing;

// Quest, pages of 8. Chunk: each query splits in max(q, 0) and min(q, 0), which are summed: 4 heads
// x 8 rows x 16; 4 past pages of each KV head x 32 (a product over both boxes). Boxes are 16
// elements: 8 of them read, 5 pages per KV head held. Step, a list per query head: 4 heads x 5
// pages x 32, the pages of both KV heads read. Evicted: past pages 1 to 3 of KV head 0 (page 1 has
// lost two keys) and 2 to 3 of KV head 1 are left; with the chunk's page 4 + 3 are held.
constexpr Counted kQuestChunk{512 + 256, 256, 320};
constexpr Counted kQuestStep{640, 320, 320};
constexpr Counted kQuestEvicted{512 + 160, 160, 224};

// Means of blocks of 64: every query and key is added once, 32 + 80 vectors of 8; each head has one
// block of queries and one of keys: 4 products. Evicted: 32 + 50 vectors.
constexpr Counted kBlockSparse{896 + 64, 1280, 0};
constexpr Counted kBlockSparseEvicted{656 + 64, 800, 0};

// SpargeAttn: per query and key its sum (8), norm (16), unit vector (8) and the sum of these (8);
// per key also the mean of all keys and the difference to it (16). 112 x 40 + 80 x 16, and one
// product of means per head. Evicted: 82 x 40 + 50 x 16.
constexpr Counted kSparge{4480 + 1280 + 64, 1280, 0};
constexpr Counted kSpargeEvicted{3280 + 800 + 64, 800, 0};

// Block means, windows of 8 every 4: 9 whole ones of each KV head, 16 or 2 queries of a group x 16
// each. Evicted: 8 windows of KV head 0 and 5 of KV head 1 have keys. They are read, and held.
constexpr Counted kBlockMeanChunk{16 * 18 * 16, 288, 288};
constexpr Counted kBlockMeanStep{2 * 18 * 16, 288, 288};
constexpr Counted kBlockMeanEvicted{16 * 13 * 16, 208, 208};

const CostCase kCases[] = {
    // Nothing is scored.
    {"bigbird", kNothing, kNothing, kNothing},
    {"duoattention:n-sink=4,n-recent=8", kNothing, kNothing, kNothing},
    {"full", kNothing, kNothing, kNothing},
    {"longformer", kNothing, kNothing, kNothing},
    {"longformer-dilated", kNothing, kNothing, kNothing},
    {"minference-a-shape", kNothing, kRests, kNothing},
    {"minference-a-shape-search", kNothing, kRests, kNothing},
    {"minference-tri-shape", kNothing, kRests, kNothing},
    {"random", kNothing, kNothing, kNothing},
    {"recent", kNothing, kNothing, kNothing},
    {"sink-recent", kNothing, kNothing, kNothing},
    {"streamingllm", kNothing, kNothing, kNothing},
    {"strided", kNothing, kNothing, kNothing},
    // Everything is scored.
    {"oracle-topk", kExactChunk, kExactStep, kExactEvicted},
    {"oracle-topk-past", kExactChunk, kExactStep, kExactEvicted},
    {"oracle-topk-group", kExactChunk, kExactStep, kExactEvicted},
    {"oracle-topk-chunk", kExactChunk, kExactStep, kExactEvicted},
    {"oracle-topp", kExactChunk, kExactStep, kExactEvicted},
    {"ceiling", kExactChunk, kExactStep, kExactEvicted},
    // Scores, outputs (as many again), distances to them and sums of two orders (4.5 times): all
    // values are read.
    {"ceiling:of=output", Counted{133120, 2560, 0}, Counted{16640, 2560, 0},
     Counted{83200, 1600, 0}},
    // Ada-KV votes as SnapKV does, here with all 8 rows of the chunk.
    {"adakv", kExactChunk, kSnapStep, kExactEvicted},
    {"adakv-kvpress", kExactChunk, kSnapStep, kExactEvicted},
    // Kascade scores in an anchor, here layer 2. Its presets rest in prefill; evicted step: 2 heads
    // of a group x 50 keys x 16.
    {"kascade:anchors=0/2", kExactChunk, kExactStep, kExactEvicted},
    {"omnikv", kRests, kExactStep, Counted{1600, 800, 0}},
    {"tidaldecode", kRests, kExactStep, Counted{1600, 800, 0}},
    {"oracle-pages:page-size=8", kExactChunk, kExactStep, kExactEvicted},
    // QuoKA, 4 queries score. Chunk: cosines to the mean 4 x (4 heads x 8 rows x 8) = 1024; norms
    // of 64 keys 3 x 8 each = 1536; 4 slots x 64 keys x 16 = 4096; the largest of the slots 256.
    // Step: norms of 78 keys 1872, one slot per KV head 1248, 78.
    {"quoka:n-queries=4", Counted{1024 + 1536 + 4096 + 256, 1024, 0},
     Counted{1872 + 1248 + 78, 1248, 0}, Counted{1024 + 816 + 2176 + 136, 544, 0}},
    // The chunk's keys compete: 80 keys; in decode the current one does.
    {"quoka:n-queries=4,scope=whole", Counted{1024 + 1920 + 5120 + 320, 1280, 0},
     Counted{1920 + 1280 + 80, 1280, 0}, Counted{1024 + 1200 + 3200 + 200, 800, 0}},
    // Queries drawn by rule need no cosines, and products no norms.
    {"quoka:n-queries=4,queries=random", Counted{1536 + 4096 + 256, 1024, 0},
     Counted{1872 + 1248 + 78, 1248, 0}, Counted{816 + 2176 + 136, 544, 0}},
    {"quoka:n-queries=4,similarity=dot", Counted{1024 + 4096 + 256, 1024, 0},
     Counted{1248 + 78, 1248, 0}, Counted{1024 + 2176 + 136, 544, 0}},
    {"quest:page-size=8", kQuestChunk, kQuestStep, kQuestEvicted},
    {"quest-paper:page-size=8", kQuestChunk, kQuestStep, kQuestEvicted},
    {"quest-kernel:page-size=8", kQuestChunk, kQuestStep, kQuestEvicted},
    // By the sum of a group: 4 heads x 16 additions, then 2 KV heads x 5 pages x 32.
    {"quest-frontier:page-size=8", kQuestChunk, Counted{64 + 320, 320, 320}, kQuestEvicted},
    // Boxes of 4 bits: a quarter of the bytes.
    {"quest-hub:page-size=8", Counted{768, 64, 80}, Counted{640, 80, 80}, Counted{672, 40, 56}},
    // One list for all heads by mean queries. Chunk: 4 heads x 8 rows x 8 channels are averaged
    // (256), the 2 heads that are left cost 2 x 2 x 8 x 8 (256) and 8 pages x 32 (256), 4 sums of
    // two heads. Step: 32, 10 pages x 32, 5 sums.
    {"quest-sglang:page-size=8", Counted{256 + 256 + 256 + 4, 256, 320},
     Counted{32 + 320 + 5, 320, 320}, Counted{256 + 256 + 160 + 2, 160, 224}},
    // Whole pages of 64 from boxes of 8: one comparison for each page that has a score, 4 past ones
    // of each KV head, or 5; bounds of 4 heads. The choice is held for the steps to come: 4 bytes
    // for each of 40 keys (one page of 64) of 2 lists.
    {"lserve:page-size=8", Counted{768 + 8, 256, 320}, Counted{640 + 10, 320, 320 + 320},
     Counted{512 + 160 + 5, 160, 224}},
    // Loki, 4 directions. 8 rows x 6 heads are rotated: 48 x 8 x 8 x 2; 4 heads x 8 rows x 32 keys
    // x 8. 64 keys x 4 elements are read; 2 bases of 8 x 8 are held.
    {"loki:basis=self,rank=4", Counted{6144 + 8192, 512, 256}, Counted{768 + 1248, 624, 256},
     Counted{6144 + 4352, 272, 256}},
    // SparQ, 4 channels: the same products without a rotation; a second copy of 80 keys and a mean
    // value per KV head (8 elements) are held.
    {"sparq:n-channels=4", Counted{8192, 512, 1280 + 32}, Counted{1248, 624, 1280 + 32},
     Counted{4352, 272, 800 + 32}},
    // Double Sparsity, 4 of 8 channels in 4 bits: 2 lists x 64 past keys x 8 in the chunk, 78 in
    // the step; a label is 2 bytes of codes and 4 of scale and zero, one for each of 80 keys. Per
    // KV head one product; with 16 bits a label is 8 bytes.
    {"doublesparsity:share=0.5", Counted{1024, 384, 480}, Counted{1248, 468, 480},
     Counted{544, 204, 300}},
    {"doublesparsity:share=0.5,owner=kv_head", Counted{512, 384, 480}, Counted{624, 468, 480},
     Counted{272, 204, 300}},
    {"doublesparsity:share=0.5,bits=16", Counted{1024, 512, 640}, Counted{1248, 624, 640},
     Counted{544, 272, 400}},
    // Both by the share that is their default: half of the 8 channels; and a quarter of them.
    {"loki", Counted{6144 + 8192, 512, 256}, Counted{768 + 1248, 624, 256},
     Counted{6144 + 4352, 272, 256}},
    {"sparq", Counted{8192, 512, 1280 + 32}, Counted{1248, 624, 1280 + 32},
     Counted{4352, 272, 800 + 32}},
    {"sparq:channel-share=0.25", Counted{4096, 256, 1280 + 32}, Counted{624, 312, 1280 + 32},
     Counted{2176, 136, 800 + 32}},
    // SampleAttention: 4 rows of 4 heads against 40 keys, 16 for the product and 5 for the softmax.
    {"sampleattention:n-queries=4", Counted{16 * 40 * 21, 1280, 0}, Counted{4 * 40 * 21, 1280, 0},
     Counted{2 * 4 * 50 * 21, 800, 0}},
    // Vertical-slash: 4 voters of 4 heads against 40 keys x 16; the presets' 64 are the chunk's 8.
    {"minference-vertical-slash:n-voters=4", Counted{10240, 1280, 0}, kRests,
     Counted{6400, 800, 0}},
    {"minference-vertical-slash-kernel", kExactChunk, kRests, kExactEvicted},
    {"minference-vertical-slash-uniform", kExactChunk, kRests, kExactEvicted},
    {"minference-block-sparse", kBlockSparse, kRests, kBlockSparseEvicted},
    {"minference-block-sparse-official", kBlockSparse, kRests, kBlockSparseEvicted},
    // Blocks of 16: 3 of keys. Evicted: 3 of KV head 0 and 2 of KV head 1, two heads each.
    {"minference-block-sparse-frontier", Counted{896 + 192, 1280, 0}, kRests,
     Counted{656 + 160, 800, 0}},
    {"spargeattn", kSparge, kRests, kSpargeEvicted},
    {"spargeattn-topk", kSparge, kRests, kSpargeEvicted},
    {"spargeattn-triton", kSparge, kRests, kSpargeEvicted},
    {"spargeattn-function", kSparge, kRests, kSpargeEvicted},
    {"spargeattn-p", kSparge, kRests, kSpargeEvicted},
    {"spargeattn:subtract-mean=false", Counted{4480 + 64, 1280, 0}, kRests,
     Counted{3280 + 64, 800, 0}},
    {"snapkv:window=4", Counted{10240, 1280, 0}, kSnapStep, Counted{6400, 800, 0}},
    {"snapkv-installer", kExactChunk, kSnapStep, kExactEvicted},
    {"snapkv-longbench", kExactChunk, kSnapStep, kExactEvicted},
    {"snapkv-official-mha", kExactChunk, kSnapStep, kExactEvicted},
    // KeyDiff: 4 x 8 for each of 80 keys.
    {"keydiff", Counted{2560, 1280, 0}, Counted{2560, 1280, 0}, Counted{1600, 800, 0}},
    // A norm: 2 x 8 for each of 80 keys; a product with the filter, of which 2 x 8 are held.
    {"knorm", Counted{1280, 1280, 0}, Counted{1280, 1280, 0}, Counted{800, 800, 0}},
    {"qfilters", Counted{1280, 1280, 32}, Counted{1280, 1280, 32}, Counted{800, 800, 32}},
    // LagKV scales keys and values and takes their spread: 16 x 8 for each of 80.
    // ThinK: squares of 4 heads x 8 queries and of 2 x 8 keys, 2 FLOPs x 8 channels each; the keys
    // are read, 2 x 8 x 8 x 2; squares of 32 queries are held for 2 KV heads, 4 bytes each. In
    // decode nothing but a bit for each of 16 channels.
    {"think", Counted{768, 256, 2048}, Counted{0, 0, 2}, Counted{768, 256, 2048}},
    {"lagkv", Counted{10240, 2560, 0}, Counted{10240, 2560, 0}, Counted{6400, 1600, 0}},
    // A quadratic form of 8 x 8 for each key and head, 160, and the squares of 32 queries; keys and
    // values are read. 4 x 64 numbers are held.
    {"expected-attention", Counted{24576, 2560, 512}, kNothing, Counted{16896, 1600, 512}},
    // SnapKV's votes, and a length for each value.
    {"critical", Counted{20480, 1280, 320}, Counted{0, 0, 320}, Counted{12800, 800, 200}},
    {"critical-adakv", Counted{20480, 1280, 320}, Counted{0, 0, 320}, Counted{12800, 800, 200}},
    {"h2o", kH2oChunk, kH2oStep, kH2oEvicted},
    {"h2o-official-quirk", kH2oChunk, kH2oStep, kH2oEvicted},
    {"h2o-sparq", kH2oChunk, kH2oStep, kH2oEvicted},
    {"h2o-by-queries", kH2oChunk, kH2oStep, kH2oEvicted},
    {"tova", kTovaCall, kTovaCall, kTovaEvicted},
    {"tova-kvpress", kTovaCall, kTovaCall, kTovaEvicted},
    // LessIsMore, a layer that selects. Chunk: 4 heads x 8 rows x 32 past keys x 16. In decode the
    // current key counts.
    {"lessismore", Counted{16384, 1024, 0}, Counted{2560, 1280, 0}, Counted{8704, 544, 0}},
    // SpecAttn: 31 passes over 2 draft rows of 40 weights, a comparison and an addition each.
    {"specattn", kRests, Counted{31 * 2 * 40 * 2, 31 * 2 * 40 * 4, 320},
     Counted{31 * 2 * 40 * 2, 31 * 2 * 40 * 4, 320}},
    {"blockmean:block=8,kernel=8,stride=4", kBlockMeanChunk, kBlockMeanStep, kBlockMeanEvicted},
    {"nsa:block=8,kernel=8,stride=4,local-tokens=8", kBlockMeanChunk, kBlockMeanStep,
     kBlockMeanEvicted},
    // The compressed branch: 5 windows of each KV head reach into the keys 8 to 23, which no list
    // holds. They cost as much again, and mean values are held.
    {"nsa-compressed:block=8,kernel=8,stride=4,top-blocks=3,local-tokens=8",
     Counted{16 * 18 * 16, 288, 576}, Counted{2 * 28 * 16, 448, 576},
     Counted{16 * 13 * 16, 208, 416}},
    {"infllm2:block=8,kernel=8,stride=4,local-tokens=8,dense-below=0", kBlockMeanChunk,
     kBlockMeanStep, kBlockMeanEvicted},
    // Dense layers and calls, and blocks longer than the context, have nothing to score.
    {"infllm2", kNothing, kNothing, kNothing},
    // Blocks of 8 themselves: 5 of each KV head; 4 and 3 are left.
    {"moba:block=8,kernel=8,stride=8", Counted{16 * 10 * 16, 160, 160},
     Counted{2 * 10 * 16, 160, 160}, Counted{16 * 7 * 16, 112, 112}},
    // UNIQUE, pages of 8, the first page and the last 8 tokens kept. Chunk: 8 queries of 4 heads
    // are doubled and summed, 16 each; pages 1 and 2 of each KV head x 32 compete. Step: 4 heads x
    // pages 1 to 3 x 32. Mean and deviation are 16 elements; 5 pages per KV head are held. Evicted:
    // KV head 1 has lost page 1; 4 and 3 pages are held.
    {"unique:page-size=8,sink=8,recent=8", Counted{512 + 4 * 32, 4 * 32, 320},
     Counted{4 * 3 * 32, 6 * 32, 320}, Counted{512 + 3 * 32, 3 * 32, 224}},
    // ShadowKV, chunks of 8, 39 past keys: 4 whole chunks of each KV head, of which the last is
    // kept, one is an outlier and 2 compete: 2 heads x 4 x 16; landmarks of 8 elements. Evicted: KV
    // head 0 keeps chunks 1 to 3 (one competes), KV head 1 2 and 3 (none does).
    {"shadowkv:outliers=1,local-chunks=1", kRests, Counted{2 * 4 * 16, 4 * 16, 8 * 16},
     Counted{2 * 1 * 16, 16, 5 * 16}},
    // Two queries of a chunk are enough; in decode the group's sum needs 4 x 16 and 2 KV heads x 3
    // pages x 32.
    {"unique:page-size=8,sink=8,recent=8,n-queries=2,owner=group_sum",
     Counted{128 + 4 * 32, 4 * 32, 320}, Counted{64 + 6 * 32, 6 * 32, 320},
     Counted{128 + 3 * 32, 3 * 32, 224}},
    // XAttention, tiles of 8: 4 heads x 1 x 5 tiles, products of 64 elements; every key is read.
    // Evicted: 4 tiles of KV head 0 and 3 of KV head 1, two heads each. Tiles of 16, padded: 4 x 1
    // x 3 of 128 elements; 3 and 2 are left.
    {"xattention", Counted{20 * 128, 1280, 0}, kRests, Counted{14 * 128, 800, 0}},
    {"xattention-16", Counted{12 * 256, 1280, 0}, kRests, Counted{10 * 256, 800, 0}},
    {"xattention-function", Counted{20 * 128, 1280, 0}, kRests, Counted{14 * 128, 800, 0}},
    // FlexPrefill: all 8 queries vote with exact scores; means of 32 queries and 80 keys, 8 each,
    // and a pair of blocks per head. Without the test of divergence there are no means.
    {"flexprefill", Counted{20480 + 896 + 64, 1280, 0}, kRests, Counted{12800 + 656 + 64, 800, 0}},
    {"flexprefill-frontier", kExactChunk, kRests, kExactEvicted},
    // Skip softmax: one tile holds all keys, and nothing is skipped; the rest is
    // counted in skip_softmax_test.cpp.
    {"skip-softmax", kNothing, kNothing, kNothing},
    // Twilight on everything: 4 heads x 40 keys x 16; codes of 8 channels in 4 bits with scale and
    // zero (2 bytes each) are 8 bytes a key.
    {"twilight:base=full", kRests, Counted{2560, 640, 640}, Counted{1600, 400, 400}},
    // PQCache: tables of 64 centroids of 8 channels for 4 queries, 4096; 2 entries for each of 78
    // past keys and 2 heads that share them. Their codes are 12 bits, centroids 64 x 16 bytes for
    // each KV head; 80 keys are held. With scores in place of weights the 4 queries are added, 32,
    // and 2 KV heads have tables, 2048.
    {"pqcache", kRests, Counted{4096 + 312, 117 + 2048, 120 + 2048},
     Counted{4096 + 192, 72 + 2048, 75 + 2048}},
    {"pqcache-hub", kRests, Counted{4096 + 312, 117 + 2048, 120 + 2048},
     Counted{4096 + 192, 72 + 2048, 75 + 2048}},
    {"pqcache:group=scores", kRests, Counted{32 + 2048 + 156, 117 + 2048, 120 + 2048},
     Counted{32 + 2048 + 96, 72 + 2048, 75 + 2048}},
    {"pqcache:parts=4,bits=4", kRests, Counted{1024 + 624, 156 + 512, 160 + 512},
     Counted{1024 + 384, 96 + 512, 100 + 512}},
    // Clusters: a context of 40 keys has none beside the 4 first and the 64 latest.
    {"retroinfer", kRests, kNothing, kNothing},
    {"doublep", kRests, kNothing, kNothing},
    // One key each, all of them: 32 of each KV head between 3 sinks and the 4 latest. 2 heads x 64
    // products of 16; 64 centroids of 16 bytes are read; those, as many mean values and sizes of 4
    // bytes are held. Evicted: 25 and 15 are left. A quarter of the rest is estimated, which costs
    // another 16 FLOPs a head and 16 bytes each: 16 tokens buy 16 of 32 (16 of 25, 15 of 15); 8 of
    // each KV head follow (6 and none).
    {"retroinfer:keys-per-cluster=1,iterations=0,n-sink=3,n-recent=4,estimate-share=0.25", kRests,
     Counted{2 * 80 * 16, 80 * 16, 64 * 36}, Counted{2 * 46 * 16, 46 * 16, 40 * 36}},
    {"doublep:keys-per-cluster=1,iterations=0,n-sink=3,n-recent=4,refine=1", kRests,
     Counted{2 * 64 * 16, 64 * 16, 64 * 36}, Counted{2 * 40 * 16, 40 * 16, 40 * 36}},
    // RocketKV's second stage: chunks of 4, 2 channels. 4 queries of 8 channels are ranked, 10
    // chunks of each KV head scored by 2 heads; 20 x 2 elements are read, 20 boxes of 16 elements
    // held. Evicted: 8 and 5 chunks.
    {"rocket2", kRests, Counted{32 + 160, 80, 640}, Counted{32 + 104, 52, 416}},
    // With SnapKV, whose 32 voters are the chunk's 8.
    {"rocketkv", kExactChunk, Counted{32 + 160, 80, 640}, kExactEvicted},
    // MagicPIG, 150 tables of 10 bits: 4 queries and 2 keys are hashed, 1500 products each; 78 past
    // codes of 187.5 bytes are read, 80 held, and 1500 projections of 9 elements for each of 2 KV
    // heads. The hub's 75 tables of 8 bits: 600.
    {"magicpig", kRests, Counted{6 * 1500 * 16, 78 * 187.5, 80 * 187.5 + 2 * 1500 * 18},
     Counted{6 * 1500 * 16, 48 * 187.5, 50 * 187.5 + 2 * 1500 * 18}},
    {"magicpig-paper", kRests, Counted{6 * 1500 * 16, 78 * 187.5, 80 * 187.5 + 2 * 1500 * 18},
     Counted{6 * 1500 * 16, 48 * 187.5, 50 * 187.5 + 2 * 1500 * 18}},
    {"magicpig-hub", kRests, Counted{6 * 600 * 16, 78 * 75, 80 * 75 + 2 * 600 * 18},
     Counted{6 * 600 * 16, 48 * 75, 50 * 75 + 2 * 600 * 18}},
    // SOCKET: 4 queries and 2 keys with 720 planes of 8 channels, 60 tables of 4096 chances for
    // each of 4 heads, 60 sums for each of 78 past keys and 2 heads. A key's codes are 90 bytes,
    // the length of its value 2; planes 720 x 16 bytes.
    {"socket", kRests,
     Counted{2 * 6 * 720 * 8 + 4 * 60 * 4096 + 2 * 78 * 60, 78 * 92 + 11520, 80 * 92 + 11520},
     Counted{2 * 6 * 720 * 8 + 4 * 60 * 4096 + 2 * 48 * 60, 48 * 92 + 11520, 50 * 92 + 11520}},
    {"socket-page", kRests,
     Counted{2 * 6 * 720 * 8 + 4 * 60 * 4096 + 2 * 78 * 60, 78 * 92 + 11520, 80 * 92 + 11520},
     Counted{2 * 6 * 720 * 8 + 4 * 60 * 4096 + 2 * 48 * 60, 48 * 92 + 11520, 50 * 92 + 11520}},
    // vAttention on the oracle. Here the windows hold every key: the oracle is asked about none,
    // and each head scores what it sees, 4 x 40 x 16; with evicted keys 30 + 30 + 20 + 20. A base
    // that may choose among all keys scores them first.
    {"vattention", kRests, Counted{2560, 0, 0}, Counted{1600, 0, 0}},
    {"vattention-tight", kRests, Counted{2560, 0, 0}, Counted{1600, 0, 0}},
    {"vattention-loose", kRests, Counted{2560, 0, 0}, Counted{1600, 0, 0}},
    {"vattention:base-from=all", kRests, Counted{2560 + 2560, 1280, 0},
     Counted{1600 + 1600, 800, 0}},
    // F: 2 sinks, the 3 latest keys and one of the base; 34 others, 8 of them in the first sample:
    // 14 scores a head. Evicted, KV head 0: 4 and 26, 6 of these; KV head 1: 4 and 16, 4 of these.
    {"vattention:base=recent,base-budget=tokens=1,n-sink=2,n-recent=3,base-sample=0.25", kRests,
     Counted{4 * 14 * 16, 0, 0}, Counted{2 * 10 * 16 + 2 * 8 * 16, 0, 0}},
    // The indexer, 2 of 8 channels: 6 heads x 8 rows (1 in a step) are mapped, 2 products of 16
    // each; 2 heads of a group x 8 rows x 80 index keys x 4. These are 4 bytes each, read and
    // held. Evicted: 50.
    {"indexer", Counted{1536 + 5120, 320, 320}, Counted{192 + 640, 320, 320},
     Counted{1536 + 3200, 200, 200}},
    // One index key for both KV heads: 4 heads x 8 rows x 40 of them; evicted: 30 positions are
    // left in some head.
    {"indexer:per=layer", Counted{1536 + 5120, 160, 160}, Counted{192 + 640, 160, 160},
     Counted{1536 + 3840, 120, 120}},
    // Blocks of 8: 10 of them, 2 + 4 bytes each; evicted: 4 and 3 hold a key.
    {"indexer:block=8,type=fp8", Counted{1536 + 640, 60, 60}, Counted{192 + 80, 60, 60},
     Counted{1536 + 448, 42, 42}},
    // The presets with learned maps: single keys in fp8; 20 blocks of 4, evicted 8 + 5; single
    // keys; 10 blocks of 8.
    {"dsa:from=fit", Counted{1536 + 5120, 480, 480}, Counted{192 + 640, 480, 480},
     Counted{1536 + 3200, 300, 300}},
    {"qsa:from=fit", Counted{1536 + 1280, 80, 80}, Counted{192 + 160, 80, 80},
     Counted{1536 + 832, 52, 52}},
    {"msa:from=fit", Counted{1536 + 5120, 320, 320}, Counted{192 + 640, 320, 320},
     Counted{1536 + 3200, 200, 200}},
    {"seer:from=fit,block=8", Counted{1536 + 640, 40, 40}, Counted{192 + 80, 40, 40},
     Counted{1536 + 448, 28, 28}},
};

CallShape shape_of(Phase phase) {
  CallShape shape;
  shape.d_head = 8;
  shape.phase = phase;
  shape.n_past = phase == Phase::prefill ? 32 : 39;
  shape.n_tok = phase == Phase::prefill ? 8 : 1;
  shape.layer = 2;
  return shape;
}

SelectCost cost_of(std::string_view spec, CallFixture& fixture) {
  ScoreEngine engine;  // its own: what one keeps goes by the selector's address
  fixture.call.engine = &engine;
  auto selector = selector_registry().make(spec);
  const SelectorCaps caps = selector->caps();
  if (caps.needs_calibration) {
    const MemoryTrace text = calibration_text(fixture.attention());
    ThreadPool pool(1);
    selector->calibrate(text, text.info().layers, pool);
  }
  selector->reset(fixture.attention());
  const bool takes_mass = std::ranges::find(caps.budgets, Budget::Kind::mass) != caps.budgets.end();
  fixture.call.budget = Budget::parse(takes_mass ? "p=0.9" : "tokens=16");
  std::vector<Tensor<float>> drafts;
  drafts.emplace_back(Shape{2, fixture.k.dim(1)});
  std::fill_n(drafts[0].data(), drafts[0].count(), 1.0f);
  if (caps.needs_draft) fixture.call.draft_rows = drafts;
  const Selection selection = selector->select(fixture.call);
  const SelectCost cost = selector->cost(fixture.call, selection);
  fixture.call.draft_rows = {};
  fixture.call.engine = nullptr;
  return cost;
}

void lose_keys(CallFixture& fixture) {
  for (KeyPos pos = 0; pos < 10; ++pos) fixture.alive.kill(0, pos);
  for (KeyPos pos = 0; pos < 20; ++pos) fixture.alive.kill(1, pos);
}

void check_cost(const SelectCost& found, const Counted& expected) {
  CHECK(found.score_flops == Catch::Approx(expected.flops));
  CHECK(found.score_bytes == Catch::Approx(expected.bytes));
  CHECK(found.metadata_bytes == Catch::Approx(expected.held));
}

TEST_CASE("every method and preset has its work counted by hand") {
  const auto has_row = [](std::string_view name) {
    return std::any_of(std::begin(kCases), std::end(kCases), [&](const CostCase& one) {
      return one.spec.substr(0, one.spec.find(':')) == name;
    });
  };
  for (const SelectorEntry& entry : selector_registry().entries()) {
    INFO(entry.name << ": add a row to kCases in tests/core/selectors/cost_test.cpp");
    CHECK(has_row(entry.name));
    for (const auto& [preset, options] : entry.presets) {
      INFO(preset);
      CHECK(has_row(preset));
    }
  }
}

TEST_CASE("a call's FLOPs and bytes are those counted by hand") {
  for (const CostCase& one : kCases) {
    INFO(one.spec);
    CallFixture chunk(shape_of(Phase::prefill));
    CallFixture step(shape_of(Phase::decode));
    const SelectorCaps caps = made(one.spec, chunk)->caps();
    if (one.chunk) {
      INFO("chunk");
      REQUIRE(caps.prefill);
      check_cost(cost_of(one.spec, chunk), *one.chunk);
    }
    if (one.step) {
      INFO("step");
      REQUIRE(caps.decode);
      check_cost(cost_of(one.spec, step), *one.step);
    }
    if (one.evicted) {
      INFO("evicted");
      lose_keys(chunk);
      lose_keys(step);
      check_cost(cost_of(one.spec, caps.prefill ? chunk : step), *one.evicted);
    }
  }
}

TEST_CASE("a layer that reuses Kascade's lists scores nothing") {
  CallFixture fixture(shape_of(Phase::decode));
  fixture.call.budget = Budget::parse("tokens=16");
  const auto selector = made("kascade:anchors=0/2", fixture);
  selector->select(fixture.call);
  fixture.call.layer = 5;
  const Selection selection = selector->select(fixture.call);
  check_cost(selector->cost(fixture.call, selection), kNothing);
}

TEST_CASE("twilight reads the union of what its base keeps for a group") {
  CallFixture fixture(shape_of(Phase::decode));
  fixture.call.budget = Budget::parse("tokens=16");
  const auto base = made("quest:page-size=8", fixture);
  const Selection kept = base->select(fixture.call);
  const TokenRange all = visible_keys(39, std::nullopt);
  double n_scored = 0.0;  // by every query head
  double n_read = 0.0;    // by every KV head
  for (Index kv_head = 0; kv_head < 2; ++kv_head) {
    std::vector<bool> is_read(static_cast<std::size_t>(all.end), false);
    for (const Index q_head : {2 * kv_head, 2 * kv_head + 1}) {
      for (const KeyPos pos : merged(kept.list(q_head, 0))) {
        n_scored += 1.0;
        is_read[pos] = true;
      }
    }
    n_read += static_cast<double>(std::ranges::count(is_read, true));
  }
  REQUIRE(n_read > n_scored / 2.0);  // otherwise the heads agree, and this shows nothing
  fixture.call.budget = Budget::parse("p=0.9");
  const SelectCost cost = cost_of("twilight:base=quest:page-size=8,base-budget=tokens=16", fixture);
  check_cost(cost, {640 + n_scored * 16, 320 + n_read * 8, 320 + 640});
}

}  // namespace kvscope::test::cost_test
