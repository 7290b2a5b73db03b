#include "model/weight_loader.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "model/finite.h"
#include "model/tensor_list.h"

namespace tidepool::model {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kAlignment = 64;
// Source bytes that one thread takes at a time: some huge pages, so that two threads seldom fault in the same one.
constexpr uint64_t kBatchBytes = uint64_t{8} << 20;
// Checked, then packed from the cache.
constexpr int64_t kCheckedValues = 1 << 16;

// The type that a matrix is kept in.
DType packed_type(DType stored) { return stored == DType::kF16 ? DType::kF32 : stored; }
DType kv_b_type(DType stored) { return stored == DType::kBF16 ? DType::kBF16 : DType::kF32; }

void widen(const std::byte* source, DType type, uint64_t count, float* out) {
  for (uint64_t i = 0; i < count; ++i) {
    if (type == DType::kF32) {
      std::memcpy(out + i, source + i * 4, 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, source + i * 2, 2);
    out[i] = type == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

float scale_value(const TensorView& scale, int64_t index) {
  float value;
  widen(scale.data + index * static_cast<int64_t>(dtype_bytes(scale.type)), scale.type, 1, &value);
  return value;
}

// out [rows, k] = rows first_row.. of an fp8 matrix [n, k] times its block scales, each product rounded once to fp32.
void dequantise_rows(const TensorView& matrix, const TensorView& scale, int64_t first_row, int64_t rows, float* out) {
  const int64_t k = matrix.shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* row = matrix.data + (first_row + r) * k;
    const int64_t scale_row = (first_row + r) / nn::kScaleBlock * scale.shape[1];
    for (int64_t c = 0; c < k; ++c) {
      out[r * k + c] =
          f8e4m3_to_f32(static_cast<uint8_t>(row[c])) * scale_value(scale, scale_row + c / nn::kScaleBlock);
    }
  }
}

}  // namespace

AnonymousRegion::AnonymousRegion(uint64_t bytes) {
  if (bytes == 0) return;
  mapped_bytes_ = (bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
  void* mapping = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  tidepool_check(mapping != MAP_FAILED, "the weights take {} bytes of memory, which the system refuses: {}", bytes,
                 std::strerror(errno));
  mapping_ = static_cast<std::byte*>(mapping);
  const uint64_t misaligned = reinterpret_cast<uintptr_t>(mapping) % kHugePage;
  data_ = mapping_ + (misaligned == 0 ? 0 : kHugePage - misaligned);
  ::madvise(mapping_, mapped_bytes_, MADV_HUGEPAGE);  // a wish: ordinary pages do as well
}

AnonymousRegion::AnonymousRegion(AnonymousRegion&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

AnonymousRegion& AnonymousRegion::operator=(AnonymousRegion&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  return *this;
}

AnonymousRegion::~AnonymousRegion() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_bytes_);
}

uint64_t WeightLoader::reserve(uint64_t bytes) {
  const uint64_t aligned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  region_bytes_ += aligned;
  return aligned;
}

WeightLoader::Item& WeightLoader::add(Kind kind, const std::string& name) {
  const auto it = checkpoint_.tensors().find(name);
  tidepool_check(it != checkpoint_.tensors().end(), "{}: tensor \"{}\" is missing", checkpoint_.directory(), name);
  Item& item = items_.emplace_back();
  item.kind = kind;
  item.name = &it->first;
  item.tensor = &it->second;
  if (item.tensor->type == DType::kF8E4M3) {
    item.scale = checkpoint_.find(scale_name(name));
    tidepool_check(item.scale != nullptr, "{}: tensor \"{}\" has no scales", checkpoint_.directory(), name);
  }
  return item;
}

void WeightLoader::raw(const std::string& name, const std::byte** out) {
  Item& item = add(Kind::kRaw, name);
  item.raw_out = out;
  item.bytes = reserve(item.tensor->bytes);
}

void WeightLoader::floats(const std::string& name, const float** out) {
  Item& item = add(Kind::kFloats, name);
  item.floats_out = out;
  item.bytes = reserve(item.tensor->num_values() * sizeof(float));
}

void WeightLoader::matrix(const std::string& name, nn::PackedMatrix* out) {
  Item& item = add(Kind::kMatrix, name);
  item.matrix_out = out;
  out->n = static_cast<int32_t>(item.tensor->shape[0]);
  out->k = static_cast<int32_t>(item.tensor->shape[1]);
  out->type = packed_type(item.tensor->type);
  item.bytes = reserve(nn::packed_bytes(out->type, out->n, out->k));
  if (item.scale != nullptr) item.scale_bytes = reserve(item.scale->num_values() * sizeof(float));
}

void WeightLoader::split_kv_b(const std::string& name, int32_t heads, int32_t key_width, int32_t value_width,
                              std::vector<nn::PackedMatrix>* keys, std::vector<nn::PackedMatrix>* values) {
  Item& item = add(Kind::kKvB, name);
  const DType type = kv_b_type(item.tensor->type);
  const auto rank = static_cast<int32_t>(item.tensor->shape[1]);
  item.keys_out = keys;
  item.values_out = values;
  keys->assign(static_cast<size_t>(heads), {nullptr, type, rank, key_width, nullptr});
  values->assign(static_cast<size_t>(heads), {nullptr, type, value_width, rank, nullptr});
  const uint64_t heads_bytes = nn::packed_bytes(type, rank, key_width) + nn::packed_bytes(type, value_width, rank);
  item.bytes = reserve(static_cast<uint64_t>(heads) * heads_bytes);
}

void WeightLoader::set_pointers(const Item& item, std::byte* base) const {
  std::byte* data = base + item.offset;
  switch (item.kind) {
    case Kind::kRaw:
      *item.raw_out = data;
      return;
    case Kind::kFloats:
      *item.floats_out = reinterpret_cast<const float*>(data);
      return;
    case Kind::kMatrix:
      item.matrix_out->data = data;
      if (item.scale != nullptr) {
        item.matrix_out->scale = reinterpret_cast<const float*>(base + item.scale_offset);
        item.matrix_out->no_nan = allow_nan_ ? 0 : 1;  // the scan refuses the checkpoint otherwise
      }
      return;
    case Kind::kKvB:
      for (auto* list : {item.keys_out, item.values_out}) {
        for (nn::PackedMatrix& matrix : *list) {
          matrix.data = data;
          data += nn::packed_bytes(matrix.type, matrix.n, matrix.k);
        }
      }
      return;
  }
}

std::vector<WeightLoader::Piece> WeightLoader::cut_pieces() const {
  std::vector<Piece> pieces;
  for (const Item& item : items_) {
    const TensorView& tensor = *item.tensor;
    const auto num_values = static_cast<int64_t>(tensor.num_values());
    int64_t num_units = num_values, unit_values = 1;
    if (item.kind == Kind::kFloats) {
      num_units = 1;
      unit_values = num_values;
    } else if (item.kind == Kind::kMatrix) {
      num_units = item.matrix_out->num_panels();
      unit_values = nn::kPanelRows * tensor.shape[1];
    } else if (item.kind == Kind::kKvB) {
      num_units = static_cast<int64_t>(item.keys_out->size());
      unit_values = num_values / num_units;
    }
    const auto value_bytes = static_cast<int64_t>(dtype_bytes(tensor.type));
    const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kBatchBytes) / (unit_values * value_bytes));
    for (int64_t begin = 0; begin < num_units; begin += step) {
      const int64_t end = std::min(num_units, begin + step);
      const int64_t first = begin * unit_values;
      const int64_t last = std::min(num_values, end * unit_values);  // a last panel may have fewer rows
      pieces.push_back({&item, begin, end, tensor.data + first * value_bytes, static_cast<uint64_t>(last - first)});
    }
  }
  return pieces;
}

