#include "device/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define tidepool_address_sanitizer 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define tidepool_address_sanitizer 1
#endif
#endif
#ifdef tidepool_address_sanitizer
#include <sanitizer/asan_interface.h>
#endif

namespace tidepool::device {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kHugePage = 2u << 20;
constexpr uint64_t kMaxProtectedAllocations = 1u << 16;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }
uint64_t page_size() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }
uint64_t address_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

void poison([[maybe_unused]] uint64_t begin, [[maybe_unused]] uint64_t end) {
#ifdef tidepool_address_sanitizer
  if (begin < end) __asan_poison_memory_region(reinterpret_cast<void*>(begin), end - begin);
#endif
}

void unpoison([[maybe_unused]] uint64_t begin, [[maybe_unused]] uint64_t end) {
#ifdef tidepool_address_sanitizer
  if (begin < end) __asan_unpoison_memory_region(reinterpret_cast<void*>(begin), end - begin);
#endif
}

}  // namespace

Arena::Arena(std::string name, uint64_t budget_bytes, Guard guard)
    : name_(std::move(name)), budget_bytes_(budget_bytes), guard_(guard) {
  tidepool_check(budget_bytes <= uint64_t{1} << 46, "arena '{}': a budget of {} bytes is beyond any address space",
                 name_, budget_bytes);
  map();
}

Arena::~Arena() {
  if (guard_ == Guard::kProtected) {
    for (const Allocation& a : allocations_)
      unpoison(address_of(a.base), address_of(a.base) + round_up(a.bytes, page_size()));
  }
  munmap(base_, mapped_bytes_);
}

