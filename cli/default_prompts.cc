// Texts to continue, written for this program. They differ in length and subject, so that a batch of them is uneven.
#include <array>

#include "dataset.h"

namespace tidepool::cli {
namespace {

constexpr std::string_view kSystem = "Read the text below and go on from where it ends.\n\n";

constexpr std::array<std::string_view, 8> kPrompts{
    "When the tide went out, it left a pool behind the rocks, and in the pool",
    "The keeper of the lighthouse wrote down every ship that passed. On the first page stood",
    "There are three things to know before you build a wall of dry stone. The first is",
    "A letter, found in a drawer:\n\nMy dear sister,\nthe rain has not stopped since you left, and",
    "The number of steps to the bell is two hundred and twelve. I counted them as a child, and I counted them again "
    "last week, when my knees were older and the bell was gone. The number of steps to the bell is",
    "Question: why does a river bend?\nAnswer:",
    "In the beginning the library had one shelf and one reader. Then a second reader came, and asked for a book that "
    "the first was holding. From that day on the library had rules. The oldest of them said",
    "Soup for many people: take as much water as there are people, and half as many onions. Cut the onions while the "
    "water is still cold. Then"};

}  // namespace

std::span<const std::string_view> default_prompts() { return kPrompts; }
std::string_view system_prompt() { return kSystem; }

}  // namespace tidepool::cli
