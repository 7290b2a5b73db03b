// Options of a command, each declared once: name, type, unit, default, limits, help. From the declaration come parsing,
// the error sentences and the --help text. An own parser and not a library: what a user reads (errors that name option,
// value and limit; options that are known but not available yet) is all of it, and splitting argv is ten lines.
//
//   base::FlagSet flags("tidepool size", "what fits");
//   int32_t rows = 1024;
//   flags.integer("--pool-size", &rows).unit("rows").range(16, 1 << 24).help("rows per request and layer");
//   if (flags.parse(arguments) == base::FlagSet::kHelp) puts(flags.help_text().c_str());
//
// The default of an option is the value its target has when it is declared. Targets are borrowed and must live until
// parse has returned. Every mistake of the caller of the program throws UsageError; a mistake of the declaration
// (a name declared twice) throws Error. Not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tidepool/error.h"

namespace tidepool::base {

// The call was wrong: exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// One option. The setters return the flag, so that a declaration is one chain.
class Flag {
 public:
  using Target = std::variant<bool*, int32_t*, int64_t*, uint64_t*, double*, std::string*, std::vector<std::string>*,
                              std::vector<int32_t>*>;

  Flag(std::string name, std::string type, std::string placeholder, Target target);

  Flag& help(std::string text);
  Flag& unit(std::string unit);
  Flag& range(double low, double high);                  // of numbers, both ends included
  Flag& above(double low, double high);                  // of numbers, without `low` itself
  Flag& choices(std::vector<std::string> available);     // the values that are accepted, spelled so
  Flag& later_choices(std::vector<std::string> values);  // known values, refused as not available yet
  Flag& later();                                         // the whole option is refused as not available yet
  Flag& default_text(std::string text);                  // what --help says instead of the target's value
  Flag& required();
  Flag& required_unless(std::string other);  // may be left out where the option `other` is given
  Flag& input_file();                        // must name a readable file
  Flag& input_directory();                   // must name a directory
  // What is written at the end of the work is checked before it: its folder must exist and accept new files.
  Flag& output_file();       // not there yet, or a regular file
  Flag& output_stream();     // or a character device or a pipe
  Flag& output_directory();  // not there yet, or a directory; slashes at its end are taken off

  const std::string& name() const { return name_; }
  bool is_switch() const { return std::holds_alternative<bool*>(target_); }
  bool given() const { return given_; }

 private:
  friend class FlagSet;
  enum class Path { kNone, kInputFile, kInputDirectory, kOutputFile, kOutputStream, kOutputDirectory };

  void accept(std::string_view value);
  void check_choice(std::string_view value) const;
  void check_path(std::string& path) const;
  void check_output(std::string& path) const;
  int64_t parse_integer(std::string_view value) const;
  double parse_number(std::string_view value) const;
  void check_range(double number, std::string_view value) const;
  std::string range_text() const;
  std::string value_text() const;
  std::string usage_line() const;
  std::string facts() const;

  std::string name_, type_, placeholder_, unit_, help_, default_, unless_;
  Target target_;
  std::optional<double> low_, high_;
  bool is_low_excluded_ = false;
  std::vector<std::string> choices_, later_choices_;
  Path path_ = Path::kNone;
  bool required_ = false, later_ = false, given_ = false;
};

class FlagSet {
 public:
  enum Outcome { kRun, kHelp };

  FlagSet(std::string command, std::string summary);

  Flag& toggle(std::string name, bool* target);  // no value; present means true
  Flag& integer(std::string name, int32_t* target);
  Flag& integer(std::string name, int64_t* target);
  Flag& integer(std::string name, uint64_t* target);               // 0 to 2^63 - 1
  Flag& integers(std::string name, std::vector<int32_t>* target);  // separated by commas
  Flag& number(std::string name, double* target);
  Flag& text(std::string name, std::string* target, std::string placeholder = "T");
  Flag& texts(std::string name, std::vector<std::string>* target, std::string placeholder = "T");  // may be repeated
  Flag& choice(std::string name, std::string* target, std::vector<std::string> values);
  Flag& later(std::string name, std::string placeholder);  // known, refused as not available yet

  // The declarations that follow stand under this title in --help.
  void section(std::string title);

  // `arguments` without the program and the command: --name value, --name=value, -h, --help.
  Outcome parse(std::span<const std::string> arguments);
  bool given(std::string_view name) const;
  std::string help_text() const;
  const std::string& command() const { return command_; }

 private:
  Flag& add(Flag flag);
  Flag* find(std::string_view name);
  [[noreturn]] void unknown(std::string_view name) const;

  std::string command_, summary_;
  std::deque<Flag> flags_;                                // a deque: references handed out stay valid
  std::vector<std::pair<size_t, std::string>> sections_;  // index of the first flag under the title
};

}  // namespace tidepool::base
