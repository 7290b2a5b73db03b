// What the tests of sparse attention share: shapes, rows kept in several places, and query rows with their lists.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "nn/row_codes.h"
#include "nn/sparse_attention.h"
#include "nn/test_pieces.h"

namespace tidepool::nn::attention_cases {

using namespace pieces;

struct Shape {
  int32_t latent, rope, heads;
  DType type;
};

// The same rows kept in several places; which place holds which token is chosen per list.
class StoredRows {
 public:
  StoredRows(const Shape& shape, int32_t num_tokens, uint32_t seed)
      : StoredRows(shape, num_tokens,
                   random_floats(static_cast<size_t>(num_tokens * (shape.latent + shape.rope)), seed)) {}
  // values: [num_tokens, latent + rope]
  StoredRows(const Shape& shape, int32_t num_tokens, const std::vector<float>& values)
      : format_{shape.type, shape.latent, shape.rope} {
    const size_t row = static_cast<size_t>(format_.row_bytes());
    joint_.resize(row * static_cast<size_t>(num_tokens));
    for (int32_t t = 0; t < num_tokens; ++t) {
      const float* from = values.data() + t * (shape.latent + shape.rope);
      std::byte* to = &joint_[row * static_cast<size_t>(t)];
      store_latent(format_, from, 0, shape.latent, to);
      store_rope(format_, from + shape.latent, 0, shape.rope, to + format_.latent_bytes());
    }
    places_[Place::kResident] = joint_planes(joint_.data(), format_);
    // Pool and host: records of three layers, ours in the middle. Staging: separate planes, in reversed order of rows.
    for (Place place : {Place::kPool, Place::kHost, Place::kWindow, Place::kSelection}) {
      auto& memory = memory_[static_cast<size_t>(place)];
      const size_t stride = place == Place::kSelection ? row : 3 * row;
      memory.assign(stride * static_cast<size_t>(num_tokens), std::byte{0xff});
      std::byte* base = memory.data() + (place == Place::kSelection ? 0 : row);
      places_[place] = joint_planes(base, format_, static_cast<int64_t>(stride));
      for (int32_t t = 0; t < num_tokens; ++t)
        std::memcpy(base + stride * static_cast<size_t>(t), &joint_[row * static_cast<size_t>(t)], row);
    }
    const size_t latent = static_cast<size_t>(format_.latent_bytes()), rope = static_cast<size_t>(format_.rope_bytes());
    staging_latent_.resize(latent * static_cast<size_t>(num_tokens));
    staging_rope_.resize(rope * static_cast<size_t>(num_tokens));
    for (int32_t t = 0; t < num_tokens; ++t) {
      const size_t to = static_cast<size_t>(num_tokens - 1 - t);
      std::memcpy(&staging_latent_[latent * to], &joint_[row * static_cast<size_t>(t)], latent);
      std::memcpy(&staging_rope_[rope * to], &joint_[row * static_cast<size_t>(t) + latent], rope);
    }
    places_[Place::kStaging] = {{staging_latent_.data(), static_cast<int64_t>(latent), format_.latent_bytes()},
                                {staging_rope_.data(), static_cast<int64_t>(rope), format_.rope_bytes()},
                                num_tokens};
    num_tokens_ = num_tokens;
  }
  RowLocation at(Place place, int32_t token) const {
    return {place, place == Place::kStaging ? num_tokens_ - 1 - token : token};
  }
  const PlaceTable& places() const { return places_; }
  const RowFormat& format() const { return format_; }

 private:
  RowFormat format_;
  int32_t num_tokens_ = 0;
  std::vector<std::byte> joint_, memory_[kNumPlaces], staging_latent_, staging_rope_;
  PlaceTable places_;
};

// Lists of several query rows over one set of rows.
struct World {
  Shape shape;
  int32_t topk, range[2], location_begin;
  std::vector<float> qa, u, partial;
  std::vector<RowLocation> locations;
  std::vector<int32_t> num_selected;
  SparseAttentionParams params;

