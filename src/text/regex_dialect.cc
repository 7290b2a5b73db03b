#include "text/regex_dialect.h"

#include <cctype>

#include "base/check.h"

namespace tidepool::text {
namespace {

// Members of a class, without brackets. PCRE2's own \s takes U+180E in and its \w leaves marks out. Each begins and
// ends with a property, so that a hyphen beside it cannot become part of a range.
constexpr std::string_view kSpace = R"(\p{Zs}\x09-\x0d\x{85}\p{Zl}\p{Zp})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}\p{Nd}\p{Nl}\p{Pc})";
// Outside a class, Oniguruma's \w takes the superscripts and fractions of Latin-1 in as well.
constexpr std::string_view kBareWord =
    R"(\p{L}\p{M}\xb2\xb3\xb9\xbc-\xbe\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
    R"(\x{1f170}-\x{1f189}\p{Nd}\p{Nl}\p{Pc})";

bool is_category(std::string_view name) {
  if (name.empty() || name.size() > 2) return false;
  constexpr std::string_view kMinors[] = {"Cc Cf Cn Co Cs",       "Ll Lm Lo Lt Lu", "Mc Me Mn", "Nd Nl No",
                                          "Pc Pd Pe Pf Pi Po Ps", "Sc Sk Sm So",    "Zl Zp Zs"};
  for (std::string_view minors : kMinors) {
    if (name.size() == 1 ? minors[0] == name[0] : minors.find(name) != std::string_view::npos) return true;
  }
  return false;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (pos_ < pattern_.size()) {
      if (in_class_) {
        step_in_class();
      } else {
        step_outside();
      }
    }
    tidepool_check(!in_class_, "{}: regular expression: a character class is not closed", where_);
    return std::move(out_);
  }

 private:
  char peek(size_t ahead) const { return pos_ + ahead < pattern_.size() ? pattern_[pos_ + ahead] : '\0'; }
  void copy(size_t count) {
    out_ += pattern_.substr(pos_, count);
    pos_ += std::min(count, pattern_.size() - pos_);
  }
  void replace(size_t count, std::string_view text) {
    out_ += text;
    pos_ += count;
  }
  [[noreturn]] void refuse(std::string_view construct) const {
    tidepool_fail("{}: regular expression: {} at byte {} is not supported", where_, construct, pos_);
  }

  void step_outside() {
    switch (peek(0)) {
      case '\\':
        return escape();
      case '(':
        return group();
      case '{':
        return interval();
      case '[':
        copy(1);
        in_class_ = true;
        if (peek(0) == '^') copy(1);
        if (peek(0) == ']') refuse("an unescaped ] as first member of a class");
        return;
      default:
        copy(1);
    }
  }

  void step_in_class() {
    switch (peek(0)) {
      case '\\':
        return escape();
      case '[':
        refuse("[ inside a character class (nested class or POSIX bracket)");
      case '&':
        if (peek(1) == '&') refuse("&& (class intersection)");
        return copy(1);
      case ']':
        in_class_ = false;
        return copy(1);
      default:
        copy(1);
    }
  }

  void members(std::string_view set, bool negated) {
    if (in_class_) {
      if (negated) refuse("\\W or \\H inside a class");
      return replace(2, set);
    }
    replace(2, fmt::format("[{}{}]", negated ? "^" : "", set));
  }

  void escape() {
    char c = peek(1);
    switch (c) {
      case 's':
        return members(kSpace, false);
      case 'S':
        return in_class_ ? replace(2, R"(\P{White_Space})") : members(kSpace, true);
      case 'w':
        return members(in_class_ ? kWord : kBareWord, false);
      case 'W':
        return members(kBareWord, true);
      case 'h':
        return members("0-9a-fA-F", false);
      case 'H':
        return members("0-9a-fA-F", true);
      case 'v':
        return replace(2, R"(\x0b)");
      case 'b':
      case 'B':
        return in_class_ ? refuse("\\b inside a class") : boundary(c == 'B');
      case 'p':
      case 'P':
        return property();
      case 'x':
      case 'u':
        return code_point(c);
      case 'A':
      case 'z':
      case 'Z':
        if (in_class_) refuse("an anchor inside a class");
        return copy(2);
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return copy(2);
      default:
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) refuse(fmt::format("the escape \\{}", c));
        copy(2);
    }
  }