// First piece of every batch, and the end.
std::vector<size_t> WeightLoader::cut_batches(const std::vector<Piece>& pieces) {
  std::vector<size_t> starts = {0};
  uint64_t filled = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    filled += pieces[i].source_bytes();
    if (filled < kBatchBytes / 2 && i + 1 < pieces.size()) continue;
    starts.push_back(i + 1);
    filled = 0;
  }
  return starts;
}

bool WeightLoader::is_good(const std::byte* data, DType type, int64_t num_values) const {
  return allow_nan_ || first_non_finite(data, type, static_cast<uint64_t>(num_values)) < 0;
}

void WeightLoader::report_bad(const Piece& piece, size_t index) {
  const Item& item = *piece.item;
  BadValue bad{index, *item.name, 0};
  int64_t at = -1;
  if (item.scale != nullptr) at = first_non_finite(item.scale->data, item.scale->type, item.scale->num_values());
  if (at >= 0) {
    bad.name = scale_name(bad.name);
    bad.value = static_cast<uint64_t>(at);
  } else {
    const auto first = static_cast<uint64_t>(piece.source - item.tensor->data) / dtype_bytes(item.tensor->type);
    bad.value = first + static_cast<uint64_t>(first_non_finite(piece.source, item.tensor->type, piece.source_values));
  }
  std::lock_guard lock(mutex_);
  if (!first_bad_ || index < first_bad_->piece) first_bad_ = std::move(bad);
}

