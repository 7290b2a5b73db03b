#include "policy/policy.h"

#include "base/check.h"
#include "policy/visit.h"

namespace tidepool::policy {
namespace {

constexpr const char* kAvailable = "fifo";
constexpr std::string_view kLater[] = {"fifo-skip", "clock", "lru"};

}  // namespace

Kind kind_of(std::string_view name) {
  if (name == Fifo::kName) return Fifo::kKind;
  for (std::string_view later : kLater) {
    tidepool_check(name != later, "replacement policy '{}' is not available yet; available: {}", name, kAvailable);
  }
  tidepool_fail("unknown replacement policy '{}'; available: {}", name, kAvailable);
}

const char* name_of(Kind kind) {
  return visit(kind, [](auto policy) { return decltype(policy)::kName; });
}

Kind checked_kind(int32_t number) {
  tidepool_check(number == static_cast<int32_t>(Kind::kFifo),
                 "replacement policy number {} is unknown; available: {} ({})", number, kAvailable,
                 static_cast<int32_t>(Kind::kFifo));
  return static_cast<Kind>(number);
}

}  // namespace tidepool::policy