  void boundary(bool negated) {
    replace(2, negated ? fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kBareWord)
                       : fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kBareWord));
  }

  // Every name that is no general category is taken for a script: alone it would mean the script's extensions.
  void property() {
    if (peek(2) != '{') refuse("\\p without braces");
    size_t end = pattern_.find('}', pos_);
    if (end == std::string_view::npos) refuse("\\p without a closing brace");
    std::string_view name = pattern_.substr(pos_ + 3, end - pos_ - 3);
    bool negated = !name.empty() && name[0] == '^';
    if (negated) name.remove_prefix(1);
    for (char c : name) {
      if (std::isalpha(static_cast<unsigned char>(c)) == 0 && c != '_') refuse("this property");
    }
    replace(end + 1 - pos_,
            fmt::format("\\{}{{{}{}{}}}", peek(1), negated ? "^" : "", is_category(name) ? "" : "sc:", name));
  }

  // \uHHHH, \x{H...} and \xHH, the last only for ASCII: above, Oniguruma takes it for a raw byte.
  void code_point(char kind) {
    size_t start = pos_ + 2, len = kind == 'u' ? 4 : 2, skip = 2 + len;
    if (kind == 'x' && peek(2) == '{') {
      size_t end = pattern_.find('}', pos_);
      if (end == std::string_view::npos) refuse("\\x without a closing brace");
      start = pos_ + 3;
      len = end - start;
      skip = end + 1 - pos_;
    }
    std::string_view digits = pattern_.substr(start, len);
    bool is_hex = !digits.empty() && digits.size() == len && len <= 6;
    for (char c : digits) is_hex = is_hex && std::isxdigit(static_cast<unsigned char>(c)) != 0;
    if (!is_hex) refuse("an ill-formed hexadecimal escape");
    if (kind == 'x' && skip == 4 && digits[0] >= '8') refuse("\\x for a byte that is not ASCII");
    replace(skip, fmt::format("\\x{{{}}}", digits));
  }

  void group() {
    if (peek(1) == '*') refuse("(*");
    if (peek(1) != '?') return copy(1);
    switch (peek(2)) {
      case ':':
      case '=':
      case '!':
      case '>':
        return copy(3);
      case '<':
        if (peek(3) != '=' && peek(3) != '!') refuse("a named group");
        return copy(4);
      default:
        return flags();
    }
  }

  void flags() {
    size_t start = pos_, i = 2;
    std::string letters;
    for (; peek(i) == 'i' || peek(i) == 'm' || peek(i) == '-'; ++i) letters += peek(i) == 'm' ? 's' : peek(i);
    bool scoped = peek(i) == ':';
    // Oniguruma closes a bare (?i) at the end of the alternatives after it, PCRE2 at the end of the group: the same
    // only at the start of the pattern.
    if (i == 2 || (!scoped && !(peek(i) == ')' && start == 0))) refuse("this kind of (? group");
    replace(i + 1, fmt::format("(?{}{}", letters, peek(i)));
  }

  // {n}, {n,} and {n,m}. With a second ? or + behind they mean different things in the two languages.
  void interval() {
    size_t i = 1;
    while (std::isdigit(static_cast<unsigned char>(peek(i))) != 0) ++i;
    bool has_first = i > 1, has_comma = peek(i) == ',';
    if (has_comma) ++i;
    while (std::isdigit(static_cast<unsigned char>(peek(i))) != 0) ++i;
    if (peek(i) != '}' || i == 1) return replace(1, "\\{");
    if (!has_first) refuse("an interval without a lower bound");
    if (peek(i + 1) == '+' || (peek(i + 1) == '?' && !has_comma)) refuse("a second quantifier behind an interval");
    copy(i + 1);
  }

  std::string_view pattern_, where_;
  size_t pos_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string translate_regex(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

}  // namespace tidepool::text
