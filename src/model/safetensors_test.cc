#include "model/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/safetensors_writer.h"
#include "model/testing.h"

namespace tidepool::model {
namespace {

using testing::error_of;
using testing::TemporaryDirectory;
using testing::write_file;

std::string length_bytes(uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

std::string image(const std::string& header, size_t data_bytes) {
  return length_bytes(header.size()) + header + std::string(data_bytes, 'x');
}

std::string refusal(const std::string& bytes) {
  return error_of([&] { parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "FILE"); });
}

std::string header_of(const std::string& entry) { return "{\"a\":" + entry + "}"; }

TEST(Safetensors, ReadsWithAndWithoutMetadataInAnyOffsetOrder) {
  const std::string tensors =
      R"("late":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"early":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]})";
  for (const std::string& metadata : {std::string(), std::string(R"("__metadata__":{"format":"pt"},)")}) {
    const std::string bytes = image("{" + metadata + tensors + "}  ", 12);
    std::map<std::string, std::string> strings;
    const TensorMap map =
        parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "FILE", &strings);
    ASSERT_EQ(map.size(), 2u);
    const TensorView& late = map.at("late");
    EXPECT_EQ(late.type, DType::kF32);
    EXPECT_EQ(late.shape, (std::vector<int64_t>{2}));
    EXPECT_EQ(late.bytes, 8u);
    EXPECT_EQ(late.data - map.at("early").data, 4);
    EXPECT_EQ(strings.size(), metadata.empty() ? 0u : 1u);
  }
}

TEST(Safetensors, ScalarsAndEmptyTensorsAreTensors) {
  const std::string bytes = image(
      R"({"scalar":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"none":{"dtype":"F32","shape":[0,5],"data_offsets":[8,8]}})",
      8);
  const TensorMap map = parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "FILE");
  EXPECT_EQ(map.at("scalar").num_values(), 1u);
  EXPECT_EQ(map.at("none").num_values(), 0u);
}

TEST(Safetensors, AFileTooShortForALengthIsTruncated) {
  EXPECT_SAYS(refusal(""), "FILE", "too short");
  EXPECT_SAYS(refusal("1234567"), "FILE", "too short");
}

TEST(Safetensors, AHeaderLongerThanTheFileIsTruncated) {
  EXPECT_SAYS(refusal(length_bytes(100) + "{}"), "header length is 100", "only 2 bytes", "truncated");
}

TEST(Safetensors, AnAbsurdHeaderLengthIsNoSafetensorsFile) {
  EXPECT_SAYS(refusal(length_bytes(~uint64_t{0}) + "{}"), "18446744073709551615", "the limit is 100000000");
  EXPECT_SAYS(refusal("PK\x03\x04 a zip file, or so it seems"), "the limit is 100000000");
}

TEST(Safetensors, AHeaderThatIsNoJsonObjectIsRefused) {
  EXPECT_SAYS(refusal(image("{\"a\":", 0)), "FILE: header", "not valid JSON");
  EXPECT_SAYS(refusal(image("[]", 0)), "FILE: header");
  EXPECT_SAYS(refusal(image("", 0)), "FILE: header");
  EXPECT_SAYS(refusal(image(header_of("7"), 0)), "\"a\"", "expected an object");
}

TEST(Safetensors, ANameGivenTwiceIsRefused) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_SAYS(refusal(image("{\"a\":" + entry + ",\"a\":" + entry + "}", 1)), "\"a\"", "twice");
}

TEST(Safetensors, UnknownTypesAreNamed) {
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"F64","shape":[1],"data_offsets":[0,8]})"), 8)), "\"a\"", "\"F64\"",
              "BF16");
}

TEST(Safetensors, MissingMembersAreNamed) {
  EXPECT_SAYS(refusal(image(header_of(R"({"shape":[1],"data_offsets":[0,1]})"), 1)), "\"a\"", "dtype", "missing");
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"U8","data_offsets":[0,1]})"), 1)), "\"a\"", "shape", "missing");
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"U8","shape":[1]})"), 1)), "\"a\"", "data_offsets", "missing");
}

TEST(Safetensors, OffsetsOutsideTheFileAreRefused) {
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})"), 3)), "\"a\"", "[0, 4]",
              "3 bytes");
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"U8","shape":[4],"data_offsets":[-4,0]})"), 3)), "not a range");
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"U8","shape":[0],"data_offsets":[3,1]})"), 3)), "not a range");
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"U8","shape":[1],"data_offsets":[0]})"), 1)), "1 entries");
}

TEST(Safetensors, ShapesThatDoNotFitTheBytesAreRefused) {
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), 4)), "4 bytes",
              "takes 8");
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), 4)), "negative");
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), 0)),
              "overflows");
  EXPECT_SAYS(refusal(image(header_of(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})"), 1)),
              "9 dimensions");
}

