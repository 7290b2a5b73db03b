#include "cache/host_store.h"

#include <sys/mman.h>

#include <cstring>

#include "base/check.h"

namespace tidepool::cache {
namespace {

constexpr int32_t kPrefetchAhead = 4;  // records; the gain is flat from 1 to 8 (docs/benchmarks.md)
constexpr int32_t kLineBytes = 64;

void prefetch_row(const std::byte* row, int32_t bytes) {
  for (int32_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(row + i);
}

}  // namespace

int64_t host_block_bytes(const HostStoreOptions& options) {
  int64_t bytes = 0;
  for (int32_t layers : options.layers_of_group) {
    bytes += RecordLayout::in_memory(layers, options.format.row_bytes()).bytes(options.block_size);
  }
  return bytes;
}

MemoryHostStore::MemoryHostStore(const HostStoreOptions& options) : options_(options) {
  constexpr size_t kHugePage = size_t{2} << 20;
  mapped_bytes_ = static_cast<size_t>(round_up(host_block_bytes(options) * options.num_blocks, kHugePage)) + kHugePage;
  void* memory =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  tidepool_check(memory != MAP_FAILED, "host store: the machine refuses {} bytes of memory", mapped_bytes_);
  memory_ = static_cast<std::byte*>(memory);
  madvise(memory_, mapped_bytes_, MADV_HUGEPAGE);
  std::byte* next = memory_;
  for (int32_t layers : options.layers_of_group) {
    layouts_.push_back(RecordLayout::in_memory(layers, options.format.row_bytes()));
    bases_.push_back(next);
    next += layouts_.back().bytes(static_cast<int64_t>(options.num_blocks) * options.block_size);
  }
}

MemoryHostStore::~MemoryHostStore() { munmap(memory_, mapped_bytes_); }

std::byte* MemoryHostStore::row(int32_t group, int32_t record, int32_t layer_in_group) const {
  const auto g = static_cast<size_t>(group);
  return bases_[g] + layouts_[g].offset(record) + static_cast<int64_t>(layer_in_group) * options_.format.row_bytes();
}

void MemoryHostStore::fetch(const ops::RowTransfer& t, device::Event& done) {
  const auto latent = static_cast<size_t>(t.device.latent.bytes), rope = static_cast<size_t>(t.device.rope.bytes);
  for (int32_t i = 0; i < t.count; ++i) {
    if (i + kPrefetchAhead < t.count) {
      prefetch_row(row(t.group, t.copies[i + kPrefetchAhead].record, t.layer_in_group), options_.format.row_bytes());
    }
    const std::byte* source = row(t.group, t.copies[i].record, t.layer_in_group);
    std::memcpy(t.device.latent.row(t.copies[i].row), source, latent);
    std::memcpy(t.device.rope.row(t.copies[i].row), source + latent, rope);
  }
  done.finish_piece();
}

void MemoryHostStore::store(const ops::RowTransfer& t, device::Event& done) {
  const auto latent = static_cast<size_t>(t.device.latent.bytes), rope = static_cast<size_t>(t.device.rope.bytes);
  for (int32_t i = 0; i < t.count; ++i) {
    std::byte* destination = row(t.group, t.copies[i].record, t.layer_in_group);
    std::memcpy(destination, t.device.latent.row(t.copies[i].row), latent);
    std::memcpy(destination + latent, t.device.rope.row(t.copies[i].row), rope);
  }
  done.finish_piece();
}

uint64_t MemoryHostStore::resource(int32_t group, int32_t layer_in_group) const {
  return (uint64_t{1} << 32) + static_cast<uint64_t>(group) * 4096 + static_cast<uint64_t>(layer_in_group);
}

}  // namespace tidepool::cache
