#include "core/files/npy.hpp"

#include "common/data.hpp"
#include "common/temporary_folder.hpp"
#include "common/test.hpp"

namespace st = ag::safetensors;

namespace {

// A file of version 1 with this dictionary and these bytes.
std::string npy(const std::string& dictionary, const std::string& data) {
  const auto length = std::uint16_t(dictionary.size());
  return std::string("\x93NUMPY\1", 7) + '\0' +
         std::string(reinterpret_cast<const char*>(&length), 2) + dictionary + data;
}
std::string dictionary(const std::string& type, const std::string& order,
                       const std::string& shape) {
  return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

}  // namespace

TEST_CASE("an array comes back bit by bit from .npy, of any rank and also empty", "[npy]") {
  const TemporaryFolder folder;
  for (const ag::Shape& shape : {ag::Shape{}, {3}, {2, 3, 4}, {0, 5}}) {
    const Array x = random_array(shape);
    ag::write_npy(x, folder / "x.npy");
    REQUIRE(folder.read("x.npy").size() % 64 == x.size() * sizeof(Real) % 64);
    REQUIRE((ag::read_npy(folder / "x.npy") == x));
    REQUIRE(ag::read_npy(folder / "x.npy").shape() == shape);
  }
}

TEST_CASE("either byte order and either order of axes give the same numbers", "[npy]") {
  const TemporaryFolder folder;
  folder.write("little",
               npy(dictionary("<i2", "False", "(2, 3)"), {"\1\0\2\0\3\0\4\0\5\0\6\0", 12}));
  folder.write("big", npy(dictionary(">i2", "False", "(2, 3)"), {"\0\1\0\2\0\3\0\4\0\5\0\6", 12}));
  folder.write("columns",
               npy(dictionary("<i2", "True", "(2, 3)"), {"\1\0\4\0\2\0\5\0\3\0\6\0", 12}));
  const st::Tensor x = ag::read_npy_tensor(folder / "little");
  REQUIRE(x.dtype == st::Dtype::i16);
  REQUIRE(x.shape == st::Sizes{2, 3});
  for (const char* name : {"big", "columns"})
    REQUIRE(ag::read_npy_tensor(folder / name).bytes == x.bytes);
  ag::write_npy_tensor(x, folder / "again");
  REQUIRE(ag::read_npy_tensor(folder / "again").bytes == x.bytes);
  REQUIRE_THROWS_WITH(ag::read_npy(folder / "little"), ContainsSubstring("little: holds I16"));
}

TEST_CASE("a damaged .npy file is refused before its data is read", "[npy][errors]") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes, const std::string& words) {
    folder.write("bad", bytes);
    REQUIRE_THROWS_AS(ag::read_npy_tensor(folder / "bad"), ag::FileError);
    REQUIRE_THROWS_WITH(ag::read_npy_tensor(folder / "bad"), ContainsSubstring(words));
  };
  const std::string four(4, '\0');
  refused("", "does not begin like");
  refused("PK\3\4 and more", "does not begin like");
  refused(std::string("\x93NUMPY\7\0", 8), "has version 7");
  refused(npy(dictionary("<f4", "False", "(1,)"), four).substr(0, 30), "the header says it has");
  refused(npy(dictionary("<f4", "False", "(2,)"), four), "takes 8 bytes, the file holds 4");
  refused(npy(dictionary("<f4", "False", "(1,)"), four + four), "takes 4 bytes, the file holds 8");
  refused(npy(dictionary("<f4", "False", "(99999999999999, 99999999999999)"), four), "overflows");
  refused(npy(dictionary("<f4", "False", "(-1,)"), four), "whole numbers, one is -1");
  refused(npy(dictionary("<f4", "Maybe", "(1,)"), four), "fortran_order must be True or False");
  refused(npy("{'descr': '<f4', 'shape': (1,)}\n", four), "has no fortran_order");
  refused(npy("{'descr': '" + std::string(9000, 'a') + "'}\n", four), "of the type aaa");
  std::string ones = "(";
  for (int axis = 0; axis < 33; ++axis) ones += "1, ";
  refused(npy(dictionary("<f4", "False", ones + ")"), four), "at most 32");
  for (const char* type : {"<c8", "<U3", "|O", "?f4", "<f16"})
    refused(npy(dictionary(type, "False", "(1,)"), four), ag::text("of the type ", type));
  REQUIRE_THROWS_WITH(ag::read_npy_tensor(folder / "absent"), ContainsSubstring("absent: "));
  REQUIRE_THROWS_AS(
      ag::write_npy_tensor({"x", st::Dtype::bf16, {1}, std::vector<std::byte>(2)}, folder / "x"),
      ag::ArgumentError);
}

TEST_CASE("xtensor's own sample files: both byte orders and both orders of axes agree", "[npy]") {
  const std::filesystem::path samples = data_folder("xnpy_files");
  if (!have_data(samples)) return;
  for (const std::string type : {"bool", "double", "int", "unsignedlong"}) {
    const st::Tensor x = ag::read_npy_tensor(samples / (type + ".le.npy"));
    REQUIRE(x.bytes.size() > 0);
    for (const char* other : {".be.npy", "_fortran.le.npy", "_fortran.be.npy"}) {
      CAPTURE(type, other);
      if (!std::filesystem::exists(samples / (type + other))) continue;  // of int there are two
      const st::Tensor y = ag::read_npy_tensor(samples / (type + other));
      REQUIRE(y.shape == x.shape);
      REQUIRE(y.bytes == x.bytes);
    }
  }
}
