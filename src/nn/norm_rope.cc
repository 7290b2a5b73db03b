#include "nn/norm_rope.h"

#include "nn/access.h"
#include "nn/norm_rope_ops.h"

namespace tidepool::nn {
namespace {

using device::AccessList;
using device::Cost;
using device::make_op_type;
using device::OpType;
using device::Part;

uint64_t floats(int64_t count) { return static_cast<uint64_t>(count) * sizeof(float); }

void declare_embed(const EmbedParams& p, AccessList& list) {
  read_range(p.rows, list);
  read_rows(p.token_ids, p.rows.max_rows, 1, 1, list);
  list.read(p.table, static_cast<size_t>(p.vocab) * static_cast<size_t>(p.hidden) * dtype_bytes(p.type));
  write_rows(p.x, p.rows.max_rows, p.hidden, p.hidden, list);
}

Cost embed_cost(const EmbedParams& p) {
  const uint64_t rows = row_count(p.rows);
  return {.read_bytes = rows * (static_cast<uint64_t>(p.hidden) * dtype_bytes(p.type) + sizeof(int32_t)),
          .write_bytes = rows * floats(p.hidden)};
}

void declare_rms_norm(const RmsNormParams& p, AccessList& list) {
  read_range(p.rows, list);
  const int32_t x_rows = p.source_row != nullptr && p.x_rows > 0 ? p.x_rows : p.rows.max_rows;
  read_rows(p.x, x_rows, p.x_stride, p.width, list);
  read_rows(p.source_row, p.rows.max_rows, 1, 1, list);
  read_rows(p.weight, 1, p.width, p.width, list);
  write_rows(p.y, p.rows.max_rows, p.y_stride, p.width, list);
}

Cost rms_norm_cost(const RmsNormParams& p) {
  const uint64_t rows = row_count(p.rows);
  if (rows == 0) return {};
  const uint64_t index_bytes = p.source_row != nullptr ? rows * sizeof(int32_t) : 0;
  return {.read_bytes = (rows + 1) * floats(p.width) + index_bytes,
          .write_bytes = rows * floats(p.width),
          .multiply_adds = rows * static_cast<uint64_t>(p.width)};
}

void declare_rope_table(const RopeTableParams& p, AccessList& list) {
  read_range(p.rows, list);
  read_rows(p.positions, p.rows.max_rows, 1, 1, list);
  read_rows(p.inv_freq, 1, p.half, p.half, list);
  write_rows(p.cos_table, p.rows.max_rows, p.half, p.half, list);
  write_rows(p.sin_table, p.rows.max_rows, p.half, p.half, list);
}

Cost rope_table_cost(const RopeTableParams& p) {
  const uint64_t rows = row_count(p.rows);
  if (rows == 0) return {};
  return {.read_bytes = floats(p.half) + rows * sizeof(int32_t), .write_bytes = 2 * rows * floats(p.half)};
}

void declare_query_rope(const QueryRopeParams& p, AccessList& list) {
  const int64_t width = p.nope_dim + p.rope_dim, out_width = p.latent_dim + p.rope_dim;
  const int64_t heads = int64_t{p.rows.max_rows} * p.num_heads;
  read_range(p.rows, list);
  read_rows(p.q + p.nope_dim, heads, width, p.rope_dim, list);
  read_rows(p.cos_table, p.rows.max_rows, p.rope_dim / 2, p.rope_dim / 2, list);
  read_rows(p.sin_table, p.rows.max_rows, p.rope_dim / 2, p.rope_dim / 2, list);
  write_rows(p.out + p.latent_dim, heads, out_width, p.rope_dim, list);
  // The latent parts up to that of the last head lie between and stay.
  if (list.every_step()) read_rows(p.out + p.latent_dim, heads - 1, out_width, out_width, list);
}

Cost query_rope_cost(const QueryRopeParams& p) {
  const uint64_t rows = row_count(p.rows);
  const uint64_t values = rows * static_cast<uint64_t>(p.num_heads) * static_cast<uint64_t>(p.rope_dim);
  return {.read_bytes = values * sizeof(float) + rows * floats(p.rope_dim),
          .write_bytes = values * sizeof(float),
          .multiply_adds = 2 * values};
}

void declare_write_row(const WriteRowParams& p, AccessList& list) {
  const int32_t width = p.format.latent_values + p.format.rope_values, half = p.format.rope_values / 2;
  read_range(p.rows, list);
  read_rows(p.z, p.rows.max_rows, width, width, list);
  read_rows(p.weight, 1, p.format.latent_values, p.format.latent_values, list);
  read_rows(p.cos_table, p.rows.max_rows, half, half, list);
  read_rows(p.sin_table, p.rows.max_rows, half, half, list);
  read_rows(p.dest, p.rows.max_rows, 1, 1, list);
  // The very rows: a ring is overwritten here while older rows of it may still be on their way to the host.
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) {
    if (p.dest[m].place == Place::kNone) continue;
    const RowPlanes& planes = p.places[p.dest[m].place];
    list.write(planes.latent.row(p.dest[m].index), static_cast<size_t>(planes.latent.bytes));
    list.write(planes.rope.row(p.dest[m].index), static_cast<size_t>(planes.rope.bytes));
  }
}

Cost write_row_cost(const WriteRowParams& p) {
  const uint64_t rows = row_count(p.rows);
  if (rows == 0) return {};
  uint64_t kept = 0;
  for (int32_t m = p.rows.begin(); m < p.rows.end(); ++m) kept += p.dest[m].place != Place::kNone;
  const int32_t latent = p.format.latent_values, rope = p.format.rope_values;
  return {.read_bytes = kept * floats(latent + 2 * rope) + floats(latent) + rows * sizeof(RowLocation),
          .write_bytes = kept * static_cast<uint64_t>(p.format.row_bytes()),
          .multiply_adds = kept * static_cast<uint64_t>(latent + 2 * rope)};
}

}  // namespace

