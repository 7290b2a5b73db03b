// The operators of sparse attention: grids, declared accesses, costs. The arithmetic is in ref/ and cpu/.
#include "nn/sparse_attention.h"

#include <algorithm>

#include "nn/attention_walk.h"
#include "nn/shared_rows.h"

namespace tidepool::nn {
namespace {

using Params = SparseAttentionParams;

size_t floats(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

int32_t num_whole_pieces(const Params& p) { return p.rows.count() * num_head_groups(p); }

int32_t longest_list(const Params& p, int32_t begin, int32_t end) {
  int32_t longest = 0;
  for (int32_t m = begin; m < end; ++m) longest = std::max(longest, p.num_selected[m]);
  return longest;
}

bool reads_positions(const Params& p) { return run_len(p) > 1 && p.positions != nullptr; }

int32_t num_split_pieces(const Params& p) {
  const int32_t longest = longest_list(p, p.rows.begin(), p.rows.end());
  return num_runs(p) * num_head_groups(p) * num_list_blocks(longest);
}

void declare_counts(const Params& p, device::AccessList& list) {
  list.read(p.rows.range, 2 * sizeof(int32_t));
  if (p.rows.count() <= 0) return;
  list.read(p.num_selected + p.rows.begin(), static_cast<size_t>(p.rows.count()) * sizeof(int32_t));
}

// Which rows are listed is computed in the step itself: declared are all rows of the places that may be named.
void declare_places(const Params& p, device::AccessList& list) {
  for (const RowPlanes& planes : p.places.planes) {
    if (planes.rows <= 0) continue;
    for (const RowPlane& plane : {planes.latent, planes.rope}) {
      list.read(plane.base, static_cast<size_t>((planes.rows - 1) * plane.stride + plane.bytes));
    }
  }
}

void declare_inputs(const Params& p, device::AccessList& list) {
  const int64_t width = p.format.latent_values + p.format.rope_values, count = p.rows.count();
  if (count <= 0) return;
  list.read(query_of(p, p.rows.begin(), 0), floats(count * p.num_heads * width));
  list.read(row_list(p, p.rows.begin()), static_cast<size_t>(count * p.topk) * sizeof(RowLocation));
  declare_places(p, list);
}

// For every step the rows behind the last are declared too, as by who reads them: nobody's, or written later by an
// operation on later rows.
void declare_outputs(const Params& p, device::AccessList& list) {
  if (p.rows.count() <= 0) return;
  const int64_t count = list.every_step() ? p.rows.max_rows - p.rows.begin() : p.rows.count();
  list.write(output_of(p, p.rows.begin(), 0), floats(count * p.num_heads * p.format.latent_values));
}

size_t partial_bytes(const Params& p) {
  return floats(static_cast<int64_t>(p.rows.count()) * num_list_blocks(p.topk) * p.num_heads *
                (p.format.latent_values + 2));
}

void declare_whole(const Params& p, device::AccessList& list) {
  declare_counts(p, list);
  declare_inputs(p, list);
  declare_outputs(p, list);
}

void declare_split(const Params& p, device::AccessList& list) {
  declare_counts(p, list);
  declare_inputs(p, list);
  if (p.rows.count() <= 0) return;
  if (reads_positions(p)) {
    list.read(p.positions + static_cast<int64_t>(p.rows.begin()) * p.topk,
              static_cast<size_t>(static_cast<int64_t>(p.rows.count()) * p.topk) * sizeof(int32_t));
  }
  list.write(p.partial, partial_bytes(p));
}

void declare_merge(const Params& p, device::AccessList& list) {
  declare_counts(p, list);
  if (p.rows.count() > 0) list.read(p.partial, partial_bytes(p));
  declare_outputs(p, list);
}

// Query rows, list entries and multiply-adds; not the cache rows.
device::Cost list_cost(const Params& p) {
  const int64_t latent = p.format.latent_values, rope = p.format.rope_values;
  device::Cost cost;
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) {
    const int32_t entries = p.num_selected[m];
    cost.read_bytes += sizeof(int32_t);
    if (entries <= 0) continue;
    uint64_t rows = 0;
    for (int32_t i = 0; i < entries; ++i) rows += row_list(p, m)[i].place != Place::kNone;
    cost.read_bytes += floats(p.num_heads * (latent + rope)) + static_cast<uint64_t>(entries) * sizeof(RowLocation);
    cost.multiply_adds += rows * static_cast<uint64_t>(p.num_heads * (2 * latent + rope));
  }
  return cost;
}

// A cache row is read, from the device or over the host link.
void add_row(const Params& p, RowLocation at, device::Cost& cost) {
  if (at.place == Place::kNone) return;
  (at.place == Place::kHost ? cost.link_bytes : cost.read_bytes) += static_cast<uint64_t>(p.format.row_bytes());
}

uint64_t output_bytes(const Params& p) {
  return floats(static_cast<int64_t>(p.rows.count()) * p.num_heads * p.format.latent_values);
}

device::Cost whole_cost(const Params& p) {
  device::Cost cost = list_cost(p);
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) {
    for (int32_t i = 0; i < p.num_selected[m]; ++i) add_row(p, row_list(p, m)[i], cost);
  }
  cost.write_bytes = output_bytes(p);
  return cost;
}

// What row m's list fills of the workspace.
uint64_t row_partial_bytes(const Params& p, int32_t m) {
  return floats(static_cast<int64_t>(num_list_blocks(p.num_selected[m])) * p.num_heads * (p.format.latent_values + 2));
}

// What the pieces of one block of a run read: a cache row counts once, however many of the query rows list it.
void add_run_rows(const Params& p, int32_t m, int32_t count, int32_t block, device::Cost& cost) {
  SharedRows rows;
  share_rows(p, m, count, block, rows);
  for (int32_t r = 0; r < rows.num_rows; ++r) add_row(p, rows.at[r], cost);
  if (reads_positions(p)) cost.read_bytes += static_cast<uint64_t>(rows.total_entries()) * sizeof(int32_t);
}

device::Cost split_cost(const Params& p) {
  device::Cost cost = list_cost(p);
  for (int32_t m = p.rows.begin(); m < p.rows.end(); m += run_len(p)) {
    const int32_t count = std::min(run_len(p), p.rows.end() - m);
    for (int32_t block = 0; block < num_list_blocks(longest_list(p, m, m + count)); ++block) {
      add_run_rows(p, m, count, block, cost);
    }
  }
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) cost.write_bytes += row_partial_bytes(p, m);
  return cost;
}

