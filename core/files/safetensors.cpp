#include "core/files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>

#include "core/errors.hpp"
#include "core/files/atomic_file.hpp"
#include "core/files/read_file.hpp"
#include "core/files/safetensors_header.hpp"

namespace attngrad::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little endian and is copied byte for byte");

template <class T>
T element(const Tensor& tensor, std::size_t i) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// IEEE 754 binary16: sign, 5 bits of exponent with bias 15, 10 bits of fraction.
double from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction == 0 ? HUGE_VAL : NAN)
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(fraction + 1024, exponent - 25);
  return bits >> 15 ? -size : size;
}

// bfloat16 is the upper half of a float.
double from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

std::uint64_t read_header_size(std::ifstream& in, std::uint64_t file_size) {
  if (file_size < 8) throw FileError(text("is only ", file_size, " bytes long"));
  std::uint64_t size = 0;
  in.read(reinterpret_cast<char*>(&size), 8);
  if (size > max_header_size)
    throw FileError(
        text("the header says it has ", size, " bytes, the limit is ", max_header_size));
  if (size > file_size - 8)
    throw FileError(text("the header says it has ", size, " bytes, the file has ", file_size));
  return size;
}

// The tensors must cover [0, size) without gap or overlap.
void check_covers(const std::vector<Described>& tensors, std::uint64_t size) {
  std::vector<const Described*> sorted;
  for (const Described& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const Described* a, const Described* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t end = 0;
  for (const Described* tensor : sorted) {
    if (tensor->begin != end)
      throw FileError(text(tensor->name, ": the data starts at byte ", tensor->begin,
                           ", the one before it ends at ", end));
    end = tensor->end;
  }
  if (end != size) throw FileError(text("the tensors take ", end, " bytes, the file holds ", size));
}

File read_stream(std::ifstream& in, std::uint64_t file_size) {
  std::string json(read_header_size(in, file_size), ' ');
  in.read(json.data(), static_cast<std::streamsize>(json.size()));
  Header header = parse_header(json);
  check_covers(header.tensors, file_size - 8 - json.size());
  File file{{}, std::move(header.metadata)};
  for (Described& described : header.tensors) {
    Tensor tensor{std::move(described.name), described.dtype, std::move(described.shape), {}};
    tensor.bytes.resize(described.end - described.begin);
    in.seekg(static_cast<std::streamoff>(8 + json.size() + described.begin));
    in.read(reinterpret_cast<char*>(tensor.bytes.data()),
            static_cast<std::streamsize>(tensor.bytes.size()));
    file.tensors.push_back(std::move(tensor));
  }
  if (!in) throw FileError("cannot be read to its end");
  return file;
}

void check_may_write(const File& file) {
  std::unordered_set<std::string> names;
  for (const Tensor& tensor : file.tensors) {
    check_argument(tensor.name != "__metadata__",
                   "safetensors: a tensor may not be named __metadata__");
    check_argument(names.insert(tensor.name).second, "safetensors: the name ", tensor.name,
                   " comes twice");
    check_argument(tensor.shape.size() <= max_rank, "safetensors: ", tensor.name, " has more than ",
                   max_rank, " axes");
    const std::uint64_t size = byte_size(tensor.name, tensor.dtype, tensor.shape);
    check_argument(tensor.bytes.size() == size, "safetensors: ", tensor.name, " of shape ",
                   tensor.shape, " needs ", size, " bytes, got ", tensor.bytes.size());
  }
}

// The header, padded to a multiple of 8 bytes, for data in the order given.
std::string header_text(const File& file, const std::vector<std::size_t>& order) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  std::vector<std::size_t> begins(file.tensors.size());
  std::size_t end = 0;
  for (const std::size_t i : order)
    begins[i] = std::exchange(end, end + file.tensors[i].bytes.size());
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const Tensor& tensor = file.tensors[i];
    const std::array offsets{begins[i], begins[i] + tensor.bytes.size()};
    header[tensor.name] = {
        {"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", offsets}};
  }
  try {
    std::string json = header.dump();
    json.resize((json.size() + 7) / 8 * 8, ' ');
    return json;
  } catch (const nlohmann::json::type_error&) {
    throw ArgumentError("safetensors: a name or metadata is not UTF-8");
  }
}

}  // namespace

bool is_floating(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64;
}

std::vector<double> numbers(const Tensor& tensor) {
  if (!is_floating(tensor.dtype))
    throw FileError(text("safetensors: ", tensor.name, " holds ", dtype_name(tensor.dtype),
                         ", not floating-point numbers"));
  std::vector<double> values(tensor.bytes.size() / dtype_size(tensor.dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (tensor.dtype) {
      case Dtype::f64:
        values[i] = element<double>(tensor, i);
        break;
      case Dtype::f32:
        values[i] = double{element<float>(tensor, i)};
        break;
      case Dtype::f16:
        values[i] = from_f16(element<std::uint16_t>(tensor, i));
        break;
      case Dtype::bf16:
        values[i] = from_bf16(element<std::uint16_t>(tensor, i));
        break;
      default:
        break;
    }
  }
  return values;
}

const Tensor* File::find(const std::string& name) const {
  for (const Tensor& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

File read(const std::filesystem::path& path) { return read_file("safetensors", path, read_stream); }

void write(const File& file, const std::filesystem::path& path) {
  check_may_write(file);
  std::vector<std::size_t> order(file.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dtype_size(file.tensors[a].dtype) > dtype_size(file.tensors[b].dtype);
  });
  const std::string header = header_text(file, order);
  const std::uint64_t size = header.size();
  std::vector<std::string_view> parts{{reinterpret_cast<const char*>(&size), 8}, header};
  for (const std::size_t i : order)
    parts.emplace_back(reinterpret_cast<const char*>(file.tensors[i].bytes.data()),
                       file.tensors[i].bytes.size());
  write_atomically(path, parts);
}

}  // namespace attngrad::safetensors
