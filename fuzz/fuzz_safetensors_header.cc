// Any bytes as a safetensors file: an Error, or views that lie inside the bytes.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "model/safetensors.h"
#include "tidepool/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  try {
    std::map<std::string, std::string> metadata;
    for (const auto& [name, view] : tidepool::model::parse_safetensors(bytes, size, "input", &metadata)) {
      if (view.data < bytes || view.bytes > size || view.data + view.bytes > bytes + size) std::abort();
      if (view.num_values() * tidepool::dtype_bytes(view.type) != view.bytes) std::abort();
    }
  } catch (const tidepool::Error&) {
  }
  return 0;
}
