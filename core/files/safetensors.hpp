// Files of named tensors in the safetensors format, read with suspicion and written atomically.
//
// A file is 8 bytes of header length (little endian), a JSON header {name: {dtype, shape,
// data_offsets}} with an optional
// "__metadata__" of strings, and the data. Nothing in the header is believed: every length is held
// against the size of the file before memory is taken, and the tensors must cover the data exactly,
// without gap or overlap. Source: https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace attngrad::safetensors {

enum class Dtype { boolean, u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64 };
// As in the file: "BOOL", "U8", ..., "F64".
const char* dtype_name(Dtype dtype);
std::size_t dtype_size(Dtype dtype);
// F64, F32, F16 or BF16.
bool is_floating(Dtype dtype);

using Sizes = std::vector<std::size_t>;
using Metadata = std::map<std::string, std::string>;

struct Tensor {
  std::string name;
  Dtype dtype;
  Sizes shape;
  std::vector<std::byte> bytes;  // row-major, little endian
};

// The numbers of a tensor in row-major order; every floating-point dtype converts exactly.
// Throws FileError, naming the tensor, for every other dtype: bytes are never read as what they are
// not.
std::vector<double> numbers(const Tensor& tensor);

struct File {
  std::vector<Tensor> tensors;  // in the order of the header
  Metadata metadata;

  // Null if there is none of this name.
  const Tensor* find(const std::string& name) const;
};

// The longest header, and the shape with most axes, that are read.
inline constexpr std::size_t max_header_size = 100'000'000;
inline constexpr std::size_t max_rank = 32;

// Throws FileError, naming the file and what is wrong, for a file that is missing, truncated or
// longer than its header says; for a header that is no such JSON or is longer than max_header_size;
// for a name, or a field, that comes twice; an unknown dtype; a shape that is too long or
// overflows, or that differs from the offsets; offsets that leave gaps or overlap.
File read(const std::filesystem::path& path);

// Writes the tensors; data of larger elements comes first, so that all are aligned.
// Throws ArgumentError for a name that comes twice or is "__metadata__", for bytes that do not fit
// the shape, and for text that is not UTF-8; FileError if the file cannot be written, which leaves
// an older one as it was.
void write(const File& file, const std::filesystem::path& path);

}  // namespace attngrad::safetensors
