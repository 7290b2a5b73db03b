#include "bench_report.h"

#include <fmt/format.h>

#include "output.h"

namespace tidepool::cli {
namespace {

using base::Json;

Json drafts_json(const BenchDrafts& drafts) {
  Json out = Json::object();
  out.set("num_draft_tokens", drafts.num_draft_tokens);
  out.set("accept_length", drafts.accept_length);
  out.set("main_ms", drafts.main_ms);
  out.set("mtp_ms", drafts.mtp_ms);
  out.set("floor_main_ms", drafts.floor_main_ms);
  out.set("floor_mtp_ms", drafts.floor_mtp_ms);
  out.set("tokens_per_s", drafts.tokens_per_s);
  out.set("ratio_to_no_drafts", drafts.ratio_to_no_drafts);
  out.set("floor_tokens_per_s", drafts.floor_tokens_per_s);
  out.set("floor_ratio_to_no_drafts", drafts.floor_ratio_to_no_drafts);
  return out;
}

Json row_json(const BenchRow& row) {
  Json out = Json::object();
  out.set("what", row.what);
  out.set("exec", exec_mode_name(row.exec));
  out.set("context_tokens", row.context_tokens);
  out.set("batch", row.batch);
  out.set("rows", row.rows);
  out.set("pool_size", row.pool_size);
  out.set("step_ms", row.step_ms);
  out.set("floor_ms", row.floor_ms);
  out.set("ratio_to_floor", row.ratio_to_floor);
  out.set("ratio_to_off", row.ratio_to_off);
  out.set("step_to_one_row", row.step_to_one_row);
  out.set("floor_to_one_row", row.floor_to_one_row);
  out.set("hit_rate", row.hit_rate);
  out.set("peak_share", row.peak_share);
  out.set("overhead_share", row.overhead_share);
  out.set("outside_share", row.outside_share);
  if (row.drafts) out.set("drafts", drafts_json(*row.drafts));
  Json parts = Json::array();
  for (const BenchPart& part : row.parts) {
    Json one = Json::object();
    one.set("name", part.name);
    one.set("ms", part.ms);
    one.set("floor_ms", part.floor_ms);
    one.set("bytes", part.bytes);
    one.set("multiply_adds", part.multiply_adds);
    parts.push_back(std::move(one));
  }
  out.set("parts", std::move(parts));
  return out;
}

bool is_decode(const BenchRow& row) { return row.step_ms > 0 && row.peak_share == 0; }

std::string heading(const BenchRow& row) {
  std::string out = row.what;
  if (is_decode(row)) out += fmt::format(", {}", exec_mode_name(row.exec));
  out += fmt::format(", {} tokens, batch {}", count_text(row.context_tokens), row.batch);
  if (row.drafts) {
    out += fmt::format(", {} drafts", row.drafts->num_draft_tokens);
  } else if (row.rows > 1) {
    out += fmt::format(", {} rows", row.rows);
  }
  if (row.pool_size > 0) out += fmt::format(", pool {} rows", count_text(row.pool_size));
  if (row.hit_rate > 0) out += fmt::format(", {:.1f} % hits", 100 * row.hit_rate);
  if (row.ratio_to_off > 0) out += fmt::format(", {:.2f} times off", row.ratio_to_off);
  if (row.peak_share > 0) out += fmt::format(", {:.0f} % of the multiply-add peak", 100 * row.peak_share);
  return out;
}

// Behind the parts of a decode step.
std::string decode_text(const BenchRow& row) {
  std::string out = fmt::format("  in no operation: {:.1f} %; outside kernels: {:.1f} %\n", 100 * row.overhead_share,
                                100 * row.outside_share);
  if (row.floor_to_one_row > 0) {
    out += fmt::format("  to one row: step {:.2f}, floor {:.2f}\n", row.step_to_one_row, row.floor_to_one_row);
  }
  if (!row.drafts) return out;
  const BenchDrafts& d = *row.drafts;
  out += fmt::format("  {:.2f} tokens a step, {:.1f} tokens/s, {:.2f} times no drafts", d.accept_length, d.tokens_per_s,
                     d.ratio_to_no_drafts);
  return out + fmt::format("; at the floor {:.1f} tokens/s, {:.2f} times\n", d.floor_tokens_per_s,
                           d.floor_ratio_to_no_drafts);
}

std::string row_text(const BenchRow& row) {
  const bool is_prefill = row.peak_share > 0;
  const int digits = row.step_ms > 0 ? 3 : 5;  // single operators are short
  std::string out =
      fmt::format("\n{}\n  {:<32} {:>11} {:>11} {:>7}{}\n", heading(row), "part", "ms", "floor ms", "ratio",
                  is_prefill        ? "   ns per 1,000 multiply-adds"
                  : row.step_ms > 0 ? "  share"
                                    : "");
  const auto line = [&](const std::string& name, double ms, double floor_ms) {
    out += fmt::format("  {:<32} {:>11.{}f} {:>11.{}f} ", name, ms, digits, floor_ms, digits);
    out += floor_ms > 0 ? fmt::format("{:>7.2f}", ms / floor_ms) : fmt::format("{:>7}", "");
  };
  for (const BenchPart& part : row.parts) {
    line(part.name, part.ms, part.floor_ms);
    if (is_prefill && part.multiply_adds > 0) {
      out += fmt::format(" {:>28.2f}", 1e9 * part.ms / static_cast<double>(part.multiply_adds));
    } else if (!is_prefill && row.step_ms > 0 && !part.name.ends_with("(in flight)")) {
      out += fmt::format(" {:>4.0f} %", 100 * part.ms / row.step_ms);
    }
    out += "\n";
  }
  if (row.step_ms == 0) return out;
  const auto whole = [&](const char* name, double ms, double floor_ms) {
    line(name, ms, floor_ms);
    out += "\n";
  };
  if (row.drafts) {
    whole("main pass", row.drafts->main_ms, row.drafts->floor_main_ms);
    whole("MTP passes", row.drafts->mtp_ms, row.drafts->floor_mtp_ms);
  }
  whole(is_prefill ? "whole prompt" : "step", row.step_ms, row.floor_ms);
  return out + (is_prefill ? fmt::format("  in no operation: {:.1f} %\n", 100 * row.overhead_share) : decode_text(row));
}

}  // namespace

Json bench_json(const BenchResult& result) {
  Json rows = Json::array();
  for (const BenchRow& row : result.rows) rows.push_back(row_json(row));
  Json floor = Json::object();
  floor.set("read_bytes_per_s", result.machine.read_bytes_per_s);
  floor.set("copy_bytes_per_s", result.machine.copy_bytes_per_s);
  floor.set("multiply_adds_per_s", result.machine.multiply_adds_per_s);
  floor.set("simd_target", result.machine.simd_target);
  floor.set("num_threads", result.machine.num_threads);
  Json out = Json::object();
  out.set("rows", std::move(rows));
  out.set("floor", std::move(floor));
  return out;
}

std::string bench_text(const BenchResult& result) {
  const MachineRates& m = result.machine;
  std::string out = fmt::format(
      "machine: {} threads, {}; reads {:.1f} GB/s, copies {:.1f} GB/s, {:.1f} G multiply-adds/s\n", m.num_threads,
      m.simd_target, m.read_bytes_per_s / 1e9, m.copy_bytes_per_s / 1e9, m.multiply_adds_per_s / 1e9);
  for (const BenchRow& row : result.rows) out += row_text(row);
  return out;
}

}  // namespace tidepool::cli
