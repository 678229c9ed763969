#include "core/checkpoint.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using safetensors::Dtype;
using safetensors::Tensor;

constexpr Dtype real_dtype = sizeof(Real) == 8 ? Dtype::f64 : Dtype::f32;

// A tensor and the row of its variable where it begins.
struct Piece {
  const Tensor* tensor;
  std::size_t first_row;
};

// Which tensors of a file go to which entry of a list; and what does not fit, by kind.
class Assignment {
 public:
  Assignment(const Parameters& parameters, const safetensors::File& file,
             const std::vector<Placement>& names)
      : parameters_(parameters), pieces_(parameters.size()), fits_(parameters.size(), true) {
    std::unordered_map<std::string, const Placement*> placements;
    for (const Placement& placement : names) {
      parameters.find(placement.variable);  // throws
      placements[placement.tensor] = &placement;
    }
    for (const Tensor& tensor : file.tensors) {
      if (const auto found = placements.find(tensor.name); found != placements.end())
        place(tensor, parameters.place(found->second->variable), found->second->first_row);
      else if (parameters.contains(tensor.name))
        place(tensor, parameters.place(tensor.name), std::nullopt);
      else
        unexpected.push_back(tensor.name);
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      if (fits_[i] && !covered(i)) {
        fits_[i] = false;
        missing.push_back(parameters[i].name);
      }
  }

  // Throws FileError unless all of it fits.
  void check(const std::filesystem::path& path, Fit fit) const {
    std::string what = list("missing", missing) + list("misfit", misfits);
    if (fit == Fit::exact) what += list("unexpected", unexpected);
    if (!what.empty()) throw FileError(text("load: ", path.string(), " does not fit:", what));
  }

  bool fits(std::size_t i) const { return fits_[i]; }
  const std::vector<Piece>& operator[](std::size_t i) const { return pieces_[i]; }

  std::vector<std::string> unexpected, missing, misfits;

 private:
  // first_row: none for a tensor that is a whole variable.
  void place(const Tensor& tensor, std::size_t i, std::optional<std::size_t> first_row) {
    const Shape& shape = parameters_[i].value.shape();
    const std::size_t given = tensor.shape.empty() ? 1 : tensor.shape[0],
                      wanted = shape.empty() ? 1 : shape[0], first = first_row.value_or(0);
    const bool same_rows =
        shape.size() == tensor.shape.size() &&
        (shape.empty() || std::equal(shape.begin() + 1, shape.end(), tensor.shape.begin() + 1));
    const auto same = std::find_if(pieces_[i].begin(), pieces_[i].end(),
                                   [&](const Piece& p) { return p.first_row == first; });
    if (!same_rows || first > wanted || given > wanted - first || (!first_row && given != wanted))
      misfit(i, text(tensor.name, " must be ", first_row ? "rows of " : "", shape, ", is ",
                     tensor.shape));
    else if (!safetensors::is_floating(tensor.dtype))
      misfit(i, text(tensor.name, " holds ", safetensors::dtype_name(tensor.dtype)));
    else if (same == pieces_[i].end())
      pieces_[i].push_back({&tensor, first});
    else if (same->tensor->bytes != tensor.bytes || same->tensor->dtype != tensor.dtype)
      misfit(i, text(tensor.name, " differs from ", same->tensor->name, ", to which it is tied"));
  }

  void misfit(std::size_t i, std::string what) {
    misfits.push_back(std::move(what));
    fits_[i] = false;
  }

  // Whether the pieces follow each other from the first row to the last.
  bool covered(std::size_t i) {
    std::vector<Piece>& all = pieces_[i];
    std::sort(all.begin(), all.end(),
              [](const Piece& a, const Piece& b) { return a.first_row < b.first_row; });
    const Shape& shape = parameters_[i].value.shape();
    std::size_t end = 0;
    for (const Piece& piece : all) {
      if (piece.first_row != end) return false;
      end += piece.tensor->shape.empty() ? 1 : piece.tensor->shape[0];
    }
    return !all.empty() && end == (shape.empty() ? 1 : shape[0]);
  }

  static std::string list(const char* kind, const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return all.empty() ? "" : text("\n  ", kind, ": ", all);
  }

  const Parameters& parameters_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<bool> fits_;
};

Array to_array(const std::vector<Piece>& pieces, const Shape& shape) {
  Array array = uninitialized(shape);
  Real* at = array.data();
  for (const auto& [tensor, first_row] : pieces) {
    const std::size_t count = tensor->bytes.size() / safetensors::dtype_size(tensor->dtype);
    if (tensor->dtype == real_dtype) {
      if (count > 0) std::memcpy(at, tensor->bytes.data(), tensor->bytes.size());
    } else {
      const std::vector<double> numbers = safetensors::numbers(*tensor);
      std::transform(numbers.begin(), numbers.end(), at, [](double x) { return Real(x); });
    }
    at += count;
  }
  return array;
}

// Rows [first, last) of a variable as a tensor.
Tensor rows_of(const std::string& name, const Variable& x, std::size_t first, std::size_t last) {
  safetensors::Sizes shape(x.shape().begin(), x.shape().end());
  const std::size_t row = shape.empty() || shape[0] == 0 ? x.size() : x.size() / shape[0];
  if (!shape.empty()) shape[0] = last - first;
  const auto* bytes = reinterpret_cast<const std::byte*>(x.value().data());
  return {name,
          real_dtype,
          shape,
          {bytes + first * row * sizeof(Real), bytes + last * row * sizeof(Real)}};
}

// The names that the rows of a variable go by, by first row.
using NamedRows = std::map<std::size_t, std::string>;

void add_tensors(const Parameters::Entry& entry, const NamedRows& names,
                 std::vector<Tensor>& tensors) {
  const std::size_t rows = entry.value.rank() == 0 ? 1 : entry.value.size(0);
  if (names.empty()) {
    tensors.push_back(rows_of(entry.name, entry.value, 0, rows));
    return;
  }
  check_argument(names.begin()->first == 0 && (names.size() == 1 || names.rbegin()->first < rows),
                 "save: the tensors of ", entry.name, " must begin at rows from 0 to ", rows,
                 ", got ", names.begin()->first, " to ", names.rbegin()->first);
  for (auto at = names.begin(); at != names.end(); ++at) {
    const auto next = std::next(at);
    tensors.push_back(
        rows_of(at->second, entry.value, at->first, next == names.end() ? rows : next->first));
  }
}

}  // namespace

