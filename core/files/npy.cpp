#include "core/files/npy.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <sstream>
#include <string_view>

#include "core/files/atomic_file.hpp"
#include "core/files/read_file.hpp"
#include "core/files/safetensors_header.hpp"

namespace attngrad {
namespace {

using safetensors::Dtype;
using safetensors::Sizes;
using safetensors::Tensor;

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t max_header_size = 10'000;  // as NumPy's own reader allows

// The kind and size that NumPy calls a type by, without the byte order.
struct TypeRow {
  const char* name;
  Dtype dtype;
};
constexpr TypeRow types[]{{"b1", Dtype::boolean}, {"u1", Dtype::u8},  {"i1", Dtype::i8},
                          {"u2", Dtype::u16},     {"i2", Dtype::i16}, {"f2", Dtype::f16},
                          {"u4", Dtype::u32},     {"i4", Dtype::i32}, {"f4", Dtype::f32},
                          {"u8", Dtype::u64},     {"i8", Dtype::i64}, {"f8", Dtype::f64}};

struct Described {
  Dtype dtype;
  bool big_endian, fortran_order;
  Sizes shape;
};

// What stands behind a key's colon in the header's dictionary.
std::string_view behind(std::string_view header, const std::string& key) {
  const std::size_t name = header.find("'" + key + "'");
  const std::size_t colon = name == header.npos ? name : header.find(':', name);
  const std::size_t value = colon == header.npos ? colon : header.find_first_not_of(' ', colon + 1);
  if (value == header.npos) throw FileError(text("the header has no ", key));
  return header.substr(value);
}

// What stands between two signs at the beginning.
std::string between(std::string_view value, char open, char close, const char* key) {
  const std::size_t end = value.find(close, 1);
  if (value[0] != open || end == value.npos)
    throw FileError(text("the header's ", key, " must be between ", open, " and ", close));
  return std::string(value.substr(1, end - 1));
}

Sizes shape_of(const std::string& list) {
  Sizes shape;
  std::istringstream numbers(list);
  for (std::string number; std::getline(numbers, number, ',');) {
    number.erase(0, number.find_first_not_of(' '));
    if (number.empty() && numbers.eof()) break;  // behind the last comma
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    if (error != std::errc() || end != number.data() + number.size() ||
        shape.size() == safetensors::max_rank)
      throw FileError(text("the shape must be at most ", safetensors::max_rank,
                           " whole numbers, one is ", number.substr(0, 40)));
    shape.push_back(size);
  }
  return shape;
}

Described described_by(const std::string& header) {
  const std::string type = between(behind(header, "descr"), '\'', '\'', "descr");
  const auto row = std::find_if(std::begin(types), std::end(types), [&](const TypeRow& r) {
    return type.size() == 3 && type.substr(1) == r.name;
  });
  if (row == std::end(types) || std::string("<>=|").find(type[0]) == std::string::npos)
    throw FileError(text("holds numbers of the type ", type.substr(0, 40),
                         ", which is no bool, integer or float of 1 to 8 bytes"));
  const std::string_view order = behind(header, "fortran_order");
  const bool fortran = order.starts_with("True");
  if (!fortran && !order.starts_with("False"))
    throw FileError("the header's fortran_order must be True or False");
  return {row->dtype, type[0] == '>', fortran,
          shape_of(between(behind(header, "shape"), '(', ')', "shape"))};
}

std::string read_header(std::ifstream& in, std::uint64_t file_size) {
  char start[8] = {};
  in.read(start, 8);
  if (!in || std::string_view(start, 6) != magic)
    throw FileError("does not begin like a .npy file");
  if (start[6] < 1 || start[6] > 3)
    throw FileError(text("has version ", int(start[6]), ", known are 1 to 3"));
  std::uint32_t size = 0;
  in.read(reinterpret_cast<char*>(&size), start[6] == 1 ? 2 : 4);
  if (!in || size > max_header_size || size > file_size)
    throw FileError(text("the header says it has ", size, " bytes, the file has ", file_size));
  std::string header(size, ' ');
  in.read(header.data(), std::streamsize(size));
  if (!in) throw FileError("ends within its header");
  return header;
}

void swap_bytes(Tensor& tensor) {
  const std::size_t size = safetensors::dtype_size(tensor.dtype);
  for (auto at = tensor.bytes.begin(); at != tensor.bytes.end(); at += std::ptrdiff_t(size))
    std::reverse(at, at + std::ptrdiff_t(size));
}

// From first axis fastest to last axis fastest.
void reorder(Tensor& tensor) {
  const std::size_t size = safetensors::dtype_size(tensor.dtype), rank = tensor.shape.size();
  const std::vector<std::byte> from = tensor.bytes;
  std::vector<std::size_t> index(rank, 0);
  for (std::size_t to = 0; to < from.size(); to += size) {
    std::size_t place = 0;
    for (std::size_t axis = rank; axis-- > 0;) place = place * tensor.shape[axis] + index[axis];
    std::memcpy(tensor.bytes.data() + to, from.data() + place * size, size);
    for (std::size_t axis = rank; axis-- > 0 && ++index[axis] == tensor.shape[axis];)
      index[axis] = 0;
  }
}

Tensor read_stream(std::ifstream& in, std::uint64_t file_size, const std::string& name) {
  const Described what = described_by(read_header(in, file_size));
  const std::uint64_t size = safetensors::byte_size(name, what.dtype, what.shape),
                      rest = file_size - std::uint64_t(in.tellg());
  if (size != rest)
    throw FileError(text("shape ", what.shape, " takes ", size, " bytes, the file holds ", rest));
  Tensor tensor{name, what.dtype, what.shape, std::vector<std::byte>(size)};
  in.read(reinterpret_cast<char*>(tensor.bytes.data()), std::streamsize(size));
  if (!in) throw FileError("cannot be read to its end");
  if (what.big_endian) swap_bytes(tensor);
  if (what.fortran_order) reorder(tensor);
  return tensor;
}

}  // namespace

Tensor read_npy_tensor(const std::filesystem::path& path) {
  return read_file("npy", path, [&](std::ifstream& in, std::uint64_t size) {
    return read_stream(in, size, path.stem().string());
  });
}

void write_npy_tensor(const Tensor& tensor, const std::filesystem::path& path) {
  const auto row = std::find_if(std::begin(types), std::end(types),
                                [&](const TypeRow& r) { return r.dtype == tensor.dtype; });
  check_argument(row != std::end(types), "npy: NumPy has no ",
                 safetensors::dtype_name(tensor.dtype));
  check_argument(tensor.shape.size() <= safetensors::max_rank, "npy: at most ",
                 safetensors::max_rank, " axes, got ", tensor.shape.size());
  const std::uint64_t size = safetensors::byte_size(tensor.name, tensor.dtype, tensor.shape);
  check_argument(tensor.bytes.size() == size, "npy: shape ", tensor.shape, " needs ", size,
                 " bytes, got ", tensor.bytes.size());
  std::string shape;
  for (const std::size_t axis : tensor.shape) shape += text(axis, ", ");
  std::string header = text("{'descr': '", safetensors::dtype_size(tensor.dtype) == 1 ? "|" : "<",
                            row->name, "', 'fortran_order': False, 'shape': (", shape, "), }");
  const std::size_t start = magic.size() + 4;  // the numbers begin at a multiple of 64
  header.resize((start + header.size() + 1 + 63) / 64 * 64 - start, ' ');
  header.back() = '\n';
  const auto length = std::uint16_t(header.size());
  const std::string begin = std::string(magic) + '\1' + '\0' +
                            std::string(reinterpret_cast<const char*>(&length), 2) + header;
  write_atomically(path, {begin, {reinterpret_cast<const char*>(tensor.bytes.data()), size}});
}

}  // namespace attngrad
