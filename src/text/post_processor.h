// The "post_processor" of tokenizer.json: the special tokens put around the ids of a text.
// Supported: null, ByteLevel (which touches offsets only), TemplateProcessing (its "single" template), and a Sequence
// of these with at most one template. Immutable and thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/vocabulary.h"

namespace tidepool::text {

class PostProcessor {
 public:
  // Throws for any other type or option, and for template tokens that are undeclared or outside `vocabulary`.
  static PostProcessor from_json(const base::Json& json, const std::string& where, const Vocabulary& vocabulary);

  const std::vector<int32_t>& before() const { return before_; }
  const std::vector<int32_t>& after() const { return after_; }

 private:
  void read(const base::Json& json, const std::string& where, const Vocabulary& vocabulary, int depth);
  void read_template(const class Component& component, const Vocabulary& vocabulary);
  std::vector<int32_t> before_, after_;
  bool has_template_ = false;
};

}  // namespace tidepool::text
