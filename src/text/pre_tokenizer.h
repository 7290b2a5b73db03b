// The "pre_tokenizer" of tokenizer.json: cuts text into the pieces within which BPE may merge.
//
// Supported: Split (Regex or String pattern, all behaviours, invert), Digits, Sequence, and ByteLevel, which must be
// the last one, since only byte-level BPE is read. The pieces stay bytes of the text; mapping them to the byte-level
// alphabet is left to BPE. Immutable and thread safe; a Scratch belongs to one thread at a time.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/regex.h"

namespace tidepool::text {

class PreTokenizer {
 public:
  // Throws for a missing ByteLevel, any other type, an unknown option, or a pattern that does not compile.
  static PreTokenizer from_json(const base::Json& json, const std::string& where);

  // Buffers of one run; borrows the PreTokenizer.
  class Scratch {
   public:
    explicit Scratch(const PreTokenizer& pre_tokenizer);

   private:
    friend class PreTokenizer;
    struct Part {
      size_t begin, end;
      bool is_match;
    };
    std::vector<Regex::Matcher> matchers;  // [steps of the PreTokenizer]
    std::vector<Part> parts, folded;
    std::vector<std::string_view> next;
    std::deque<std::string> prefixed;
  };

  // Replaces `pieces` by the non-empty pieces of `text` (valid UTF-8), in order. They are views of `text` or of
  // `scratch` and live until the next call or the end of either.
  void run(std::string_view text, Scratch& scratch, std::vector<std::string_view>& pieces) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Split {
    Regex regex;
    Behavior behavior;
    bool invert;
  };

  void read(const base::Json& json, const std::string& where, int depth);
  void read_split(const class Component& component);
  void read_byte_level(const class Component& component);
  static Behavior behavior_of(const std::string& name, const std::string& where);

  static void cut(const Split& split, std::string_view piece, Regex::Matcher& matcher, Scratch& scratch);
  static void fold(Behavior behavior, Scratch& scratch);

  std::vector<Split> splits_;
  bool has_byte_level_ = false;
  bool add_prefix_space_ = false;        // at the head of every piece that ByteLevel gets
  size_t num_splits_before_prefix_ = 0;  // the later ones (ByteLevel's own) see the space
};

}  // namespace tidepool::text
