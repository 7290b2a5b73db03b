// Files of prompt ids: any bytes are read or refused with an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/ids.h"
#include "tidepool/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    tidepool::text::parse_ids({reinterpret_cast<const char*>(data), size}, "ids.json", 1000);
  } catch (const tidepool::Error&) {
  }
  return 0;
}
