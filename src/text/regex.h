// A compiled regular expression on valid UTF-8 (PCRE2 with its JIT compiler behind it).
//
// A Regex is immutable and thread safe. A Matcher belongs to one thread at a time and borrows its Regex.
// The Unicode tables are PCRE2's (Unicode 14 in 10.42): code points assigned later belong to no letters, digits or
// symbols. Matching is bounded: a search that needs more than about a million steps plus sixteen per byte of the
// subject from one starting point, or more than 256 MiB, throws Error.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace tidepool::text {

class Regex {
 public:
  enum class Kind { kOniguruma, kLiteral };

  struct Match {
    size_t begin, end;  // bytes
  };

  // `where` names the pattern in errors. Throws when it does not compile, is longer than 64 KiB, is no valid UTF-8 or
  // uses a construct that translate_regex refuses. kLiteral matches the very characters of `pattern`.
  Regex(std::string_view pattern, Kind kind, std::string where);

  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    // First match that starts at or after `start` <= subject.size(); false when there is none. `subject` must be valid
    // UTF-8 (checked by nobody: invalid UTF-8 is undefined behaviour) and `start` a boundary in it.
    bool find(std::string_view subject, size_t start, Match& match);

   private:
    struct Free {
      void operator()(pcre2_real_match_data_8* data) const;
      void operator()(pcre2_real_match_context_8* context) const;
    };
    const Regex* regex_;
    std::unique_ptr<pcre2_real_match_data_8, Free> data_;
    std::unique_ptr<pcre2_real_match_context_8, Free> context_;
  };

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::string where_;
};

}  // namespace tidepool::text