// Pieces before a bad one must still run, so that the first is named; those behind it need not.
bool WeightLoader::is_needed(size_t index) {
  std::lock_guard lock(mutex_);
  return !first_bad_ || index < first_bad_->piece;
}

bool WeightLoader::copy_raw(const Piece& piece, std::byte* base) const {
  const TensorView& tensor = *piece.item->tensor;
  const auto size = static_cast<int64_t>(dtype_bytes(tensor.type));
  std::byte* out = base + piece.item->offset;
  for (int64_t begin = piece.begin; begin < piece.end; begin += kCheckedValues) {
    const int64_t count = std::min(kCheckedValues, piece.end - begin);
    if (!is_good(tensor.data + begin * size, tensor.type, count)) return false;
    std::memcpy(out + begin * size, tensor.data + begin * size, static_cast<size_t>(count * size));
  }
  return true;
}

bool WeightLoader::pack_panels(const Piece& piece, std::byte* base) const {
  const Item& item = *piece.item;
  const nn::PackedMatrix& matrix = *item.matrix_out;
  for (int64_t p = piece.begin; p < piece.end; ++p) {
    const bool finite =
        nn::pack_panel(item.tensor->data, item.tensor->type, matrix.k, 1, matrix.n, matrix.k, static_cast<int32_t>(p),
                       matrix.type, base + item.offset + static_cast<uint64_t>(p) * matrix.panel_bytes());
    if (!finite && !allow_nan_) return false;
  }
  if (item.scale == nullptr || piece.begin > 0) return true;
  widen(item.scale->data, item.scale->type, item.scale->num_values(),
        reinterpret_cast<float*>(base + item.scale_offset));
  return is_good(item.scale->data, item.scale->type, static_cast<int64_t>(item.scale->num_values()));
}