TEST(Safetensors, OverlapsAndHolesAreRefused) {
  const std::string a = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string b = R"({"dtype":"U8","shape":[4],"data_offsets":[3,7]})";
  const std::string c = R"({"dtype":"U8","shape":[4],"data_offsets":[5,9]})";
  EXPECT_SAYS(refusal(image("{\"a\":" + a + ",\"b\":" + b + "}", 7)), "\"a\"", "\"b\"", "overlap");
  EXPECT_SAYS(refusal(image("{\"a\":" + a + ",\"c\":" + c + "}", 9)), "4..5", "no tensor");
  EXPECT_SAYS(refusal(image("{\"a\":" + a + "}", 6)), "4..6", "no tensor");
}

TEST(Safetensors, MetadataMustBeStrings) {
  EXPECT_SAYS(refusal(image(R"({"__metadata__":{"format":7}})", 0)), "__metadata__");
}

TEST(Safetensors, FilesThatCannotBeMappedAreNamed) {
  TemporaryDirectory directory;
  EXPECT_SAYS(error_of([&] { SafetensorsFile file(directory / "none"); }), "none", "No such file");
  EXPECT_SAYS(error_of([&] { SafetensorsFile file(directory.path()); }), "not a regular file");
  write_file(directory / "empty", "");
  EXPECT_SAYS(error_of([&] { SafetensorsFile file(directory / "empty"); }), "empty", "too short");
}

TEST(Safetensors, AtNamesTheMissingTensor) {
  TemporaryDirectory directory;
  write_safetensors(directory / "f", {}, {});
  EXPECT_SAYS(error_of([&] { SafetensorsFile(directory / "f").at("logits"); }), "\"logits\" is missing");
}

// Two shards with one tensor each, and an index.
class Shards : public ::testing::Test {
 protected:
  void SetUp() override {
    const float one = 1, two = 2;
    write_safetensors(directory / "one.safetensors", {{"a", DType::kF32, {1}}}, {&one});
    write_safetensors(directory / "two.safetensors", {{"b", DType::kF32, {1}}}, {&two});
  }
  void write_index(const std::string& weight_map) {
    write_file(directory / "model.safetensors.index.json", "{\"weight_map\":" + weight_map + "}");
  }
  std::string refusal() const {
    return error_of([&] { Checkpoint checkpoint(directory.path()); });
  }
  TemporaryDirectory directory;
};

TEST_F(Shards, AreOneSetOfTensors) {
  write_index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const Checkpoint checkpoint(directory.path());
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.files().size(), 2u);
  EXPECT_EQ(checkpoint.tensor_bytes(), 8u);
  float b = 0;
  std::memcpy(&b, checkpoint.find("b")->data, 4);
  EXPECT_EQ(b, 2.0f);
  EXPECT_EQ(checkpoint.files()[static_cast<size_t>(checkpoint.find("b")->file)], "two.safetensors");
  EXPECT_EQ(checkpoint.find("c"), nullptr);
}

TEST_F(Shards, AMissingShardIsNamed) {
  write_index(R"({"a":"one.safetensors","b":"three.safetensors"})");
  EXPECT_SAYS(refusal(), "three.safetensors", "No such file");
}

TEST_F(Shards, ATensorThatIsNotInItsShardIsNamed) {
  write_index(R"({"a":"one.safetensors","c":"two.safetensors"})");
  EXPECT_SAYS(refusal(), "\"c\"", "two.safetensors", "not there");
  write_index(R"({"a":"two.safetensors","b":"one.safetensors"})");
  EXPECT_SAYS(refusal(), "\"a\"", "two.safetensors", "not there");
}

TEST_F(Shards, ATensorInTwoShardsIsRefused) {
  const float one = 1;
  write_safetensors(directory / "two.safetensors", {{"a", DType::kF32, {1}}}, {&one});
  write_index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  EXPECT_SAYS(refusal(), "\"a\"", "also in");
}

TEST_F(Shards, AnIndexDoesNotReachOutOfItsDirectory) {
  write_index(R"({"a":"../one.safetensors"})");
  EXPECT_SAYS(refusal(), "../one.safetensors", "not a file name");
}

TEST_F(Shards, ABrokenIndexIsRefused) {
  EXPECT_SAYS(refusal(), "neither model.safetensors nor");
  write_index("{}");
  EXPECT_SAYS(refusal(), "weight_map is empty");
  write_index("[]");
  EXPECT_SAYS(refusal(), "weight_map");
  write_file(directory / "model.safetensors.index.json", "{}");
  EXPECT_SAYS(refusal(), "weight_map", "missing");
}

}  // namespace
}  // namespace tidepool::model
