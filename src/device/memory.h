// Device memory of the CPU backend: an arena of fixed size. The only way to get device memory, so its budget is hard.
//
// Everything is allocated while a cache or model is built and freed together; there is no free of a part.
// Thread safety: allocate from one thread. Errors: asking for more than is left throws, naming the arena, the
// allocation, its bytes, what is left and the budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tidepool::device {

enum class Guard { kNone, kProtected };

class Arena {
 public:
  struct Allocation {
    std::string what;
    std::byte* base;
    uint64_t bytes;
  };
  struct Range {
    const void* base;
    uint64_t bytes;
    bool writable;
  };

  // Reserves budget_bytes of zeroed memory (pages come when first touched; 2 MiB pages are asked for). `name` is for
  // errors. With Guard::kProtected every allocation starts on a page of its own and stays inaccessible (PROT_NONE) but
  // while an operation that declared it runs: any other look at it is a fault.
  Arena(std::string name, uint64_t budget_bytes, Guard guard = Guard::kNone);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zeroed, aligned to 64 bytes (to a page when protected). Counts `bytes` rounded up to 64 against the budget.
  std::byte* allocate(uint64_t bytes, const std::string& what);
  template <typename T>
  T* allocate_array(uint64_t count, const std::string& what) {
    const uint64_t bytes = count > UINT64_MAX / sizeof(T) ? UINT64_MAX : count * sizeof(T);  // refused, not wrapped
    return reinterpret_cast<T*>(allocate(bytes, what));
  }

  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t budget_bytes() const { return budget_bytes_; }
  bool contains(const void* p) const { return p >= base_ && p < base_ + mapped_bytes_; }
  Guard guard() const { return guard_; }
  const std::vector<Allocation>& allocations() const { return allocations_; }
  // The allocation that an address lies in; null when none.
  const Allocation* allocation_of(const void* p) const;

  // For the executor and for tests that must look; no-ops when not protected. Page granular; under AddressSanitizer
  // exact bytes are unpoisoned / poisoned as well. Requires ranges inside one allocation each. Makes exactly `ranges`
  // accessible. Bytes that were open and stay open are never closed in between (a copy may be in flight to them). A
  // range that is both readable and writable is writable.
  void set_open(const std::vector<Range>& ranges);
  // Opens a range as well (base null: every allocation). The executor closes it again after its next operation.
  void open(const void* base, uint64_t bytes, bool writable);
  void close_all() { set_open({}); }
  void open_all() { open(nullptr, 0, true); }

 private:
  void map();
  void protect_pages(size_t first_page, size_t end_page);
  void poison_difference(const std::vector<Range>& ranges);

  std::string name_;
  uint64_t budget_bytes_;
  Guard guard_;
  std::byte* base_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  uint64_t offset_ = 0;
  uint64_t used_bytes_ = 0;
  std::vector<Allocation> allocations_;  // ascending base
  // Protected arenas only:
  std::vector<Range> opened_;
  std::vector<uint8_t> page_access_;  // [pages] 0 closed, 1 readable, 2 writable
  std::vector<uint8_t> page_wanted_;  // [pages] scratch; equals page_access_ between calls
};

}  // namespace tidepool::device
