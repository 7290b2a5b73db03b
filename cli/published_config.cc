#include "published_config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <variant>

#include "base/check.h"
#include "base/flags.h"
#include "base/text.h"
#include "prompt.h"

namespace tidepool::cli {
namespace {

namespace fs = std::filesystem;
using C = PublishedConfig;

constexpr int32_t kMostTokens = 1 << 30, kMostRequests = 1 << 20, kMostRanks = 1 << 16;

struct Bool {
  bool C::*member;
};
struct Integer {
  int32_t C::*member;
  int32_t low, high;
  std::vector<int32_t> choices{};  // instead of low to high
};
struct Text {
  std::string C::*member;
  std::vector<std::string> choices{};  // empty: any
  bool may_be_nothing = false;         // no value at all is the empty text
};

struct Field {
  const char* section;  // "" at the top
  const char* key;
  std::variant<Bool, Integer, Text> type;
};

const std::vector<Field>& fields() {
  static const std::vector<Field> all{
      {"", "model_name", Text{&C::model_name}},
      {"", "model_path", Text{&C::model_path}},
      {"", "exe_mode", Text{&C::exe_mode, {"eager", "npugraph_ex", "ge_graph"}}},
      {"", "world_size", Integer{&C::world_size, 1, kMostRanks}},
      {"model_config", "enable_offload", Bool{&C::enable_offload}},
      {"model_config", "shared_indexer_offload", Bool{&C::shared_indexer_offload}},
      {"model_config", "enlarge_pool_size", Bool{&C::enlarge_pool_size}},
      {"model_config", "enable_mtp_gather_reuse", Bool{&C::enable_mtp_gather_reuse}},
      {"model_config", "next_n", Integer{&C::next_n, 0, 3}},
      {"model_config", "pa_block_size", Integer{&C::pa_block_size, 0, 0, {128, 256}}},
      {"model_config", "prefill_mini_batch_size", Integer{&C::prefill_mini_batch_size, 0, kMostRequests}},
      {"model_config", "with_ckpt", Bool{&C::with_ckpt}},
      {"model_config", "enable_weight_nz", Bool{&C::enable_weight_nz}},
      {"model_config", "enable_multi_streams", Bool{&C::enable_multi_streams}},
      {"model_config", "enable_profiler", Bool{&C::enable_profiler}},
      {"model_config", "perfect_eplb", Bool{&C::perfect_eplb}},
      {"model_config", "enable_cache_compile", Bool{&C::enable_cache_compile}},
      {"model_config", "enable_online_split_weight", Bool{&C::enable_online_split_weight}},
      {"model_config", "enable_superkernel", Bool{&C::enable_superkernel}},
      {"model_config", "enable_static_kernel", Bool{&C::enable_static_kernel}},
      {"model_config", "enable_skip_guard", Bool{&C::enable_skip_guard}},
      {"model_config", "platform_version", Text{&C::platform_version}},
      {"data_config", "dataset", Text{&C::dataset, {"default", "LongBench", "InfiniteBench"}}},
      {"data_config", "dataset_path", Text{&C::dataset_path, {}, true}},
      {"data_config", "input_max_len", Integer{&C::input_max_len, 1, kMostTokens}},
      {"data_config", "max_new_tokens", Integer{&C::max_new_tokens, 1, kMostTokens}},
      {"data_config", "batch_size", Integer{&C::batch_size, 1, kMostRequests}},
      {"parallel_config", "cp_size", Integer{&C::cp_size, 1, kMostRanks}},
      {"parallel_config", "attn_tp_size", Integer{&C::attn_tp_size, 1, kMostRanks}},
      {"parallel_config", "oproj_tp_size", Integer{&C::oproj_tp_size, 1, kMostRanks}},
      {"parallel_config", "dense_tp_size", Integer{&C::dense_tp_size, 1, kMostRanks}},
      {"parallel_config", "moe_tp_size", Integer{&C::moe_tp_size, 1, kMostRanks}},
      {"parallel_config", "embed_tp_size", Integer{&C::embed_tp_size, 1, kMostRanks}},
      {"parallel_config", "lmhead_tp_size", Integer{&C::lmhead_tp_size, 1, kMostRanks}}};
  return all;
}

constexpr const char* kSections[] = {"model_config", "data_config", "parallel_config"};

bool is_section(std::string_view name) {
  return std::find(std::begin(kSections), std::end(kSections), name) != std::end(kSections);
}

const Field* find_field(std::string_view key) {
  for (const Field& field : fields()) {
    if (key == field.key) return &field;
  }
  return nullptr;
}

// A value as it stands in a sentence.
std::string shown(const YamlNode& value) {
  if (value.kind != YamlNode::Kind::kText) return kind_name(value.kind);
  return value.is_quoted ? fmt::format("\"{}\"", base::shown(value.text)) : base::shown(value.text);
}

class Reader {
 public:
  explicit Reader(C& config) : config_(config) {}

  void read_top(const YamlNode& root) {
    if (root.kind != YamlNode::Kind::kMap) {
      refuse(root.place, fmt::format("the file is {}, not a map of options", kind_name(root.kind)));
    }
    for (const YamlMember& member : root.members) {
      if (!is_section(member.key)) {
        read_member(member, "");
      } else {
        note_key(member);
        read_section(member);
      }
    }
    if (!config_.given("lmhead_tp_size")) config_.lmhead_tp_size = config_.embed_tp_size;
    for (const char* section : kSections) config_.places.erase(section);
  }

