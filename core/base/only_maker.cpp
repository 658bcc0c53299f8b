#include "core/base/only_maker.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>

#include "core/base/error.hpp"

namespace kvscope {

OnlyMaker::OnlyMaker(const std::filesystem::path& output) {
  std::error_code error;
  const std::string whole =
      std::filesystem::weakly_canonical(std::filesystem::absolute(output, error), error).string();
  const std::string name = fmt::format("kvscope output {:016x}", std::hash<std::string>()(whole));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);  // behind a zero: no file
  socket_ = Descriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket_.get() < 0) return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  // What a process that was just killed had forked has its socket longer: a second under load.
  constexpr int kMostTries = 200;
  bool is_taken = true;
  for (int i = 0; is_taken && i < kMostTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) return;
    is_taken = errno == EADDRINUSE;
  }
  socket_.close();
  if (is_taken)
    throw IoError("{}: another process is making it: wait until it ends, or name another --out",
                  output.string());
}

}  // namespace kvscope
