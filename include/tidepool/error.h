// The one exception type of the library.
//
// Three kinds of failure: an expected "no" is a value (std::optional, an empty span, a Verdict); a broken contract
// (bad file, bad option, bad argument) throws Error with one sentence a user can act on: what, where, which value,
// which limit; broken ownership aborts. The library never prints.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace tidepool {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& sentence, std::source_location where = std::source_location::current())
      : std::runtime_error(sentence), where_(where) {}
  // Where in the library the contract was checked; for developers, not part of the sentence.
  const std::source_location& where() const { return where_; }

 private:
  std::source_location where_;
};

}  // namespace tidepool
