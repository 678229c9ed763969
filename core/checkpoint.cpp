#include "core/checkpoint.hpp"

#include <algorithm>
#include <cstring>

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using safetensors::Dtype;
using safetensors::Tensor;

constexpr Dtype real_dtype = sizeof(Real) == 8 ? Dtype::f64 : Dtype::f32;

// Which tensor of a file goes to which entry of a list; and what does not fit, by kind.
class Assignment {
 public:
  Assignment(const Parameters& parameters, const safetensors::File& file)
      : parameters_(parameters), tensors_(parameters.size(), nullptr) {
    for (const Tensor& tensor : file.tensors) {
      if (parameters.contains(tensor.name)) {
        place(tensor, parameters.place(tensor.name));
      } else {
        unexpected.push_back(tensor.name);
      }
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (tensors_[i] == nullptr) missing_.push_back(parameters[i].name);
  }

  const Tensor& operator[](std::size_t i) const { return *tensors_[i]; }

  // Throws FileError unless all of it fits.
  void check(const std::filesystem::path& path, Unexpected allowed) const {
    std::string what = list("missing", missing_) + list("misfit", misfits_);
    if (allowed == Unexpected::refuse) what += list("unexpected", unexpected);
    if (!what.empty()) throw FileError(text("load: ", path.string(), " does not fit:", what));
  }

  std::vector<std::string> unexpected;

 private:
  void place(const Tensor& tensor, std::size_t i) {
    const Shape& shape = parameters_[i].value.shape();
    if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end()))
      misfits_.push_back(text(tensor.name, " must be ", shape, ", is ", tensor.shape));
    else if (!safetensors::is_floating(tensor.dtype))
      misfits_.push_back(text(tensor.name, " holds ", safetensors::dtype_name(tensor.dtype)));
    else if (tensors_[i] != nullptr &&
             (tensors_[i]->bytes != tensor.bytes || tensors_[i]->dtype != tensor.dtype))
      misfits_.push_back(
          text(tensor.name, " differs from ", tensors_[i]->name, ", to which it is tied"));
    tensors_[i] = &tensor;
  }

  static std::string list(const char* kind, const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return all.empty() ? "" : text("\n  ", kind, ": ", all);
  }

  const Parameters& parameters_;
  std::vector<const Tensor*> tensors_;
  std::vector<std::string> missing_, misfits_;
};

Array to_array(const Tensor& tensor, const Shape& shape) {
  Array array = uninitialized(shape);
  if (tensor.dtype == real_dtype) {
    if (array.size() > 0) std::memcpy(array.data(), tensor.bytes.data(), tensor.bytes.size());
  } else {
    const std::vector<double> numbers = safetensors::numbers(tensor);
    std::transform(numbers.begin(), numbers.end(), array.data(), [](double x) { return Real(x); });
  }
  return array;
}

}  // namespace

void save(const Parameters& parameters, const std::filesystem::path& path,
          const safetensors::Metadata& metadata) {
  safetensors::File file{{}, metadata};
  for (const auto& [name, x] : parameters) {
    const auto* bytes = reinterpret_cast<const std::byte*>(x.value().data());
    file.tensors.push_back({name,
                            real_dtype,
                            {x.shape().begin(), x.shape().end()},
                            {bytes, bytes + x.size() * sizeof(Real)}});
  }
  safetensors::write(file, path);
}

LoadReport load(const Parameters& parameters, const std::filesystem::path& path,
                Unexpected unexpected) {
  const safetensors::File file = safetensors::read(path);
  Assignment assignment(parameters, file);
  assignment.check(path, unexpected);

  LoadReport report{file.metadata, {}, std::move(assignment.unexpected)};
  std::vector<Array> arrays;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    arrays.push_back(to_array(assignment[i], parameters[i].value.shape()));
    if (assignment[i].dtype == Dtype::f64 && real_dtype == Dtype::f32)
      report.narrowed.push_back(parameters[i].name);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Variable x = parameters[i].value;
    x.assign(std::move(arrays[i]));
  }
  return report;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
