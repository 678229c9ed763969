// One array in NumPy's .npy format, read with suspicion and written atomically.
//
// A file is the six bytes "\x93NUMPY", a version, the length of a header, the header (a Python
// dictionary of descr, fortran_order and shape), and the numbers. Source: NumPy Enhancement
// Proposal 1.
#pragma once

#include <filesystem>

#include "core/array.hpp"
#include "core/files/safetensors.hpp"

namespace attngrad {

// The array of a file, named like it, in row-major order and little endian whatever the file's;
// safetensors::numbers() gives floating-point ones. Throws FileError, naming the file and what is
// wrong, for a file that is missing, no .npy file, truncated or longer than its header says, for a
// shape that overflows, and for a type other than bool, integers and floats of 1 to 8 bytes.
safetensors::Tensor read_npy_tensor(const std::filesystem::path& path);
// Writes shape, type and bytes; the name is not kept. Throws ArgumentError for BF16, which NumPy
// has not, for more than safetensors::max_rank axes and for bytes that do not fit the shape;
// FileError if the file cannot be written.
void write_npy_tensor(const safetensors::Tensor& tensor, const std::filesystem::path& path);

inline namespace ATTNGRAD_PRECISION {

// The same of floating-point numbers, as Real. Integers are refused: see read_npy_tensor.
inline Array read_npy(const std::filesystem::path& path) {
  const safetensors::Tensor tensor = read_npy_tensor(path);
  if (!safetensors::is_floating(tensor.dtype))
    throw FileError(text("npy: ", path.string(), ": holds ", safetensors::dtype_name(tensor.dtype),
                         ", not floating-point numbers"));
  return array_of(safetensors::numbers(tensor), Shape(tensor.shape.begin(), tensor.shape.end()));
}
inline void write_npy(const Array& array, const std::filesystem::path& path) {
  using safetensors::Dtype;
  const auto* bytes = reinterpret_cast<const std::byte*>(array.data());
  write_npy_tensor({path.stem().string(),
                    sizeof(Real) == 8 ? Dtype::f64 : Dtype::f32,
                    {array.shape().begin(), array.shape().end()},
                    {bytes, bytes + array.size() * sizeof(Real)}},
                   path);
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
