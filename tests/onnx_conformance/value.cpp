#include "onnx_conformance/value.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#if __has_include(<xtensor/io/xnpy.hpp>)  // xtensor >= 0.26
#include <xtensor/io/xnpy.hpp>
#else
#include <xtensor/xnpy.hpp>
#endif

namespace conformance {
namespace {

// Each element of x by f, in an array of T.
template <class T, class Source, class F>
ag::ArrayOf<T> converted(const Source& x, F&& f) {
  ag::ArrayOf<T> y = ag::ArrayOf<T>::from_shape(Shape(x.shape().begin(), x.shape().end()));
  std::transform(x.begin(), x.end(), y.begin(), f);
  return y;
}

Real exact(std::int64_t integer) {
  constexpr std::int64_t largest = std::int64_t{1} << std::numeric_limits<Real>::digits;
  if (integer < -largest || integer > largest)
    throw Skip(ag::text("the integer ", integer, " has no exact ", sizeof(Real), "-byte float"));
  return Real(integer);
}

std::int64_t whole(Real x) {
  if (x != std::floor(x) || std::abs(x) > 1e15)
    throw std::invalid_argument(ag::text("an integer was expected, got ", x));
  return std::int64_t(x);
}

// What the file says of its type: 'descr': '<f4'
std::string type_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::string start(256, '\0');
  file.read(start.data(), std::streamsize(start.size()));
  const std::size_t key = start.find("'descr'");
  const std::size_t begin = key == std::string::npos ? key : start.find('\'', key + 7);
  const std::size_t end = begin == std::string::npos ? begin : start.find('\'', begin + 1);
  if (end == std::string::npos) throw std::runtime_error(path + ": not an .npy file");
  return start.substr(begin + 1, end - begin - 1);
}

template <class Stored, class Kept>
Value load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Value value = converted<Kept>(xt::load_npy<Stored>(file), [](Stored x) { return Kept(x); });
  if (!file) throw std::runtime_error(path + ": ends before its last number");  // xtensor is silent
  return value;
}

using Loader = Value (*)(const std::string&);
const std::map<std::string, Loader> loaders{
    {"<f4", load<float, Real>},
    {"<f8", load<double, Real>},
    {"|b1", load<bool, bool>},
    {"|i1", load<std::int8_t, std::int64_t>},
    {"|u1", load<std::uint8_t, std::int64_t>},
    {"<i2", load<std::int16_t, std::int64_t>},
    {"<u2", load<std::uint16_t, std::int64_t>},
    {"<i4", load<std::int32_t, std::int64_t>},
    {"<u4", load<std::uint32_t, std::int64_t>},
    {"<i8", load<std::int64_t, std::int64_t>},
};

}  // namespace

Shape Value::shape() const {
  return std::visit(
      [](const auto& x) -> Shape {
        if constexpr (std::is_same_v<decltype(x), const std::monostate&>) {
          throw std::logic_error("nothing has no shape");
        } else {
          return x.shape();
        }
      },
      data_);
}

Variable Value::variable() const {
  if (integers()) return Variable(converted<Real>(std::get<Indices>(data_), exact));
  if (flags()) return Variable(converted<Real>(std::get<Bools>(data_), [](bool x) { return x; }));
  return Variable(std::get<Array>(data_));
}

Indices Value::indices() const {
  if (integers()) return std::get<Indices>(data_);
  return converted<std::int64_t>(variable().value(), whole);
}

Bools Value::bools() const {
  if (flags()) return std::get<Bools>(data_);
  return converted<bool>(variable().value(), [](Real x) { return x != 0; });
}

std::vector<double> Value::numbers() const {
  if (integers()) {
    const Indices& x = std::get<Indices>(data_);
    return {x.begin(), x.end()};
  }
  const Variable x = variable();
  return {x.value().begin(), x.value().end()};
}

Tensor read_npy(const std::string& path) {
  const std::string type = type_of(path);
  const auto loader = loaders.find(type);
  if (loader == loaders.end()) {
    const std::string hint = type == "<f2" ? " (float16)" : "";
    throw Skip("storage of type " + type + hint);
  }
  return {type, loader->second(path)};
}

}  // namespace conformance