void Arena::map() {
  const bool guarded = guard_ == Guard::kProtected;
  // Guarded: addresses for a guard page after each allocation and its rounding up to a page; they cost no memory.
  mapped_bytes_ = guarded ? round_up(budget_bytes_, page_size()) + 2 * kMaxProtectedAllocations * page_size()
                          : round_up(std::max<uint64_t>(budget_bytes_, 1), kHugePage);
  const uint64_t slack = guarded ? 0 : kHugePage;
  void* mapped = mmap(nullptr, mapped_bytes_ + slack, guarded ? PROT_NONE : PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  tidepool_check(mapped != MAP_FAILED, "arena '{}': cannot reserve {} bytes: {}", name_, mapped_bytes_,
                 std::strerror(errno));
  base_ = static_cast<std::byte*>(mapped);
  if (guarded) {
    page_access_.assign(mapped_bytes_ / page_size(), 0);
    page_wanted_ = page_access_;
    return;
  }
  // Start on a huge page; give back what lies before and behind.
  const uint64_t before = round_up(address_of(base_), kHugePage) - address_of(base_);
  if (before > 0) munmap(base_, before);
  if (before < slack) munmap(base_ + before + mapped_bytes_, slack - before);
  base_ += before;
  madvise(base_, mapped_bytes_, MADV_HUGEPAGE);  // a wish; a kernel without huge pages refuses it
}

std::byte* Arena::allocate(uint64_t bytes, const std::string& what) {
  const uint64_t left = budget_bytes_ - used_bytes_;
  tidepool_check(bytes <= left && round_up(bytes, kLine) <= left,
                 "arena '{}': '{}' needs {} bytes, but {} of its budget of {} bytes are left", name_, what, bytes, left,
                 budget_bytes_);
  std::byte* const result = base_ + offset_;
  if (guard_ == Guard::kProtected) {
    tidepool_check(allocations_.size() < kMaxProtectedAllocations,
                   "arena '{}': '{}' is one of more than {} allocations", name_, what, kMaxProtectedAllocations);
    const uint64_t pages_bytes = round_up(std::max<uint64_t>(bytes, 1), page_size());
    offset_ += pages_bytes + page_size();
    poison(address_of(result), address_of(result) + pages_bytes);
  } else {
    offset_ += round_up(bytes, kLine);
  }
  used_bytes_ += round_up(bytes, kLine);
  allocations_.push_back({what, result, bytes});
  return result;
}

const Arena::Allocation* Arena::allocation_of(const void* p) const {
  auto after = std::upper_bound(allocations_.begin(), allocations_.end(), p,
                                [](const void* q, const Allocation& a) { return q < a.base; });
  while (after != allocations_.begin()) {
    const Allocation& a = *--after;
    if (p < a.base + a.bytes) return &a;
    if (a.bytes > 0) break;  // empty allocations share their address with the next one
  }
  return nullptr;
}

void Arena::open(const void* base, uint64_t bytes, bool writable) {
  if (guard_ != Guard::kProtected) return;
  std::vector<Range> ranges = opened_;
  if (base != nullptr) {
    ranges.push_back({base, bytes, writable});
  } else {
    for (const Allocation& a : allocations_) ranges.push_back({a.base, a.bytes, writable});
  }
  set_open(ranges);
}

void Arena::set_open(const std::vector<Range>& ranges) {
  if (guard_ != Guard::kProtected) return;
  size_t first = page_access_.size(), end = 0;
  const auto want = [&](const Range& range, bool open) {
    if (range.bytes == 0) return;
    const uint64_t offset = address_of(range.base) - address_of(base_);
    const size_t first_page = offset / page_size(), end_page = (offset + range.bytes - 1) / page_size() + 1;
    first = std::min(first, first_page);
    end = std::max(end, end_page);
    const uint8_t access = !open ? 0 : range.writable ? 2 : 1;
    for (size_t page = first_page; page < end_page; ++page) {
      page_wanted_[page] = open ? std::max(page_wanted_[page], access) : access;
    }
  };
  for (const Range& range : ranges) {
    const Allocation* a = allocation_of(range.base);
    tidepool_check(range.bytes == 0 ||
                       (a != nullptr && static_cast<const std::byte*>(range.base) + range.bytes <= a->base + a->bytes),
                   "arena '{}': the range of {} bytes at {} is not inside one allocation", name_, range.bytes,
                   range.base);
  }
  for (const Range& range : opened_) want(range, false);
  for (const Range& range : ranges) want(range, true);
  protect_pages(first, end);
  poison_difference(ranges);
  opened_ = ranges;
}

void Arena::protect_pages(size_t first_page, size_t end_page) {
  for (size_t page = first_page; page < end_page;) {
    size_t run_end = page;
    while (run_end < end_page && page_wanted_[run_end] == page_wanted_[page] &&
           page_wanted_[run_end] != page_access_[run_end]) {
      page_access_[run_end] = page_wanted_[run_end];
      ++run_end;
    }
    if (run_end == page) {
      ++page;
      continue;
    }
    constexpr int kProtections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE};
    const int failed =
        mprotect(base_ + page * page_size(), (run_end - page) * page_size(), kProtections[page_access_[page]]);
    tidepool_check(failed == 0, "arena '{}': cannot change the protection of pages: {}", name_, std::strerror(errno));
    page = run_end;
  }
}

void Arena::poison_difference([[maybe_unused]] const std::vector<Range>& ranges) {
#ifdef tidepool_address_sanitizer
  std::vector<std::pair<uint64_t, uint64_t>> open;  // sorted, disjoint
  for (const Range& r : ranges) open.emplace_back(address_of(r.base), address_of(r.base) + r.bytes);
  std::sort(open.begin(), open.end());
  size_t merged = 0;
  for (const auto& range : open) {
    if (merged > 0 && range.first <= open[merged - 1].second) {
      open[merged - 1].second = std::max(open[merged - 1].second, range.second);
    } else {
      open[merged++] = range;
    }
  }
  open.resize(merged);
  for (const Range& r : opened_) {
    uint64_t begin = address_of(r.base);
    const uint64_t end = begin + r.bytes;
    auto next =
        std::partition_point(open.begin(), open.end(), [&](const auto& range) { return range.second <= begin; });
    for (; next != open.end() && next->first < end; ++next) {
      poison(begin, next->first);
      begin = next->second;
    }
    poison(begin, end);
  }
  for (const auto& [begin, end] : open) unpoison(begin, end);
#endif
}

}  // namespace tidepool::device
