#include "base/flags.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/text.h"

namespace tidepool::base {
namespace {

template <typename... Args>
[[noreturn]] void usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

// Limits are doubles; those that are whole numbers are printed as such.
std::string limit_text(double limit) {
  if (limit >= static_cast<double>(INT64_MAX)) return "2^63 - 1";
  if (limit == std::floor(limit) && std::abs(limit) < 1e15) return fmt::format("{}", static_cast<int64_t>(limit));
  return fmt::format("{}", limit);
}

template <class... Ts>
struct Overload : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overload(Ts...) -> Overload<Ts...>;

}  // namespace

Flag::Flag(std::string name, std::string type, std::string placeholder, Target target)
    : name_(std::move(name)), type_(std::move(type)), placeholder_(std::move(placeholder)), target_(target) {
  default_ = value_text();
}

Flag& Flag::help(std::string text) {
  help_ = std::move(text);
  return *this;
}
Flag& Flag::unit(std::string unit) {
  unit_ = std::move(unit);
  return *this;
}
Flag& Flag::range(double low, double high) {
  low_ = low;
  high_ = high;
  return *this;
}
Flag& Flag::above(double low, double high) {
  is_low_excluded_ = true;
  return range(low, high);
}
Flag& Flag::later_choices(std::vector<std::string> values) {
  later_choices_ = std::move(values);
  return *this;
}
Flag& Flag::later() {
  later_ = true;
  return *this;
}
Flag& Flag::default_text(std::string text) {
  default_ = std::move(text);
  return *this;
}
Flag& Flag::required() {
  required_ = true;
  return *this;
}
Flag& Flag::required_unless(std::string other) {
  unless_ = std::move(other);
  return required();
}
Flag& Flag::input_file() {
  path_ = Path::kInputFile;
  return *this;
}
Flag& Flag::input_directory() {
  path_ = Path::kInputDirectory;
  return *this;
}
Flag& Flag::output_file() {
  path_ = Path::kOutputFile;
  return *this;
}
Flag& Flag::output_stream() {
  path_ = Path::kOutputStream;
  return *this;
}
Flag& Flag::output_directory() {
  path_ = Path::kOutputDirectory;
  return *this;
}
Flag& Flag::choices(std::vector<std::string> available) {
  choices_ = std::move(available);
  placeholder_ = join(choices_, "|");
  return *this;
}

std::string Flag::value_text() const {
  return std::visit(Overload{[](bool* v) { return std::string(v != nullptr && *v ? "on" : "off"); },
                             [](std::string* v) { return v == nullptr ? std::string() : *v; },
                             [](std::vector<std::string>* v) { return join(*v, ","); },
                             [](std::vector<int32_t>* v) { return fmt::format("{}", fmt::join(*v, ",")); },
                             [](auto* v) { return fmt::format("{}", *v); }},
                    target_);
}

std::string Flag::range_text() const {
  const std::string unit = unit_.empty() ? "" : " " + unit_;
  const char* format = is_low_excluded_ ? "above {}, up to {}{}" : "{} to {}{}";
  return fmt::format(fmt::runtime(format), limit_text(*low_), limit_text(*high_), unit);
}

void Flag::check_range(double number, std::string_view value) const {
  if (!low_ || (number >= *low_ && number <= *high_ && !(is_low_excluded_ && number == *low_))) return;
  usage("{} {}: the value must be {}", name_, value, range_text());
}

int64_t Flag::parse_integer(std::string_view value) const {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc::result_out_of_range && low_) usage("{} {}: the value must be {}", name_, value, range_text());
  if (error != std::errc() || end != value.data() + value.size()) usage("{} \"{}\": not an integer", name_, value);
  check_range(static_cast<double>(number), value);
  return number;
}

double Flag::parse_number(std::string_view value) const {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number)) {
    usage("{} \"{}\": not a number", name_, value);
  }
  check_range(number, value);
  return number;
}

void Flag::check_choice(std::string_view value) const {
  if (choices_.empty() || std::find(choices_.begin(), choices_.end(), value) != choices_.end()) return;
  if (std::find(later_choices_.begin(), later_choices_.end(), value) != later_choices_.end()) {
    usage("{} {} is not available yet (available: {})", name_, value, join(choices_, ", "));
  }
  usage("{} {}: the value must be one of {}", name_, value, join(choices_, ", "));
}

