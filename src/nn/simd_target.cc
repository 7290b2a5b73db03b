#include "nn/simd_target.h"

#include "nn/cpu/simd.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include "base/check.h"

namespace tidepool::nn {
namespace {

std::string lower_name(int64_t target) {
  std::string name = hwy::TargetName(target);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

// Bits of the targets that are compiled and that the machine has, restriction or not; lower bits are better.
int64_t runnable_targets() {
  static const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}

int64_t g_forced = 0;  // 0: no restriction

}  // namespace

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (int64_t rest = runnable_targets(); rest != 0; rest &= rest - 1) names.push_back(lower_name(rest & -rest));
  return names;
}

std::string simd_target() {
  const int64_t targets = g_forced != 0 ? g_forced : runnable_targets();
  return lower_name(targets & -targets);
}

void force_simd_target(const std::string& name) {
  const int64_t runnable = runnable_targets();  // before any restriction
  int64_t chosen = 0;
  for (int64_t rest = runnable; rest != 0 && !name.empty(); rest &= rest - 1) {
    if (lower_name(rest & -rest) == name) chosen = rest & -rest;
  }
  tidepool_check(name.empty() || chosen != 0, "SIMD target \"{}\" is not one that this machine can run", name);
  g_forced = chosen;
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace tidepool::nn