bool WeightLoader::pack_heads(const Piece& piece, std::byte* base) const {
  const Item& item = *piece.item;
  const TensorView& tensor = *item.tensor;
  if (item.scale != nullptr &&
      !is_good(item.scale->data, item.scale->type, static_cast<int64_t>(item.scale->num_values()))) {
    return false;
  }
  std::vector<float> dequantised;
  for (int64_t h = piece.begin; h < piece.end; ++h) {
    const nn::PackedMatrix& keys = (*item.keys_out)[static_cast<size_t>(h)];
    const nn::PackedMatrix& values = (*item.values_out)[static_cast<size_t>(h)];
    const int64_t rank = values.k, rows = keys.k + values.n;
    const std::byte* source = tensor.data + h * rows * rank * static_cast<int64_t>(dtype_bytes(tensor.type));
    DType type = tensor.type;
    if (item.scale != nullptr) {
      if (!is_good(source, tensor.type, rows * rank)) return false;
      dequantised.resize(static_cast<size_t>(rows * rank));
      dequantise_rows(tensor, *item.scale, h * rows, rows, dequantised.data());
      source = reinterpret_cast<const std::byte*>(dequantised.data());
      type = DType::kF32;
    }
    bool finite = true;
    auto pack = [&](const nn::PackedMatrix& matrix, const std::byte* from, int64_t row_stride, int64_t column_stride) {
      std::byte* out = base + (matrix.data - base);
      for (int32_t p = 0; p < matrix.num_panels(); ++p) {
        finite &= nn::pack_panel(from, type, row_stride, column_stride, matrix.n, matrix.k, p, matrix.type,
                                 out + static_cast<uint64_t>(p) * matrix.panel_bytes());
      }
    };
    pack(keys, source, 1, rank);
    pack(values, source + keys.k * rank * static_cast<int64_t>(dtype_bytes(type)), rank, 1);
    // For fp8 the stored values and scales were checked above; an index into their products would name nothing in a
    // file.
    if (!finite && item.scale == nullptr && !allow_nan_) return false;
  }
  return true;
}

bool WeightLoader::run(const Piece& piece, std::byte* base) const {
  const Item& item = *piece.item;
  switch (item.kind) {
    case Kind::kRaw:
      return copy_raw(piece, base);
    case Kind::kFloats:
      widen(piece.source, item.tensor->type, piece.source_values, reinterpret_cast<float*>(base + item.offset));
      return is_good(piece.source, item.tensor->type, static_cast<int64_t>(piece.source_values));
    case Kind::kMatrix:
      return pack_panels(piece, base);
    case Kind::kKvB:
      return pack_heads(piece, base);
  }
  return true;
}

// Files and region are walked in the same order, front to back.
void WeightLoader::place_items() {
  std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    return std::pair(a.tensor->file, a.tensor->data) < std::pair(b.tensor->file, b.tensor->data);
  });
  uint64_t offset = 0;
  for (Item& item : items_) {
    item.offset = offset;
    item.scale_offset = offset + item.bytes;
    offset += item.bytes + item.scale_bytes;
  }
}

AnonymousRegion WeightLoader::load(int num_threads, const std::function<void(uint64_t, uint64_t)>& progress) {
  place_items();
  AnonymousRegion region(region_bytes_);
  std::byte* base = region.data();
  for (const Item& item : items_) set_pointers(item, base);
  const std::vector<Piece> pieces = cut_pieces();
  const std::vector<size_t> batches = cut_batches(pieces);
  uint64_t total_bytes = 0;
  for (const Piece& piece : pieces) total_bytes += piece.source_bytes();
  std::atomic<uint64_t> done_bytes{0};
  const std::thread::id caller = std::this_thread::get_id();
  base::parallel_for(static_cast<int64_t>(batches.size()) - 1, num_threads, [&](int64_t batch) {
    for (size_t i = batches[static_cast<size_t>(batch)]; i < batches[static_cast<size_t>(batch) + 1]; ++i) {
      if (!is_needed(i)) return;
      if (!run(pieces[i], base)) return report_bad(pieces[i], i);
      done_bytes.fetch_add(pieces[i].source_bytes());
    }
    if (progress && std::this_thread::get_id() == caller) progress(done_bytes.load(), total_bytes);
  });
  tidepool_check(!first_bad_, "{}: tensor \"{}\" holds a NaN or an infinity at index {} (--allow-nan accepts it)",
                 checkpoint_.directory(), first_bad_->name, first_bad_->value);
  return region;
}

}  // namespace tidepool::model
