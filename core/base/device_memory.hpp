// The error of a device (a GPU) without memory, apart from others since the same may do later.
#pragma once

#include "core/base/error.hpp"

namespace kvscope {

/// A device has no memory for this beside what lies there now. What other work holds may come back.
class DeviceMemoryError : public Error {
 public:
  using Error::Error;
};

}  // namespace kvscope