void save(const Parameters& parameters, const std::filesystem::path& path,
          const safetensors::Metadata& metadata) {
  save(parameters, path, metadata, {});
}

void save(const Parameters& parameters, const std::filesystem::path& path,
          const safetensors::Metadata& metadata, const std::vector<Placement>& names) {
  std::vector<NamedRows> named(parameters.size());
  for (const Placement& p : names)
    named[parameters.place(p.variable)].emplace(p.first_row, p.tensor);
  safetensors::File file{{}, metadata};
  for (std::size_t i = 0; i < parameters.size(); ++i)
    add_tensors(parameters[i], named[i], file.tensors);
  safetensors::write(file, path);
}

LoadReport load(const Parameters& parameters, const std::filesystem::path& path,
                const LoadOptions& options) {
  const safetensors::File file = safetensors::read(path);
  Assignment assignment(parameters, file, options.names);
  if (options.fit != Fit::partial) assignment.check(path, options.fit);

  LoadReport report{file.metadata,
                    {},
                    std::move(assignment.unexpected),
                    std::move(assignment.missing),
                    std::move(assignment.misfits)};
  std::vector<Array> arrays(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!assignment.fits(i)) continue;
    arrays[i] = to_array(assignment[i], parameters[i].value.shape());
    if (real_dtype == Dtype::f32 &&
        std::any_of(assignment[i].begin(), assignment[i].end(),
                    [](const Piece& piece) { return piece.tensor->dtype == Dtype::f64; }))
      report.narrowed.push_back(parameters[i].name);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!assignment.fits(i)) continue;
    Variable x = parameters[i].value;
    x.assign(std::move(arrays[i]));
  }
  return report;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