void Flag::check_output(std::string& path) const {
  struct stat info {};
  const bool is_directory = path_ == Path::kOutputDirectory;
  while (is_directory && path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    usage("{} {}: there is no folder {}", name_, path, folder);
  }
  if (stat(path.c_str(), &info) == 0) {
    const bool is_stream = path_ == Path::kOutputStream && (S_ISCHR(info.st_mode) || S_ISFIFO(info.st_mode));
    if (is_stream) return;
    if (is_directory && !S_ISDIR(info.st_mode)) usage("{} {}: is there and is not a directory", name_, path);
    if (!is_directory && !S_ISREG(info.st_mode)) usage("{} {}: is there and is not a regular file", name_, path);
    struct stat out {};
    if (fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == info.st_dev && out.st_ino == info.st_ino) {
      usage("{} {}: is standard output, which has other uses", name_, path);
    }
  } else if (errno != ENOENT) {
    usage("{} {}: {}", name_, path, std::strerror(errno));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) usage("{} {}: {}", name_, path, std::strerror(errno));
}

void Flag::check_path(std::string& path) const {
  if (path_ == Path::kNone) return;
  if (path.empty()) usage("{}: the path is empty", name_);
  if (path_ >= Path::kOutputFile) return check_output(path);
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) usage("{} {}: {}", name_, path, std::strerror(errno));
  const bool is_directory = S_ISDIR(info.st_mode);
  if (path_ == Path::kInputDirectory && !is_directory) usage("{} {}: not a directory", name_, path);
  if (path_ == Path::kInputFile && is_directory) usage("{} {}: a directory, not a file", name_, path);
  if (access(path.c_str(), R_OK) != 0) usage("{} {}: {}", name_, path, std::strerror(errno));
}

void Flag::accept(std::string_view value) {
  check_choice(value);
  std::visit(Overload{[](bool* v) { *v = true; }, [&](int32_t* v) { *v = static_cast<int32_t>(parse_integer(value)); },
                      [&](int64_t* v) { *v = parse_integer(value); },
                      [&](uint64_t* v) { *v = static_cast<uint64_t>(parse_integer(value)); },
                      [&](double* v) { *v = parse_number(value); },
                      [&](std::string* v) {
                        *v = value;
                        check_path(*v);
                      },
                      [&](std::vector<std::string>* v) {
                        if (!given_) v->clear();
                        v->emplace_back(value);
                        check_path(v->back());
                      },
                      [&](std::vector<int32_t>* v) {
                        v->clear();
                        for (size_t at = 0; at <= value.size();) {
                          const size_t comma = std::min(value.find(',', at), value.size());
                          v->push_back(static_cast<int32_t>(parse_integer(value.substr(at, comma - at))));
                          at = comma + 1;
                        }
                      }},
             target_);
  given_ = true;
}

std::string Flag::usage_line() const { return is_switch() ? name_ : name_ + " " + placeholder_; }

std::string Flag::facts() const {
  if (later_) return "not available yet";
  std::string out = type_;
  if (low_ && choices_.empty()) {
    out += ", " + range_text();
  } else if (!unit_.empty()) {
    out += ", " + unit_;
  }
  if (std::holds_alternative<std::vector<std::string>*>(target_)) out += ", may be repeated";
  if (!unless_.empty()) return out + "; required unless " + unless_ + " says it";
  out += required_ ? "; required" : "; default " + (default_.empty() ? "none" : default_);
  if (!later_choices_.empty()) out += "; not available yet: " + join(later_choices_, ", ");
  return out;
}

FlagSet::FlagSet(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)) {}

Flag& FlagSet::add(Flag flag) {
  tidepool_check(find(flag.name_) == nullptr, "option {} is declared twice", flag.name_);
  flags_.push_back(std::move(flag));
  return flags_.back();
}