 private:
  [[noreturn]] void refuse(Place place, const std::string& what) const {
    throw base::UsageError(fmt::format("{}:{}:{}: {}", config_.file, place.line, place.column, what));
  }
  [[noreturn]] void refuse_value(const YamlMember& m, const std::string& wanted) const {
    refuse(m.value.place.line > 0 ? m.value.place : m.place,
           fmt::format("{} {}: the value must be {}", m.key, shown(m.value), wanted));
  }

  void note_key(const YamlMember& m) {
    const auto [it, is_new] = config_.places.emplace(m.key, m.place);
    if (!is_new) {
      refuse(m.place, fmt::format("{} stands here a second time; the first is at {}:{}", m.key, it->second.line,
                                  it->second.column));
    }
  }

  void read_section(const YamlMember& m) {
    if (m.value.kind != YamlNode::Kind::kMap) refuse_value(m, "a map");
    for (const YamlMember& option : m.value.members) read_member(option, m.key);
  }

  [[noreturn]] void refuse_key(const YamlMember& m, const std::string& section) const {
    const std::string place = section.empty() ? "at the top" : "in " + section;
    if (const Field* elsewhere = find_field(m.key)) {
      const std::string home = *elsewhere->section == '\0' ? "at the top" : fmt::format("in {}", elsewhere->section);
      refuse(m.place, fmt::format("{} stands {}; it belongs {}", m.key, place, home));
    }
    std::vector<std::string> known = published_keys();
    known.insert(known.end(), std::begin(kSections), std::end(kSections));
    refuse(m.place, fmt::format("unknown key {} {}; the nearest known one is {}", base::shown(m.key), place,
                                base::nearest_name(m.key, known)));
  }

  void read_member(const YamlMember& m, const std::string& section) {
    const Field* field = find_field(m.key);
    if (field == nullptr || section != field->section) refuse_key(m, section);
    note_key(m);
    std::visit([&](const auto& type) { read_value(m, type); }, field->type);
    config_.places[m.key] = m.value.place;
  }

  void read_value(const YamlMember& m, const Bool& type) {
    const YamlNode& v = m.value;
    const bool is_plain = v.kind == YamlNode::Kind::kText && !v.is_quoted;
    const bool is_true = v.text == "True" || v.text == "true", is_false = v.text == "False" || v.text == "false";
    if (!is_plain || !(is_true || is_false)) refuse_value(m, "True or False");
    config_.*type.member = is_true;
  }

  void read_value(const YamlMember& m, const Integer& type) {
    const std::optional<int64_t> value = integer(m.value);
    const std::string wanted = type.choices.empty()
                                   ? fmt::format("an integer, {} to {}", type.low, type.high)
                                   : fmt::format("one of the integers {}", fmt::join(type.choices, ", "));
    if (!value) refuse_value(m, wanted);
    const bool is_allowed = type.choices.empty()
                                ? *value >= type.low && *value <= type.high
                                : std::find(type.choices.begin(), type.choices.end(), *value) != type.choices.end();
    if (!is_allowed) refuse_value(m, wanted);
    config_.*type.member = static_cast<int32_t>(*value);
  }

  void read_value(const YamlMember& m, const Text& type) {
    const YamlNode& v = m.value;
    const std::string wanted =
        type.choices.empty() ? "a text of one line" : fmt::format("one of {}", fmt::join(type.choices, ", "));
    if (v.kind == YamlNode::Kind::kNull && type.may_be_nothing) return;
    if (v.kind != YamlNode::Kind::kText || base::one_line(v.text) != v.text) refuse_value(m, wanted);
    if (!type.choices.empty() && std::find(type.choices.begin(), type.choices.end(), v.text) == type.choices.end()) {
      refuse_value(m, wanted);
    }
    config_.*type.member = v.text;
  }

  // Decimal digits without a leading zero, which YAML 1.1 reads as octal and YAML 1.2 does not. Nothing for all else,
  // and for what int64 cannot hold.
  static std::optional<int64_t> integer(const YamlNode& v) {
    if (v.kind != YamlNode::Kind::kText || v.is_quoted) return std::nullopt;
    const std::string_view digits = std::string_view(v.text).substr(v.text.starts_with('-') ? 1 : 0);
    if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(v.text.data(), v.text.data() + v.text.size(), value);
    if (error != std::errc() || end != v.text.data() + v.text.size()) return std::nullopt;
    return value;
  }

  C& config_;
};

int64_t align_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

void resolve(std::string& path, const std::string& file) {
  if (!path.empty()) path = (fs::path(file).parent_path() / path).string();  // an absolute one stays as it is
}

}  // namespace

std::string PublishedConfig::at(std::string_view key) const {
  const auto it = places.find(key);
  if (it == places.end()) return fmt::format("{}: {}", file, key);
  return fmt::format("{}:{}:{}: {}", file, it->second.line, it->second.column, key);
}

int32_t PublishedConfig::bs_per_cp_group() const {
  return cp_size > 1 ? batch_size / (world_size / cp_size / attn_tp_size) : 0;
}

int64_t PublishedConfig::input_len() const {
  return cp_size > 1 ? align_up(input_max_len, int64_t{2} * cp_size) : input_max_len;
}

int64_t PublishedConfig::pa_max_length() const {
  return align_up(input_len() + int64_t{max_new_tokens} * (next_n + 1), pa_block_size);
}

PublishedConfig parse_published_config(std::string_view text, const std::string& file) {
  PublishedConfig config;
  config.file = file;
  Reader(config).read_top(parse_yaml(text, file));
  resolve(config.model_path, file);
  resolve(config.dataset_path, file);
  return config;
}

PublishedConfig load_published_config(const std::string& path) { return parse_published_config(read_file(path), path); }

std::vector<std::string> published_keys() {
  std::vector<std::string> keys;
  for (const Field& field : fields()) keys.emplace_back(field.key);
  return keys;
}

}  // namespace tidepool::cli
