#include "text/detokenizer.h"

#include "text/utf8.h"

namespace tidepool::text {

std::string Detokenizer::push(int32_t id) {
  std::string_view bytes = tokenizer_->bytes_of(id);
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_ += bytes;
  std::string out;
  pending_.erase(0, append_lossy_utf8(pending_, false, out));
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  append_lossy_utf8(pending_, true, out);
  pending_.clear();
  return out;
}

}  // namespace tidepool::text
