// What the offload operators need of a host store: asynchronous reads and writes of rows. The only read interface there
// is: nobody outside the store looks at its memory.
//
// A store holds records. Record r of layer group g keeps the rows of one token position in all layers of g, next to
// each other; r = store block * block_size + offset in the block. The store of a request's position p is found through
// the request's block table; the operators do that arithmetic.
#pragma once

#include <cstdint>

#include "tidepool/event.h"
#include "tidepool/row_table.h"

namespace tidepool::ops {

// One row to copy between record `record` and row `row` of a tensor of rows on the device.
struct RowCopy {
  int32_t record;
  int32_t row;
};

struct RowTransfer {
  int32_t group = 0;                // layer group
  int32_t layer_in_group = 0;       // which row of the record
  const RowCopy* copies = nullptr;  // [count]; stays valid until the event completes
  int32_t count = 0;                // may be 0: then only the event is finished
  RowPlanes device;                 // destination of a fetch, source of a store
  // The request's status word, set to a RequestStatus (plan_format.h) when any copy fails; never cleared. Other
  // requests are not affected.
  int32_t* status = nullptr;
};

class RowStore {
 public:
  virtual ~RowStore() = default;
  // Both may return before the copies are done, do them in any order, and are called from several threads at once. Each
  // calls done.finish_piece() exactly once, when all copies are in place or have failed. Must not throw.
  virtual void fetch(const RowTransfer& transfer, device::Event& done) = 0;  // host -> device
  virtual void store(const RowTransfer& transfer, device::Event& done) = 0;  // device -> host
  // Names the rows of (group, layer) for the order checker; positions are records.
  virtual uint64_t resource(int32_t group, int32_t layer_in_group) const = 0;
};

}  // namespace tidepool::ops
