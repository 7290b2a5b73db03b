// Fills one large anonymous region with the arrays of a model, each made from one tensor of a checkpoint.
//
// Two phases. First every array is asked for: its size is counted and its view (shape, type) is filled in, but for
// pointers. Then load() maps the region, sets the pointers and does all the reading, checking and packing in parallel,
// in the order of the files. Outputs passed in must stay where they are until load() returns.
// Not thread safe itself.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/safetensors.h"
#include "nn/packed_matrix.h"

namespace tidepool::model {

// Private anonymous memory, zero at first, in 2 MB pages where the system has them; move-only.
class AnonymousRegion {
 public:
  AnonymousRegion() = default;
  explicit AnonymousRegion(uint64_t bytes);  // throws when the system refuses
  AnonymousRegion(AnonymousRegion&& other) noexcept;
  AnonymousRegion& operator=(AnonymousRegion&& other) noexcept;
  ~AnonymousRegion();
  std::byte* data() const { return data_; }

 private:
  std::byte* mapping_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;  // within the mapping, 2 MB aligned
};

class WeightLoader {
 public:
  // `checkpoint` must outlive the loader, and have passed check_tensors.
  WeightLoader(const Checkpoint& checkpoint, bool allow_nan) : checkpoint_(checkpoint), allow_nan_(allow_nan) {}

  // A copy in the stored type (never fp8).
  void raw(const std::string& name, const std::byte** out);
  // Widened to fp32.
  void floats(const std::string& name, const float** out);
  // Panels: bf16 and fp32 as stored, fp16 widened to fp32, fp8 as stored with its scales in fp32.
  void matrix(const std::string& name, nn::PackedMatrix* out);
  // kv_b [heads * (key_width + value_width), rank]: per head the transpose of the first key_width rows, [rank,
  // key_width], and the other rows, [value_width, rank]. Types as matrix(), but fp8 becomes fp32: heads do not end on
  // scale blocks.
  void split_kv_b(const std::string& name, int32_t heads, int32_t key_width, int32_t value_width,
                  std::vector<nn::PackedMatrix>* keys, std::vector<nn::PackedMatrix>* values);

  uint64_t resident_bytes() const { return region_bytes_; }

  // Throws for a NaN or infinity, naming tensor and index of the first in file order, unless allow_nan.
  AnonymousRegion load(int num_threads, const std::function<void(uint64_t, uint64_t)>& progress);

 private:
  enum class Kind { kRaw, kFloats, kMatrix, kKvB };
  struct Item {
    Kind kind = Kind::kRaw;
    const std::string* name = nullptr;  // in the checkpoint's map
    const TensorView* tensor = nullptr;
    const TensorView* scale = nullptr;    // fp8 only
    uint64_t bytes = 0, scale_bytes = 0;  // in the region
    uint64_t offset = 0, scale_offset = 0;
    const std::byte** raw_out = nullptr;
    const float** floats_out = nullptr;
    nn::PackedMatrix* matrix_out = nullptr;
    std::vector<nn::PackedMatrix>*keys_out = nullptr, *values_out = nullptr;
  };
  // A part of an item: units are values, panels or heads, by kind.
  struct Piece {
    const Item* item = nullptr;
    int64_t begin = 0, end = 0;
    const std::byte* source = nullptr;  // [source_values] that this piece checks
    uint64_t source_values = 0;
    uint64_t source_bytes() const { return source_values * dtype_bytes(item->tensor->type); }
  };
  struct BadValue {
    size_t piece = 0;
    std::string name;    // of the tensor
    uint64_t value = 0;  // index in the tensor
  };

  Item& add(Kind kind, const std::string& name);
  uint64_t reserve(uint64_t bytes);  // returns `bytes` rounded up to the alignment
  void place_items();
  void set_pointers(const Item& item, std::byte* base) const;
  std::vector<Piece> cut_pieces() const;
  static std::vector<size_t> cut_batches(const std::vector<Piece>& pieces);
  // These fill a piece's part of the region; false when they met a NaN or an infinity.
  bool run(const Piece& piece, std::byte* base) const;
  bool copy_raw(const Piece& piece, std::byte* base) const;
  bool pack_panels(const Piece& piece, std::byte* base) const;
  bool pack_heads(const Piece& piece, std::byte* base) const;
  bool is_good(const std::byte* data, DType type, int64_t num_values) const;
  bool is_needed(size_t index);
  void report_bad(const Piece& piece, size_t index);

  const Checkpoint& checkpoint_;
  const bool allow_nan_;
  std::vector<Item> items_;
  uint64_t region_bytes_ = 0;
  std::mutex mutex_;
  std::optional<BadValue> first_bad_;  // of the earliest piece; guarded by mutex_
};

}  // namespace tidepool::model