const OpType& embed(Backend) {
  static constexpr OpType kType =
      make_op_type<EmbedParams, row_pieces<EmbedParams>, ref::embed_run, declare_embed, embed_cost>("embed",
                                                                                                    Part::kOther);
  return kType;
}

const OpType& rms_norm(Backend backend) {
  using P = RmsNormParams;
  static constexpr OpType kRef =
      make_op_type<P, row_pieces<P>, ref::rms_norm_run, declare_rms_norm, rms_norm_cost>("rms_norm", Part::kOther);
  static constexpr OpType kCpu =
      make_op_type<P, row_pieces<P>, cpu::rms_norm_run, declare_rms_norm, rms_norm_cost>("rms_norm", Part::kOther);
  return backend == Backend::kRef ? kRef : kCpu;
}

const OpType& rope_table(Backend) {
  using P = RopeTableParams;
  static constexpr OpType kType =
      make_op_type<P, row_pieces<P>, ref::rope_table_run, declare_rope_table, rope_table_cost>("rope_table",
                                                                                               Part::kOther);
  return kType;
}

const OpType& query_rope(Backend) {
  using P = QueryRopeParams;
  static constexpr OpType kType =
      make_op_type<P, row_pieces<P>, ref::query_rope_run, declare_query_rope, query_rope_cost>("query_rope",
                                                                                               Part::kOther);
  return kType;
}

const OpType& write_row(Backend backend) {
  using P = WriteRowParams;
  static constexpr OpType kRef =
      make_op_type<P, row_pieces<P>, ref::write_row_run, declare_write_row, write_row_cost>("write_row", Part::kOther);
  static constexpr OpType kCpu =
      make_op_type<P, row_pieces<P>, cpu::write_row_run, declare_write_row, write_row_cost>("write_row", Part::kOther);
  return backend == Backend::kRef ? kRef : kCpu;
}

}  // namespace tidepool::nn
