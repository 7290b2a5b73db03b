// Calls a generic function with the policy of a kind: the one place where a kind becomes a type.
#pragma once

#include <utility>

#include "policy/fifo.h"

namespace tidepool::policy {

// function(Fifo{}) etc.; all policies must give the same result type. The kind was checked where it came in.
template <typename Function>
constexpr decltype(auto) visit(Kind kind, Function&& function) {
  switch (kind) {
    case Kind::kFifo:
      break;
  }
  return std::forward<Function>(function)(Fifo{});
}

}  // namespace tidepool::policy