  World(const Shape& s, const StoredRows& rows, int32_t topk_size, const std::vector<std::vector<RowLocation>>& lists,
        uint32_t seed = 7)
      : shape(s), topk(topk_size), range{2, 2 + static_cast<int32_t>(lists.size())}, location_begin(1) {
    const size_t count = lists.size() + 2;
    qa = random_floats(count * static_cast<size_t>(s.heads * (s.latent + s.rope)), seed, 1.0f);
    u.assign((count + 1) * static_cast<size_t>(s.heads * s.latent), kPoison);
    const int32_t blocks = (topk + kAttentionBlock - 1) / kAttentionBlock;
    partial.assign(lists.size() * static_cast<size_t>(blocks * s.heads * (s.latent + 2)), kPoison);
    locations.assign((lists.size() + 1) * static_cast<size_t>(topk),
                     RowLocation{Place::kPool, 1 << 30});  // never to be read
    num_selected.assign(count, 0);
    for (size_t m = 0; m < lists.size(); ++m) {
      std::copy(lists[m].begin(), lists[m].end(),
                locations.begin() + static_cast<int64_t>((m + 1) * static_cast<size_t>(topk)));
      num_selected[m + 2] = static_cast<int32_t>(lists[m].size());
    }
    params.rows = {range, static_cast<int32_t>(count)};
    params.num_heads = s.heads;
    params.topk = topk;
    params.scale = 1.0f / std::sqrt(static_cast<float>(s.latent + s.rope));
    params.format = rows.format();
    params.qa = qa.data();
    params.locations = locations.data();
    params.location_begin = location_begin;
    params.num_selected = num_selected.data();
    params.places = rows.places();
    params.u = u.data();
    params.partial = partial.data();
    params.split_rows = static_cast<int32_t>(lists.size());
  }
  const std::vector<float>& whole(Backend backend, uint32_t seed = 1) {
    std::fill(u.begin(), u.end(), kPoison);
    run_pieces(attention_whole(backend), params, seed);
    return u;
  }
  const std::vector<float>& split(Backend backend, uint32_t seed = 1) {
    std::fill(u.begin(), u.end(), kPoison);
    std::fill(partial.begin(), partial.end(), kPoison);
    run_pieces(attention_split(backend), params, seed);
    run_pieces(attention_merge(backend), params, seed);
    return u;
  }
};

inline std::vector<RowLocation> list_of(const StoredRows& rows, int32_t n, int32_t first,
                                        Place place = Place::kResident) {
  std::vector<RowLocation> list;
  for (int32_t i = 0; i < n; ++i) list.push_back(rows.at(place, first + i));
  return list;
}

// Every format with heads of one register block and more, latent and rope widths with and without a tail of a chunk,
// and latents of one scale, of several, and of a last one that covers less.
inline std::vector<Shape> all_shapes() {
  const Shape widths[] = {{32, 16, 4, {}},  {32, 16, 3, {}},  {40, 8, 5, {}},  {64, 32, 8, {}},
                          {48, 6, 9, {}},   {7, 2, 1, {}},    {33, 17, 8, {}}, {128, 64, 2, {}},
                          {160, 16, 4, {}}, {290, 10, 8, {}}, {512, 64, 8, {}}};
  std::vector<Shape> shapes = {{512, 64, 17, DType::kF32}};
  for (DType type : {DType::kBF16, DType::kF32, DType::kI8, DType::kF8E4M3}) {
    for (Shape shape : widths) {
      shape.type = type;
      shapes.push_back(shape);
    }
  }
  return shapes;
}

inline std::string name_of(const Shape& s) {
  return std::to_string(s.heads) + " heads of " + std::to_string(s.latent) + " + " + std::to_string(s.rope) + " " +
         dtype_name(s.type);
}

inline void expect_close(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 2e-5f * (1 + std::abs(want[i]))) << "element " << i;
  }
}

}  // namespace tidepool::nn::attention_cases
