// Private to the reader: the JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/safetensors.hpp"

namespace attngrad::safetensors {

// A tensor as the header describes it; bytes [begin, end) of the data.
struct Described {
  std::string name;
  Dtype dtype;
  Sizes shape;
  std::uint64_t begin, end;
};

struct Header {
  std::vector<Described> tensors;
  Metadata metadata;
};

// Every tensor has a known dtype, and end - begin is the size of its shape. That its offsets lie
// inside the file is for the caller to check. Throws FileError with what is wrong.
Header parse_header(std::string_view json);

// The number of bytes of a tensor. Throws FileError if it, or the product of the sizes that are not
// 0, overflows.
std::uint64_t byte_size(const std::string& name, Dtype dtype, const Sizes& shape);

}  // namespace attngrad::safetensors
