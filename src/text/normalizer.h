// Unicode normalisation, the "normalizer" of tokenizer.json: none, NFC, NFKC, or a Sequence of these.
// Immutable and thread safe. Time is n log n even for long runs of combining marks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tidepool::text {

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  // Throws for any other type, naming it and `where`.
  static Normalizer from_json(const base::Json& json, const std::string& where);

  bool is_identity() const { return forms_.empty(); }
  // `text` must be valid UTF-8.
  std::string apply(std::string_view text) const;

 private:
  enum class Form { kNfc, kNfkc };
  void read(const base::Json& json, const std::string& where, int depth);
  std::vector<Form> forms_;
};

}  // namespace tidepool::text
