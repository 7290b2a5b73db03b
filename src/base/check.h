// Checks of contracts. tidepool_check throws tidepool::Error with a formatted sentence (fmt syntax); it is for the
// boundary of a layer and always on. Inside a layer use assert.
#pragma once

#include <fmt/format.h>

#include "tidepool/error.h"

namespace tidepool::base {

template <typename... Args>
[[noreturn]] void fail(std::source_location where, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), where);
}

}  // namespace tidepool::base

#define tidepool_check(condition, ...)                                                      \
  do {                                                                                      \
    if (!(condition)) ::tidepool::base::fail(std::source_location::current(), __VA_ARGS__); \
  } while (false)

#define tidepool_fail(...) ::tidepool::base::fail(std::source_location::current(), __VA_ARGS__)
