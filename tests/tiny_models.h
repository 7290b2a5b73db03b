// Small random checkpoints for tests, made once per process and removed at its end.
#pragma once

#include <string>

namespace tidepool::test {

// The preset `tiny`: 8 layers in groups {0} {1} {2-5} {6,7}, an MTP layer, top-k of 8, vocabulary 256. Its drafts are
// as good as guesses.
const std::string& tiny_model();

// `tiny` with a vocabulary of 64 and layers that add little to the embedding, so that the next token depends mostly on
// the last one and its MTP layer, which sees that one, is often right. The draft steps keep the first one's list of
// positions (index_share_for_mtp_iteration) or each make their own.
const std::string& accepting_model(bool shares_index);

}  // namespace tidepool::test
