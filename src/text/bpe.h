// The "model" of tokenizer.json: byte-level BPE. Cuts one piece into the tokens that the merges make of its bytes.
//
// Borrows the Vocabulary, which must outlive it. Immutable and thread safe; a Scratch belongs to one thread at a time.
// Time is n log n in the bytes of a piece.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/vocabulary.h"

namespace tidepool::text {

class Bpe {
 public:
  // Adds model.vocab to `vocabulary` (empty before), closes the model there, and reads model.merges. Throws for another
  // model type, options that would change the result (dropout, prefixes, suffixes, byte_fallback), merges of unknown
  // tokens, and bad ids.
  static Bpe from_json(const base::Json& json, const std::string& where, Vocabulary& vocabulary);

  // Buffers of one run.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      int32_t id;          // -1: merged into the symbol before it
      int32_t prev, next;  // indices, -1 at the ends
    };
    struct Candidate {  // "merge the symbol at pos with its successor"
      int32_t rank, pos, id;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::string token;
  };

  // Appends the ids of `piece` (bytes of text, not in the byte-level alphabet; less than 2 GiB). Throws when a byte of
  // it has no token.
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const;

 private:
  // Open addressing with linear probing: one cache miss for most look-ups, twice as fast as std::unordered_map here.
  class MergeTable {
   public:
    struct Merge {
      uint64_t pair = kEmpty;
      int32_t rank = 0, id = 0;
    };
    void reserve(size_t num_merges);                                     // before the first insert
    void insert(int32_t left, int32_t right, int32_t rank, int32_t id);  // replaces an earlier merge of the pair
    const Merge* find(int32_t left, int32_t right) const;                // null when there is none

   private:
    static constexpr uint64_t kEmpty = ~uint64_t{0};
    static uint64_t key(int32_t left, int32_t right);
    size_t home(uint64_t pair) const { return static_cast<size_t>(pair * 0x9E3779B97F4A7C15u >> shift_); }
    std::vector<Merge> slots_;  // [2^(64 - shift_)], at most half full
    int shift_ = 63;
  };

  void read_options(const base::Json& json, const std::string& where);
  void read_merges(const base::Json& json, const std::string& where);
  void add_merge(const std::string& left, const std::string& right, int32_t rank, const std::string& place);
  void push_candidate(Scratch& scratch, int32_t pos) const;
  void merge_all(Scratch& scratch) const;

  const Vocabulary* vocabulary_ = nullptr;
  std::array<int32_t, 256> id_of_byte_{};  // -1: no token
  MergeTable merges_;
  bool ignore_merges_ = false;  // a piece that is a token of the model is not taken apart
  std::string where_;
};

}  // namespace tidepool::text
