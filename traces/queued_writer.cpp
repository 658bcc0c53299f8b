#include "traces/queued_writer.hpp"

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/trace/result.hpp"

namespace kvscope {

namespace {

/// Copies of views, with their memory.
class Copies {
 public:
  template <class T>
  TensorView<const T> of(TensorView<const T> view) {
    if (view.empty()) return view;
    T* const first =
        reinterpret_cast<T*>(room(static_cast<std::size_t>(view.shape().count()) * sizeof(T)));
    T* to = first;
    for_each_row(view, [&](const T* row) { to = std::copy_n(row, view.dim(view.rank() - 1), to); });
    return {first, view.shape()};
  }
  TypedRows of(TypedRows rows) { return {rows.dtype(), of(rows.bytes())}; }
  std::size_t n_bytes() const { return n_bytes_; }

 private:
  std::byte* room(std::size_t n_bytes) {
    memory_.push_back(Tensor<std::byte>::uninitialized({static_cast<Index>(n_bytes)}));
    n_bytes_ += n_bytes;
    return memory_.back().data();
  }
  std::vector<Tensor<std::byte>> memory_;
  std::size_t n_bytes_ = 0;
};

class QueuedWriter final : public TraceReceiver {
 public:
  QueuedWriter(std::unique_ptr<CountingReceiver> writer, std::size_t most_bytes)
      : writer_(std::move(writer)), most_bytes_(most_bytes) {}
  ~QueuedWriter() override { end_thread(); }

  void begin(const TraceInfo& info) override {
    writer_->begin(info);
    n_committed_ = writer_->n_committed();  // of an earlier run
    n_forward_calls_ = static_cast<Index>(n_committed_);
    thread_ = std::thread([this] { work(); });
  }
  void announce_prompt(std::span<const TokenId> ids) override {
    put(0, [ids = std::vector(ids.begin(), ids.end())](TraceReceiver& to) {
      to.announce_prompt(ids);
    });
  }
  void write(const CallRows& rows) override {
    CallRows kept = rows;
    auto copies = std::make_shared<Copies>();
    if (rows.memory == nullptr) {
      for (ArrayRows& array : kept.arrays)
        std::visit([&](auto& view) { view = copies->of(view); }, array.rows);
    }
    put(copies->n_bytes(), [copies, kept](TraceReceiver& to) { to.write(kept); });
  }
  void write_tokens(std::span<const TokenId> ids, std::span<const std::string> bytes) override {
    put(0, [ids = std::vector(ids.begin(), ids.end()),
            bytes = std::vector(bytes.begin(), bytes.end())](TraceReceiver& to) {
      to.write_tokens(ids, bytes);
    });
  }
  void write_moved_scores(std::span<const float> by_layer) override {
    put(0, [kept = std::vector(by_layer.begin(), by_layer.end())](TraceReceiver& to) {
      to.write_moved_scores(kept);
    });
  }
  void commit_call() override {
    put(0, [](TraceReceiver& to) { to.commit_call(); });
    ++n_forward_calls_;
  }
  void finish(TraceStatus status) override {
    wait();
    {
      const std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
    }
    end_thread();
    writer_->finish(status);
  }
  Index n_waiting_calls() const override {
    const std::lock_guard lock(mutex_);
    return n_forward_calls_ - static_cast<Index>(n_committed_);
  }
  std::int64_t bytes_written() const override {
    wait();
    return writer_->bytes_written();
  }
  std::string content_hash() const override { return writer_->content_hash(); }
  std::string recovery_hint() const override {
    wait();
    return writer_->recovery_hint();
  }

 private:
  struct Write {
    std::function<void(TraceReceiver&)> run;
    std::size_t n_bytes = 0;
  };

  void put(std::size_t n_bytes, std::function<void(TraceReceiver&)> run) {
    std::unique_lock lock(mutex_);
    is_done_.wait(lock,
                  [&] { return error_ || n_bytes_ == 0 || n_bytes_ + n_bytes <= most_bytes_; });
    if (error_) std::rethrow_exception(error_);
    if (!thread_.joinable()) {  // before begin() or after finish(): it says so
      lock.unlock();
      return run(*writer_);
    }
    n_bytes_ += n_bytes;
    writes_.push_back({std::move(run), n_bytes});
    has_writes_.notify_one();
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      has_writes_.wait(lock, [&] { return !writes_.empty() || is_ending_; });
      if (writes_.empty()) return;
      {
        const Write write = std::move(writes_.front());
        writes_.pop_front();
        is_busy_ = true;
        lock.unlock();
        std::exception_ptr error;
        try {
          write.run(*writer_);
        } catch (...) {
          error = std::current_exception();
        }
        lock.lock();
        n_bytes_ -= write.n_bytes;
        n_committed_ = writer_->n_committed();
        if (error) {
          error_ = error;
          n_bytes_ = 0;
          dropped_.swap(writes_);
        }
      }
      if (!dropped_.empty()) {
        lock.unlock();
        dropped_.clear();  // their memory goes back to whoever waits for it
        lock.lock();
      }
      is_busy_ = false;
      is_done_.notify_all();
    }
  }

  /// Until nothing waits.
  void wait() const {
    std::unique_lock lock(mutex_);
    is_done_.wait(lock, [&] { return writes_.empty() && !is_busy_; });
  }

  void end_thread() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    has_writes_.notify_one();
    thread_.join();
  }

  std::unique_ptr<CountingReceiver> writer_;
  std::size_t most_bytes_;
  Index n_forward_calls_ = 0;  // of commit_call()
  mutable std::mutex mutex_;
  mutable std::condition_variable has_writes_, is_done_;
  std::deque<Write> writes_, dropped_;
  std::size_t n_bytes_ = 0;  // copied
  std::size_t n_committed_ = 0;
  std::exception_ptr error_;
  bool is_busy_ = false;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<TraceReceiver> queued(std::unique_ptr<CountingReceiver> writer,
                                      std::size_t most_bytes) {
  return std::make_unique<QueuedWriter>(std::move(writer), most_bytes);
}

}  // namespace kvscope