Flag& FlagSet::toggle(std::string name, bool* target) { return add(Flag(std::move(name), "switch", "", target)); }
Flag& FlagSet::integer(std::string name, int32_t* target) {
  return add(Flag(std::move(name), "integer", "N", target)).range(INT32_MIN, INT32_MAX);
}
Flag& FlagSet::integer(std::string name, int64_t* target) { return add(Flag(std::move(name), "integer", "N", target)); }
Flag& FlagSet::integer(std::string name, uint64_t* target) {
  return add(Flag(std::move(name), "integer", "N", target)).range(0, 9223372036854775807.0);
}
Flag& FlagSet::integers(std::string name, std::vector<int32_t>* target) {
  return add(Flag(std::move(name), "integers separated by commas", "N,N", target)).range(INT32_MIN, INT32_MAX);
}
Flag& FlagSet::number(std::string name, double* target) { return add(Flag(std::move(name), "number", "X", target)); }
Flag& FlagSet::text(std::string name, std::string* target, std::string placeholder) {
  const char* type = placeholder == "DIR" ? "directory" : placeholder == "T" || placeholder == "NAME" ? "text" : "file";
  return add(Flag(std::move(name), type, std::move(placeholder), target));
}
Flag& FlagSet::texts(std::string name, std::vector<std::string>* target, std::string placeholder) {
  const char* type = placeholder == "T" ? "text" : "file";
  return add(Flag(std::move(name), type, std::move(placeholder), target));
}
Flag& FlagSet::choice(std::string name, std::string* target, std::vector<std::string> values) {
  return add(Flag(std::move(name), "one of these", "", target)).choices(std::move(values));
}
Flag& FlagSet::later(std::string name, std::string placeholder) {
  const Flag::Target target = placeholder.empty() ? Flag::Target(static_cast<bool*>(nullptr))
                                                  : Flag::Target(static_cast<std::string*>(nullptr));
  return add(Flag(std::move(name), "", std::move(placeholder), target)).later();
}

void FlagSet::section(std::string title) { sections_.emplace_back(flags_.size(), std::move(title)); }

Flag* FlagSet::find(std::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name_ == name) return &flag;
  }
  return nullptr;
}

bool FlagSet::given(std::string_view name) const {
  return std::any_of(flags_.begin(), flags_.end(), [&](const Flag& f) { return f.name_ == name && f.given_; });
}

void FlagSet::unknown(std::string_view name) const {
  std::vector<std::string> known{"--help"};
  for (const Flag& flag : flags_) known.push_back(flag.name_);
  usage("unknown option {}; the nearest known one is {}", name, nearest_name(name, known));
}

FlagSet::Outcome FlagSet::parse(std::span<const std::string> arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") return kHelp;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument.substr(0, 1) != "-") usage("unexpected argument \"{}\"; options start with --", argument);
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    Flag* flag = find(name);
    if (flag == nullptr) unknown(name);
    if (flag->later_) usage("{} is not available yet", name);
    const bool is_list = std::holds_alternative<std::vector<std::string>*>(flag->target_);
    if (flag->given_ && !is_list) usage("{} is given twice", name);
    if (flag->is_switch()) {
      if (equals != std::string_view::npos) usage("{} takes no value", argument);
      flag->accept("");
    } else if (equals != std::string_view::npos) {
      flag->accept(argument.substr(equals + 1));
    } else {
      if (i + 1 == arguments.size()) usage("{} needs a value: {}", name, flag->usage_line());
      flag->accept(arguments[++i]);
    }
  }
  for (const Flag& flag : flags_) {
    const bool is_excused = !flag.unless_.empty() && given(flag.unless_);
    if (flag.required_ && !flag.given_ && !is_excused) usage("{} is required", flag.usage_line());
  }
  return kRun;
}

std::string FlagSet::help_text() const {
  std::string required;
  for (const Flag& flag : flags_) {
    if (flag.required_) required += " " + flag.usage_line();
  }
  std::string out = fmt::format("{}: {}\n\nusage: {}{} [options]\n", command_, summary_, command_, required);
  size_t next_section = 0;
  for (size_t i = 0; i < flags_.size(); ++i) {
    while (next_section < sections_.size() && sections_[next_section].first == i) {
      out += fmt::format("\n{}\n", sections_[next_section++].second);
    }
    out += fmt::format("  {:<28} {}\n", flags_[i].usage_line(), flags_[i].facts());
    if (!flags_[i].help_.empty()) out += fmt::format("  {:<28}   {}\n", "", flags_[i].help_);
  }
  out += fmt::format("  {:<28} this text\n", "--help");
  return out;
}

}  // namespace tidepool::base
