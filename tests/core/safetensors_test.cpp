#include "core/files/safetensors.hpp"

#include <cstring>
#include <fstream>

#include "common/data.hpp"
#include "common/temporary_folder.hpp"
#include "common/test.hpp"

namespace st = ag::safetensors;
using st::Dtype;

namespace {

// A file with this header and so many bytes of data.
std::string with_header(const std::string& header, std::size_t data_size) {
  const std::uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + std::string(data_size, '\0');
}
std::string with_length(std::uint64_t length, std::size_t file_size) {
  std::string bytes(file_size, ' ');
  std::memcpy(bytes.data(), &length, 8);
  return bytes;
}

void require_refused(const std::string& bytes, const std::string& reason) {
  CAPTURE(bytes);
  const TemporaryFolder folder;
  folder.write("bad", bytes);
  REQUIRE_THROWS_AS(st::read(folder / "bad"), ag::FileError);
  REQUIRE_THROWS_WITH(st::read(folder / "bad"),
                      ContainsSubstring("/bad: ") && ContainsSubstring(reason));
}

template <class T>
st::Tensor tensor(const std::string& name, Dtype dtype, st::Sizes shape, std::vector<T> values) {
  st::Tensor t{name, dtype, std::move(shape), {}};
  t.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

}  // namespace

TEST_CASE("a header length is not believed beyond the file's size", "[safetensors][C89]") {
  require_refused(std::string(8, '\xff'), "the limit is 100000000");
  require_refused(with_length(std::uint64_t{1} << 40, 100), "the limit is 100000000");
  require_refused(with_length(93, 100), "the header says it has 93 bytes, the file has 100");
  require_refused(with_length(90'000'000, 100), "the file has 100");
  require_refused(with_length(0, 8), "not JSON");
  require_refused(std::string(7, ' '), "is only 7 bytes long");
  require_refused("", "is only 0 bytes long");
}

TEST_CASE("a tensor's size must follow from its shape and from its offsets alike",
          "[safetensors][C90]") {
  const auto header = [](const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  require_refused(with_header(header("[32,8]", "[0,65536]"), 65536), "takes 1024 bytes");
  require_refused(with_header(header("[1000,1000]", "[0,4]"), 4), "w: shape (1000, 1000) of F32");
  require_refused(with_header(header("[4294967296,4294967296]", "[0,0]"), 0), "overflows");
  require_refused(with_header(header("[0,4294967296,4294967296]", "[0,0]"), 0), "overflows");
  require_refused(with_header(header("[-1]", "[0,4]"), 4), "a negative number");
  require_refused(with_header(header("[1.0]", "[0,4]"), 4), "not whole");
  require_refused(with_header(header("[18446744073709551617]", "[0,4]"), 4), "not whole");
  require_refused(with_header(header("[\"1\"]", "[0,4]"), 4), "a string");
  require_refused(with_header(header("[[1]]", "[0,4]"), 4), "a list");
  require_refused(with_header(header("[1]", "[4,0]"), 4), "data_offsets must be [begin, end]");
  require_refused(with_header(header("[1]", "[0,4,8]"), 4), "data_offsets must be [begin, end]");
  require_refused(with_header(header("[1]", "[18446744073709551612,0]"), 4), "data_offsets must");
}

TEST_CASE("a name or field that comes twice is refused by name", "[safetensors][C92]") {
  const std::string w = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string again = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  require_refused(with_header("{" + w + "," + again + "}", 8), "the name w comes twice");
  require_refused(with_header(R"({"w":{"dtype":"F32","dtype":"F32"}})", 0), "dtype comes twice");
  require_refused(with_header(R"({"w":{"shape":[],"shape":[]}})", 0), "shape comes twice");
  require_refused(with_header(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
                  "metadata a comes twice");
}

TEST_CASE("a dtype that is unknown is refused, one that is known is never reinterpreted",
          "[safetensors][C93]") {
  const std::string offsets =
      R"("shape":[1],"data_offsets":[9223372036854775808,9223372036854775812]}})";
  require_refused(with_header(R"({"w":{"dtype":"F99",)" + offsets, 4), "w: unknown dtype F99");
  require_refused(with_header(R"({"w":{"dtype":"F32",)" + offsets, 4), "starts at byte");
  REQUIRE_THROWS_WITH(st::numbers(tensor<std::int64_t>("w", Dtype::i64, {1}, {5})),
                      ContainsSubstring("w holds I64"));
  const std::vector<std::uint16_t> halves{0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000};
  REQUIRE(st::numbers(tensor("h", Dtype::f16, {6}, halves)) ==
          std::vector<double>{1, -2, std::ldexp(1, -24), 65504, HUGE_VAL, 0});
  REQUIRE(std::isnan(st::numbers(tensor<std::uint16_t>("h", Dtype::f16, {1}, {0x7e00}))[0]));
  REQUIRE(st::numbers(tensor<std::uint16_t>("b", Dtype::bf16, {2}, {0x3f80, 0xc040})) ==
          std::vector<double>{1, -3});
}

TEST_CASE("data that is cut, longer than the header says, or has gaps is refused",
          "[safetensors][C94]") {
  const std::string one = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string good = with_header("{" + one + "}", 4);
  require_refused(good.substr(0, good.size() - 1), "take 4 bytes, the file holds 3");
  require_refused(good + '\0', "take 4 bytes, the file holds 5");
  const auto two = [&](const std::string& offsets) {
    return "{" + one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":)" + offsets + "}}";
  };
  require_refused(with_header(two("[5,9]"), 9), "b: the data starts at byte 5");
  require_refused(with_header(two("[2,6]"), 6), "b: the data starts at byte 2");
  require_refused(with_header(two("[0,4]"), 4), "the data starts at byte 0");
}

TEST_CASE("a header that is not the format's JSON is refused", "[safetensors]") {
  const TemporaryFolder folder;
  require_refused(with_header("[]", 0), "must be a JSON object");
  require_refused(with_header("{} x", 0), "not JSON");
  require_refused(with_header(std::string(100000, '['), 0), "must be a JSON object");
  require_refused(with_header(R"({"w":{"dtype":"F32","shape":[]}})", 0),
                  "w: needs dtype, shape and");
  require_refused(with_header(R"({"w":{"x":"F32"}})", 0), "a string where it may not, at w: x");
  require_refused(with_header(R"({"__metadata__":{"a":1}})", 0), "a number where it may not");
  require_refused(with_header("{\"\xff\":{}}", 0), "not JSON");
  REQUIRE_THROWS_AS(st::read(folder / "absent"), ag::FileError);
  REQUIRE_THROWS_AS(st::read(folder.path()), ag::FileError);
}

TEST_CASE("tensors without elements and without axes keep their shapes", "[safetensors][C95]") {
  const TemporaryFolder folder;
  const st::File file{
      {tensor<float>("none", Dtype::f32, {0}, {}), tensor<float>("rank 0", Dtype::f32, {}, {3}),
       tensor<float>("wide", Dtype::f32, {0, 3}, {}),
       tensor<float>("tall", Dtype::f32, {2, 0}, {})},
      {}};
  st::write(file, folder / "file");
  const st::File read = st::read(folder / "file");
  REQUIRE(read.tensors.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    REQUIRE(read.tensors[i].name == file.tensors[i].name);
    REQUIRE(read.tensors[i].shape == file.tensors[i].shape);
    REQUIRE(read.tensors[i].bytes == file.tensors[i].bytes);
  }
  st::write({}, folder / "file");
  REQUIRE(st::read(folder / "file").tensors.empty());
  st::write({{}, {{"a", "1"}}}, folder / "file");
  REQUIRE(st::read(folder / "file").metadata == st::Metadata{{"a", "1"}});
}

TEST_CASE("what is written is read again, with larger elements aligned", "[safetensors]") {
  const TemporaryFolder folder;
  const st::File file{{tensor<std::uint8_t>("byte", Dtype::u8, {1}, {7}),
                       tensor<double>("\"é\"", Dtype::f64, {2}, {1, -2}),
                       tensor<std::int64_t>("long", Dtype::i64, {1}, {-5})},
                      {{"step", "12"}, {"note", "\n\""}}};
  st::write(file, folder / "file");
  const st::File read = st::read(folder / "file");
  REQUIRE(read.metadata == file.metadata);
  REQUIRE(read.find("byte")->bytes == file.tensors[0].bytes);
  REQUIRE(st::numbers(*read.find("\"é\"")) == std::vector<double>{1, -2});
  REQUIRE(read.find("long")->bytes == file.tensors[2].bytes);
  REQUIRE(read.find("absent") == nullptr);
  REQUIRE(folder.files() == std::vector<std::string>{"file"});
  const std::string bytes = folder.read("file");
  REQUIRE((bytes.size() - 1) % 8 == 0);
  REQUIRE(bytes.back() == 7);  // the byte comes last
}

TEST_CASE("writing refuses what could not be read, and leaves the old file", "[safetensors]") {
  const TemporaryFolder folder;
  folder.write("file", "old");
  const st::Tensor w = tensor<float>("w", Dtype::f32, {1}, {1});
  const st::Tensor meta = tensor<float>("__metadata__", Dtype::f32, {1}, {1});
  const st::Tensor misfit = tensor<float>("m", Dtype::f32, {2}, {1});
  REQUIRE_THROWS_WITH(st::write({{w, w}, {}}, folder / "file"), ContainsSubstring("w comes twice"));
  REQUIRE_THROWS_AS(st::write({{meta}, {}}, folder / "file"), ag::ArgumentError);
  REQUIRE_THROWS_WITH(st::write({{misfit}, {}}, folder / "file"),
                      ContainsSubstring("needs 8 bytes"));
  REQUIRE_THROWS_AS(st::write({{w}, {{"a", "\xff"}}}, folder / "file"), ag::ArgumentError);
  REQUIRE_THROWS_WITH(st::write({{w}, {}}, folder / "no folder/file"),
                      ContainsSubstring("cannot create"));
  std::filesystem::create_directory(folder / "taken");
  REQUIRE_THROWS_AS(st::write({{w}, {}}, folder / "taken"), ag::FileError);
  REQUIRE(folder.read("file") == "old");
  REQUIRE(folder.files() == std::vector<std::string>{"file", "taken"});
}

TEST_CASE("a file made by another library is read", "[safetensors]") {
  // the head of overall.safetensors in the samples of huggingface/safetensors at bd71d434, cut to
  // two tensors
  const std::string header =
      R"({"__metadata__":{"test":"a"},"f":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("h":{"dtype":"I16","shape":[2],"data_offsets":[8,12]}}  )";
  const TemporaryFolder folder;
  folder.write("file", with_header(header, 12));
  const st::File file = st::read(folder / "file");
  REQUIRE(file.metadata == st::Metadata{{"test", "a"}});
  REQUIRE(st::numbers(file.tensors[0]) == std::vector<double>{0, 0});
  REQUIRE(file.tensors[1].dtype == Dtype::i16);
  REQUIRE(file.tensors[1].bytes.size() == 4);
}

TEST_CASE("the samples of the format's own project are read, floating-point ones as numbers",
          "[safetensors]") {
  const std::filesystem::path folder = data_folder("safetensors_samples");
  if (!have_data(folder)) return;
  const std::vector<std::pair<std::string, Dtype>> samples{
      {"B", Dtype::u8},  {"H", Dtype::u16}, {"I", Dtype::u32}, {"b", Dtype::i8}, {"h", Dtype::i16},
      {"i", Dtype::i32}, {"e", Dtype::f16}, {"f", Dtype::f32}, {"d", Dtype::f64}};
  const st::File overall = st::read(folder / "overall.safetensors");
  for (const auto& [name, dtype] : samples) {
    const st::File file = st::read(folder / (name + ".safetensors"));
    CAPTURE(name);
    REQUIRE(file.metadata == st::Metadata{{"test", "a"}});
    REQUIRE(file.tensors.size() == 1);
    const st::Tensor& x = file.tensors[0];
    REQUIRE(x.name == name);
    REQUIRE(x.dtype == dtype);
    REQUIRE(x.shape == st::Sizes{6});
    REQUIRE(overall.find(name) != nullptr);
    REQUIRE(overall.find(name)->bytes == x.bytes);
    if (st::is_floating(dtype))
      REQUIRE(st::numbers(x) == std::vector<double>{-3, -2, -1, 0, 1, 2});
    else
      REQUIRE_THROWS_WITH(st::numbers(x), ContainsSubstring(st::dtype_name(dtype)));
  }
}
