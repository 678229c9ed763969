#include "core/files/safetensors_header.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "core/errors.hpp"

namespace attngrad::safetensors {
namespace {

struct DtypeRow {
  Dtype dtype;
  const char* name;
  std::size_t size;
};
constexpr DtypeRow dtypes[] = {
    {Dtype::boolean, "BOOL", 1}, {Dtype::u8, "U8", 1},   {Dtype::i8, "I8", 1},
    {Dtype::u16, "U16", 2},      {Dtype::i16, "I16", 2}, {Dtype::f16, "F16", 2},
    {Dtype::bf16, "BF16", 2},    {Dtype::u32, "U32", 4}, {Dtype::i32, "I32", 4},
    {Dtype::f32, "F32", 4},      {Dtype::u64, "U64", 8}, {Dtype::i64, "I64", 8},
    {Dtype::f64, "F64", 8},
};

static_assert(
    [] {
      for (std::size_t i = 0; i < std::size(dtypes); ++i)
        if (static_cast<std::size_t>(dtypes[i].dtype) != i) return false;
      return true;
    }(),
    "the table must be in the order of the enumeration");

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw FileError(text(parts...));
}

// Takes the header apart while it is parsed, so that no tree of a hostile one is ever built, and so
// that names that come twice are seen. A list is read as far as it may be a shape.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Header take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) return enter(Place::root);
    if (place_ != Place::root) return refuse("an object");
    return enter(name_ == "__metadata__" ? Place::metadata : Place::tensor);
  }

  bool end_object() override {
    if (place_ == Place::tensor) finish_tensor();
    return enter(Place::root);
  }

  bool key(std::string& key) override {
    if (place_ == Place::root) {
      if (!names_.insert(key).second) fail("the name ", key, " comes twice");
      name_ = key;
    }
    field_ = key;
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      if (!header_.metadata.emplace(field_, value).second)
        fail("the metadata ", field_, " comes twice");
      return true;
    }
    if (place_ != Place::tensor || field_ != "dtype") return refuse("a string");
    if (dtype_) fail(name_, ": dtype comes twice");
    for (const DtypeRow& row : dtypes)
      if (value == row.name) dtype_ = row.dtype;
    if (!dtype_) fail(name_, ": unknown dtype ", value);
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor) return refuse("a list");
    list_ = field_ == "shape" ? &shape_ : field_ == "data_offsets" ? &offsets_ : nullptr;
    if (list_ == nullptr) return refuse("a list");
    if (*list_) fail(name_, ": ", field_, " comes twice");
    list_->emplace();
    return enter(Place::list);
  }

  bool end_array() override { return enter(Place::tensor); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::list) return refuse("a number");
    if ((*list_)->size() == max_rank) fail(name_, ": ", field_, " is longer than ", max_rank);
    (*list_)->push_back(value);
    return true;
  }

  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return refuse("a number that is not whole");
  }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    fail("the header is not JSON at byte ", position);
  }

 private:
  enum class Place { start, root, metadata, tensor, list };

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  bool refuse(const char* what) const {
    if (place_ == Place::start) fail("the header must be a JSON object");
    fail("the header has ", what, " where it may not, at ",
         place_ == Place::root ? name_ : name_ + ": " + field_);
  }

  void finish_tensor() {
    if (!dtype_ || !shape_ || !offsets_) fail(name_, ": needs dtype, shape and data_offsets");
    if (offsets_->size() != 2 || (*offsets_)[0] > (*offsets_)[1])
      fail(name_, ": data_offsets must be [begin, end]");
    const std::uint64_t begin = (*offsets_)[0], end = (*offsets_)[1],
                        size = byte_size(name_, *dtype_, *shape_);
    if (end - begin != size)
      fail(name_, ": shape ", *shape_, " of ", dtype_name(*dtype_), " takes ", size,
           " bytes, the offsets say ", end - begin);
    header_.tensors.push_back({name_, *dtype_, std::move(*shape_), begin, end});
    dtype_.reset();
    shape_.reset();
    offsets_.reset();
  }

  Header header_;
  std::unordered_set<std::string> names_;
  Place place_ = Place::start;
  std::string name_, field_;
  std::optional<Dtype> dtype_;
  std::optional<Sizes> shape_, offsets_;
  std::optional<Sizes>* list_ = nullptr;
};

}  // namespace

const char* dtype_name(Dtype dtype) { return dtypes[static_cast<std::size_t>(dtype)].name; }
std::size_t dtype_size(Dtype dtype) { return dtypes[static_cast<std::size_t>(dtype)].size; }

std::uint64_t byte_size(const std::string& name, Dtype dtype, const Sizes& shape) {
  std::uint64_t bytes = dtype_size(dtype);
  bool empty = false;
  for (const std::uint64_t size : shape) {
    empty |= size == 0;
    if (size == 0) continue;
    if (bytes > std::numeric_limits<std::uint64_t>::max() / size)
      fail(name, ": the size of shape ", shape, " overflows");
    bytes *= size;
  }
  return empty ? 0 : bytes;
}

Header parse_header(std::string_view json) {
  HeaderReader reader;
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.take();
}

}  // namespace attngrad::safetensors
