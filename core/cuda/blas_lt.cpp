#include "core/cuda/blas_lt.hpp"

#include <dlfcn.h>

#include <array>
#include <string>

namespace kvscope::gpu {

namespace {

// The part of cublasLt.h that is used here, as CUDA 12 and 13 have it: the library's interface of C
// functions is stable, and its header is in a package of its own that need not be there.
using Status = int;
constexpr std::int32_t kComputeF32 = 68;   // CUBLAS_COMPUTE_32F
constexpr std::int32_t kTypeF32 = 0;       // CUDA_R_32F
constexpr std::int32_t kTypeBf16 = 14;     // CUDA_R_16BF
constexpr std::int32_t kTransposed = 1;    // CUBLAS_OP_T
constexpr int kAttributeTransA = 3;        // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int kPreferWorkspace = 1;        // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int kPreferReductions = 3;       // CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
constexpr std::uint32_t kNoReduction = 0;  // CUBLASLT_REDUCTION_SCHEME_NONE

struct MatmulAlgo {  // cublasLtMatmulAlgo_t
  std::uint64_t data[8];
};
struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
  MatmulAlgo algo;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

std::string matrix_text(const DeviceMatrix& matrix) {
  return "a matrix of " + std::to_string(matrix.n_rows) + " by " + std::to_string(matrix.n_cols);
}

}  // namespace

struct BlasLt::Algorithm {
  MatmulAlgo algo;
};

struct BlasLt::Library {
  void* file = nullptr;
  Status (*create)(void**) = nullptr;
  Status (*destroy)(void*) = nullptr;
  Status (*product_create)(void**, int, int) = nullptr;
  Status (*product_destroy)(void*) = nullptr;
  Status (*product_set)(void*, int, const void*, std::size_t) = nullptr;
  Status (*layout_create)(void**, int, std::uint64_t, std::uint64_t, std::int64_t) = nullptr;
  Status (*layout_destroy)(void*) = nullptr;
  Status (*preference_create)(void**) = nullptr;
  Status (*preference_destroy)(void*) = nullptr;
  Status (*preference_set)(void*, int, const void*, std::size_t) = nullptr;
  Status (*heuristic)(void*, void*, void*, void*, void*, void*, void*, int, HeuristicResult*,
                      int*) = nullptr;
  Status (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                   const void*, void*, void*, void*, const MatmulAlgo*, void*, std::size_t,
                   StreamHandle) = nullptr;

  Library() {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
      file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (file != nullptr) break;
    }
    if (file == nullptr) {
      const char* why = dlerror();
      throw DeviceError(
          std::string("products in bf16 on the GPU need NVIDIA's cuBLASLt: expected "
                      "libcublasLt.so.13 or .12 where the loader looks (LD_LIBRARY_PATH), found "
                      "neither (") +
          (why == nullptr ? "unknown" : why) + "); --matmul f32 does without it");
    }
    find("cublasLtCreate", create);
    find("cublasLtDestroy", destroy);
    find("cublasLtMatmulDescCreate", product_create);
    find("cublasLtMatmulDescDestroy", product_destroy);
    find("cublasLtMatmulDescSetAttribute", product_set);
    find("cublasLtMatrixLayoutCreate", layout_create);
    find("cublasLtMatrixLayoutDestroy", layout_destroy);
    find("cublasLtMatmulPreferenceCreate", preference_create);
    find("cublasLtMatmulPreferenceDestroy", preference_destroy);
    find("cublasLtMatmulPreferenceSetAttribute", preference_set);
    find("cublasLtMatmulAlgoGetHeuristic", heuristic);
    find("cublasLtMatmul", matmul);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  // The file stays open: the library keeps threads and memory of its own.