device::Cost merge_cost(const Params& p) {
  device::Cost cost;
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) cost.read_bytes += row_partial_bytes(p, m);
  cost.multiply_adds = cost.read_bytes / sizeof(float);
  cost.write_bytes = output_bytes(p);
  return cost;
}

template <void (*Run)(const Params&, int32_t, int32_t)>
constexpr device::OpType kWhole = device::make_op_type<Params, num_whole_pieces, Run, declare_whole, whole_cost>(
    "attention_whole", device::Part::kAttention);
template <void (*Run)(const Params&, int32_t, int32_t)>
constexpr device::OpType kSplit = device::make_op_type<Params, num_split_pieces, Run, declare_split, split_cost>(
    "attention_split", device::Part::kAttention);
template <void (*Run)(const Params&, int32_t, int32_t)>
constexpr device::OpType kMerge = device::make_op_type<Params, num_whole_pieces, Run, declare_merge, merge_cost>(
    "attention_merge", device::Part::kAttention);

}  // namespace

const device::OpType& attention_whole(Backend backend) {
  return backend == Backend::kRef ? kWhole<ref_attention_whole> : kWhole<cpu_attention_whole>;
}
const device::OpType& attention_split(Backend backend) {
  return backend == Backend::kRef ? kSplit<ref_attention_split> : kSplit<cpu_attention_split>;
}
const device::OpType& attention_merge(Backend backend) {
  return backend == Backend::kRef ? kMerge<ref_attention_merge> : kMerge<cpu_attention_merge>;
}

}  // namespace tidepool::nn
