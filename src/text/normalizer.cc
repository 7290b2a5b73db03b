#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/check.h"
#include "text/component.h"
#include "text/utf8.h"

namespace tidepool::text {
namespace {

constexpr int kMaxDecomposition = 32;  // code points; the longest of Unicode has 18

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Sorts every run of combining marks by class, keeping the order within a class. utf8proc does this by exchanging
// neighbours, which takes quadratic time on a long run.
void sort_marks(std::vector<utf8proc_int32_t>& code_points) {
  for (size_t i = 0; i < code_points.size();) {
    size_t end = i;
    while (end < code_points.size() && combining_class(code_points[end]) != 0) ++end;
    if (end - i > 1) {
      std::stable_sort(code_points.begin() + static_cast<std::ptrdiff_t>(i),
                       code_points.begin() + static_cast<std::ptrdiff_t>(end),
                       [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    }
    i = std::max(end, i + 1);
  }
}

std::string normalize(std::string_view text, int options) {
  auto flags = static_cast<utf8proc_option_t>(options);
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    CodePoint c = code_point_at(text, pos);
    pos += c.len;
    utf8proc_int32_t parts[kMaxDecomposition];
    int last_boundclass = 0;
    auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), parts, kMaxDecomposition, flags,
                                         &last_boundclass);
    tidepool_check(count >= 0 && count <= kMaxDecomposition, "U+{:04X} cannot be normalised: {}",
                   static_cast<uint32_t>(c.value), utf8proc_errmsg(count));
    code_points.insert(code_points.end(), parts, parts + count);
  }
  sort_marks(code_points);
  auto len = utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), flags);
  tidepool_check(len >= 0, "text cannot be normalised: {}", utf8proc_errmsg(len));
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < len; ++i) {
    append_utf8(static_cast<char32_t>(code_points[static_cast<size_t>(i)]), out);
  }
  return out;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

void Normalizer::read(const base::Json& json, const std::string& where, int depth) {
  check_sequence_depth(depth, where);
  Component component(json, where);
  if (component.type() == "Sequence") {
    component.allow_only({"normalizers"});
    const auto& children = component.at("normalizers").as_array(component.place("normalizers"));
    for (size_t i = 0; i < children.size(); ++i)
      read(children[i], fmt::format("{}.normalizers[{}]", where, i), depth + 1);
    return;
  }
  component.allow_only({});
  if (component.type() == "NFC") {
    forms_.push_back(Form::kNfc);
  } else if (component.type() == "NFKC") {
    forms_.push_back(Form::kNfkc);
  } else {
    component.refuse_type("normalizer", "null, NFC, NFKC, Sequence");
  }
}

Normalizer Normalizer::from_json(const base::Json& json, const std::string& where) {
  Normalizer normalizer;
  if (!json.is_null()) normalizer.read(json, where, 0);
  return normalizer;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  if (is_ascii(text)) return out;
  for (Form form : forms_) {
    out = normalize(out, UTF8PROC_STABLE | UTF8PROC_COMPOSE | (form == Form::kNfkc ? UTF8PROC_COMPAT : 0));
  }
  return out;
}

}  // namespace tidepool::text
