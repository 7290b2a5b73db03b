// The host store: every row of every layer of every request, in group-interleaved records (geometry.h RecordLayout).
//
// Readable only through ops::RowStore::fetch. Which blocks belong to whom is the KvCache's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cache/geometry.h"
#include "tidepool/ops/row_store.h"

namespace tidepool::cache {

struct HostStoreOptions {
  std::vector<int32_t> layers_of_group;  // [num_groups]
  RowFormat format;
  int32_t num_blocks = 0;
  int32_t block_size = 0;  // tokens
};

// Bytes of one block in all groups, as MemoryHostStore lays it out.
int64_t host_block_bytes(const HostStoreOptions& options);

class MemoryHostStore : public ops::RowStore {
 public:
  // Reserves num_blocks x host_block_bytes of anonymous memory (touched when first written; 2 MiB pages asked for).
  // Throws Error when the machine refuses.
  explicit MemoryHostStore(const HostStoreOptions& options);
  ~MemoryHostStore() override;

  void fetch(const ops::RowTransfer& transfer, device::Event& done) override;
  void store(const ops::RowTransfer& transfer, device::Event& done) override;
  uint64_t resource(int32_t group, int32_t layer_in_group) const override;

 private:
  std::byte* row(int32_t group, int32_t record, int32_t layer_in_group) const;

  HostStoreOptions options_;
  std::vector<RecordLayout> layouts_;
  std::vector<std::byte*> bases_;  // [num_groups]
  std::byte* memory_ = nullptr;
  size_t mapped_bytes_ = 0;
};

// Wraps the store the cache made (tests: delays, reorders, fails); null: keep it.
using StoreDecorator = std::function<std::unique_ptr<ops::RowStore>(std::unique_ptr<ops::RowStore>)>;

}  // namespace tidepool::cache
