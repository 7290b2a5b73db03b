#include "text/ids.h"

#include "base/check.h"
#include "base/json.h"

namespace tidepool::text {

std::vector<int32_t> parse_ids(std::string_view json, const std::string& what, int64_t vocab_size) {
  const base::Json root = base::Json::parse(json, what);
  const base::Json* list = &root;
  for (const char* key : {"ids", "input_ids"}) {
    if (const base::Json* member = root.find(key)) list = member;
  }
  tidepool_check(list->is_array(), "{}: expected an array of token ids, or an object with one under \"ids\"; found {}",
                 what, list->kind());
  std::vector<int32_t> ids;
  for (const base::Json& value : list->as_array()) {
    const int64_t id = value.as_int(fmt::format("{}: id number {}", what, ids.size()));
    tidepool_check(id >= 0 && id < vocab_size, "{}: id number {} is {}, outside the vocabulary of {} tokens", what,
                   ids.size(), id, vocab_size);
    ids.push_back(static_cast<int32_t>(id));
  }
  tidepool_check(!ids.empty(), "{}: no token ids in it", what);
  return ids;
}

}  // namespace tidepool::text
