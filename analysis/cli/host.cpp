#include "analysis/cli/host.hpp"

#include <atomic>

namespace kvscope::cli {

namespace {

std::atomic<Host*> current_host{nullptr};

}  // namespace

Host* host() {
  return current_host.load();
}

HostScope::HostScope(Host& host) {
  current_host.store(&host);
}

HostScope::~HostScope() {
  current_host.store(nullptr);
}

}  // namespace kvscope::cli