 private:
  template <class Function>
  void find(const char* name, Function& function) {
    void* const found = dlsym(file, name);
    if (found == nullptr)
      throw DeviceError(std::string("libcublasLt has no function ") + name +
                        ", expected the library of CUDA 12 or 13");
    function = reinterpret_cast<Function>(found);
  }
};

namespace {

void check_status(Status status, const std::string& what) {
  if (status != 0)
    throw DeviceError("cuBLASLt could not " + what + " (status " + std::to_string(status) + ")");
}

}  // namespace

BlasLt::BlasLt()
    : library_(std::make_shared<const Library>()),
      workspace_(kWorkspaceBytes, "the workspace of products") {
  check_status(library_->create(&handle_), "start");
  Status made = library_->product_create(&product_, kComputeF32, kTypeF32);
  if (made == 0) {
    made = library_->product_set(product_, kAttributeTransA, &kTransposed, sizeof(kTransposed));
    if (made != 0) library_->product_destroy(product_);
  }
  if (made != 0) library_->destroy(handle_);  // no destructor runs
  check_status(made, "describe products");
}

BlasLt::~BlasLt() {
  library_->product_destroy(product_);
  library_->destroy(handle_);
}

namespace {

// cuBLAS counts columns first: y^T [n_rows, n_tok] = matrix [n_cols, n_rows]^T x^T [n_cols, n_tok].
template <class Library>
struct Layouts {
  Layouts(const Library& from, const DeviceMatrix& matrix, std::int64_t x_stride,
          std::int64_t y_stride, int n_tok)
      : library(from) {
    const auto n_rows = static_cast<std::uint64_t>(matrix.n_rows);
    const auto n_cols = static_cast<std::uint64_t>(matrix.n_cols);
    const auto tokens = static_cast<std::uint64_t>(n_tok);
    Status status = library.layout_create(&weights, kTypeBf16, n_cols, n_rows, matrix.n_cols);
    if (status == 0) status = library.layout_create(&x, kTypeBf16, n_cols, tokens, x_stride);
    if (status == 0) status = library.layout_create(&y, kTypeF32, n_rows, tokens, y_stride);
    if (status != 0) release();
    check_status(status, "describe " + matrix_text(matrix));
  }
  ~Layouts() { release(); }
  Layouts(const Layouts&) = delete;
  Layouts& operator=(const Layouts&) = delete;
  void release() {
    for (void* layout : {weights, x, y}) {
      if (layout != nullptr) library.layout_destroy(layout);
    }
  }
  const Library& library;
  void* weights = nullptr;
  void* x = nullptr;
  void* y = nullptr;
};

}  // namespace

const BlasLt::Algorithm& BlasLt::algorithm_for(const DeviceMatrix& matrix, std::int64_t x_stride,
                                               std::int64_t y_stride) {
  const std::pair key{std::pair{matrix.n_rows, matrix.n_cols}, std::pair{x_stride, y_stride}};
  const auto found = algorithms_.find(key);
  if (found != algorithms_.end()) return found->second;
  const Layouts<Library> layouts(*library_, matrix, x_stride, y_stride, kTypicalTokens);
  void* preference = nullptr;
  check_status(library_->preference_create(&preference), "choose an algorithm");
  std::size_t workspace = kWorkspaceBytes;
  HeuristicResult result = {};
  int n_found = 0;
  Status status =
      library_->preference_set(preference, kPreferWorkspace, &workspace, sizeof(workspace));
  if (status == 0)
    status = library_->preference_set(preference, kPreferReductions, &kNoReduction,
                                      sizeof(kNoReduction));
  if (status == 0)
    status = library_->heuristic(handle_, product_, layouts.weights, layouts.x, layouts.y,
                                 layouts.y, preference, 1, &result, &n_found);
  library_->preference_destroy(preference);
  check_status(status, "choose an algorithm for " + matrix_text(matrix));
  if (n_found == 0)
    throw DeviceError("cuBLASLt has no algorithm for " + matrix_text(matrix) +
                      " in bf16; --matmul f32 does without it");
  return algorithms_.emplace(key, Algorithm{result.algo}).first->second;
}

void BlasLt::multiply(const DeviceMatrix& matrix, const void* x, std::int64_t x_stride, float* y,
                      std::int64_t y_stride, int n_tok, StreamHandle stream) {
  const Algorithm& algorithm = algorithm_for(matrix, x_stride, y_stride);
  const Layouts<Library> layouts(*library_, matrix, x_stride, y_stride, n_tok);
  const float one = 1.0f;
  const float zero = 0.0f;
  check_status(library_->matmul(handle_, product_, &one, matrix.data, layouts.weights, x, layouts.x,
                                &zero, y, layouts.y, y, layouts.y, &algorithm.algo,
                                workspace_.data(), kWorkspaceBytes, stream),
               "multiply by " + matrix_text(matrix));
}

}  // namespace kvscope::gpu
