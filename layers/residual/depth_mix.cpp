#include "layers/residual/depth_mix.hpp"

#include <cmath>

#include "core/kernels/rows.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/row_pieces.hpp"
#include "core/ops/shape.hpp"
#include "core/ops/softmax.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::vector_kernels;

double dot(const Real* a, const Real* b, std::size_t n) {
  return kernels::row_kernels<Real>().dot(a, b, n);
}

// 1 / sqrt(mean(x^2) + epsilon); squares that leave the range of Real are summed in double.
double inverse_rms_of(const Real* x, std::size_t n, double epsilon) {
  double square = dot(x, x, n);
  if (square < 1e-30) square = vector_kernels<Real>().dot(x, x, n);
  return 1 / std::sqrt(square / double(n) + epsilon);
}

// Tells the processor that n numbers from x on will be wanted; none need be there.
void fetch(const Real* x, std::size_t n) {
  for (std::size_t i = 0; i < n; i += 64 / sizeof(Real)) __builtin_prefetch(x + i);
}

std::size_t rows_of(const Variable& value) {
  const std::size_t width = value.shape().back();
  return width == 0 ? 0 : value.size() / width;
}

// Forward, a source's element takes a product with the query and one with its weight; backward
// about three times as many.
double forward_operations(std::size_t elements) { return 4.0 * double(elements); }
double backward_operations(std::size_t elements) { return 12.0 * double(elements); }

void check_query(const Shape& shape, const Variable& query) {
  const Shape width{shape.back()};
  check_shape(query.shape() == width, "depth_mix: query must be ", width, ", got ", query.shape());
}

void check_values(const std::vector<Variable>& sources, const Variable& query, Real epsilon) {
  check_argument(!sources.empty(), "depth_mix: needs at least one source, got none");
  const Shape& shape = sources.front().shape();
  check_shape(!shape.empty(), "depth_mix: sources must have rank 1 or more");
  for (std::size_t i = 1; i < sources.size(); ++i)
    check_shape(sources[i].shape() == shape, "depth_mix: sources must have one shape, source 0 is ",
                shape, ", source ", i, " is ", sources[i].shape());
  check_query(shape, query);
  check_argument(epsilon >= 0, "depth_mix: epsilon must not be negative, got ", epsilon);
}

// What of the sources mixes read: their values, checked.
std::vector<Variable> values_of(const std::vector<DepthSource>& sources, const Variable& query) {
  std::vector<Variable> values;
  for (const DepthSource& source : sources) values.push_back(source.value());
  check_values(values, query, sources.empty() ? Real(0) : sources.front().epsilon());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    check_argument(sources[i].epsilon() == sources.front().epsilon(),
                   "depth_mix: sources must have one epsilon, got ", sources.front().epsilon(),
                   " and ", sources[i].epsilon());
    if (sources[i].stale())
      throw TapeError(text("depth_mix: source ", i, " has been edited since it was made one"));
  }
  return values;
}

// The row that each source has at one place.
class RowOfSources {
 public:
  RowOfSources(const std::vector<Variable>& values, std::vector<const Real*> inverse_rms)
      : inverse_rms_(std::move(inverse_rms)), width_(values.front().shape().back()) {
    for (const Variable& value : values) first_.push_back(value.value().data());
    row_ = first_;
  }

  void go_to(std::size_t row) {
    at_ = row;
    for (std::size_t i = 0; i < row_.size(); ++i) row_[i] = first_[i] + row * width_;
  }
  std::size_t count() const { return row_.size(); }
  const Real* const* data() const { return row_.data(); }
  const Real* operator[](std::size_t i) const { return row_[i]; }
  double inverse_rms(std::size_t i) const { return double(inverse_rms_[i][at_]); }

  // sum(x * source) of source i, whose next row is fetched meanwhile: it lies far from this one's
  // others, where the processor does not expect it.
  double dot_with(std::size_t i, const Real* x) const {
    fetch(row_[i] + width_, width_);
    return dot(row_[i], x, width_);
  }

  // y = sum of the sources by their weights; sets the logits and weights too, which may be one
  // array; returns log sum exp of the logits.
  double mix(const Real* query, Real* logits, Real* weights, Real* y) const {
    for (std::size_t i = 0; i < count(); ++i) logits[i] = Real(dot_with(i, query) * inverse_rms(i));
    const double log_sum_exp = kernels::row_kernels<Real>().softmax(logits, weights, count());
    vector_kernels<Real>().combine(data(), weights, count(), y, width_);
    return log_sum_exp;
  }

 private:
  std::vector<const Real*> first_, row_, inverse_rms_;
  std::size_t width_, at_ = 0;
};

std::vector<const Real*> inverse_rms_of(const std::vector<DepthSource>& sources) {
  std::vector<const Real*> all;
  for (const DepthSource& source : sources) all.push_back(source.inverse_rms().value().data());
  return all;
}
std::vector<const Real*> inverse_rms_of(const std::vector<Saved>& kept) {
  std::vector<const Real*> all;
  for (const Saved& each : kept) all.push_back(each().value().data());
  return all;
}

// What the backward pass of a mix keeps.
struct KeptMix {
  std::vector<Variable> values;
  Variable query;
  std::vector<Saved> inverse_rms;
  Saved logits;  // (rows, sources)
};

// Goes backward through one row after another, with room for what a row needs.
class RowBackward {
 public:
  // places: of the gradient of each source.
  RowBackward(const KeptMix& kept, const std::vector<GradientPlace>& places)
      : kept_(kept),
        places_(places),
        row_(kept.values, inverse_rms_of(kept.inverse_rms)),
        count_(row_.count()),
        width_(kept.query.size()),
        weights_(count_),
        slopes_(count_),
        terms_(count_ + 1),
        factors_(count_ + 1, Real(1)) {}

  // Takes row r of each source's gradient to its place, and adds to gquery what is due to this row.
  void operator()(std::size_t r, const Real* g, Real* gquery) {
    row_.go_to(r);
    const Real* const logits = kept_.logits().value().data() + r * count_;
    set_slopes(g, logits);
    // logit = sum(query * x) / rms, with respect to the query
    terms_[0] = gquery;
    for (std::size_t i = 0; i < count_; ++i) {
      terms_[i + 1] = row_[i];
      factors_[i + 1] = Real(slopes_[i]);
    }
    kernels().combine(terms_.data(), factors_.data(), count_ + 1, gquery, width_);
    for (std::size_t i = 0; i < count_; ++i)
      if (places_[i].data != nullptr) source(i, g, double(logits[i]), r);
  }

 private:
  static const kernels::VectorKernels<Real>& kernels() { return vector_kernels<Real>(); }

  // By how much the loss changes with sum(query * x) of each source: undoes the softmax and the
  // division by the root mean square.
  void set_slopes(const Real* g, const Real* logits) {
    kernels::row_kernels<Real>().softmax(logits, weights_.data(), count_);
    double level = 0;  // sum(g * y)
    for (std::size_t i = 0; i < count_; ++i) {
      slopes_[i] = row_.dot_with(i, g);
      level += double(weights_[i]) * slopes_[i];
    }
    for (std::size_t i = 0; i < count_; ++i)
      slopes_[i] = double(weights_[i]) * (slopes_[i] - level) * row_.inverse_rms(i);
  }

  // A source is read as a value, as a key, and by the norm of the key.
  void source(std::size_t i, const Real* g, double logit, std::size_t r) const {
    Real* const gvalue = places_[i].data + r * width_;
    fetch(gvalue + width_, width_);
    const double by_norm = -slopes_[i] * logit * row_.inverse_rms(i) / double(width_);
    const Real* const terms[]{g, kept_.query.value().data(), row_[i], gvalue};
    const Real factors[]{weights_[i], Real(slopes_[i]), Real(by_norm), Real(1)};
    kernels().combine(terms, factors, places_[i].adds ? 4 : 3, gvalue, width_);
  }

  const KeptMix& kept_;
  const std::vector<GradientPlace>& places_;
  RowOfSources row_;
  std::size_t count_, width_;
  std::vector<Real> weights_;
  std::vector<double> slopes_;
  std::vector<const Real*> terms_;
  std::vector<Real> factors_;
};

void backward(const KeptMix& kept, const Array& g, const std::vector<GradientPlace>& places) {
  const std::size_t width = kept.query.size();
  const std::size_t rows = rows_of(kept.values.front()), grain = rows_per_piece(width);
  Array pieces = zeros({(rows + grain - 1) / grain, width});  // of the query's gradient
  parallel_chunks(
      rows, grain,
      [&](std::size_t begin, std::size_t end) {
        RowBackward back(kept, places);
        for (std::size_t row = begin; row < end; ++row)
          back(row, g.data() + row * width, pieces.data() + begin / grain * width);
      },
      backward_operations(kept.values.size() * g.size()));
  const GradientPlace& gquery = places.back();
  if (gquery.data == nullptr) return;
  const Array sum = sum_pieces(pieces, width);
  for (std::size_t j = 0; j < width; ++j)
    gquery.data[j] = gquery.adds ? gquery.data[j] + sum.data()[j] : sum.data()[j];
}

// x: the sources, (count, ..., width); the weights: (count, ..., 1).
Variable composed_weights(const Variable& x, const Variable& query, Real epsilon) {
  const Variable normed = x * rsqrt(mean(square(x), -1, keep_dims) + epsilon);
  return composed_softmax(sum(query * normed, -1, keep_dims), 0);
}

}  // namespace

DepthSource::DepthSource(const Variable& value, Real epsilon)
    : value_(value), version_(value.version()), epsilon_(epsilon) {
  check_shape(value.rank() > 0, "DepthSource: the value must have rank 1 or more");
  check_argument(epsilon >= 0, "DepthSource: epsilon must not be negative, got ", epsilon);
  const std::size_t rows = rows_of(value), width = value.shape().back();
  Array inverse_rms = uninitialized({rows});
  parallel_chunks(
      rows, rows_per_piece(width),
      [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row)
          inverse_rms.data()[row] =
              Real(inverse_rms_of(value.value().data() + row * width, width, double(epsilon)));
      },
      forward_operations(value.size()));
  inverse_rms_ = Variable(std::move(inverse_rms));
}

Variable depth_mix(const std::vector<DepthSource>& sources, const Variable& query) {
  std::vector<Variable> values = values_of(sources, query);
  const std::size_t count = values.size(), width = query.size(), rows = rows_of(values.front());
  Array y = uninitialized(values.front().shape()), logits = uninitialized({rows, count});
  parallel_chunks(
      rows, rows_per_piece(width),
      [&](std::size_t begin, std::size_t end) {
        RowOfSources row(values, inverse_rms_of(sources));
        std::vector<Real> weights(count);
        for (std::size_t r = begin; r < end; ++r) {
          row.go_to(r);
          row.mix(query.value().data(), logits.data() + r * count, weights.data(),
                  y.data() + r * width);
        }
      },
      forward_operations(count * y.size()));

  std::vector<Variable> inputs = values;
  inputs.push_back(query);
  KeptMix kept{std::move(values), query, {}, saved(Variable(std::move(logits)))};
  for (const DepthSource& source : sources) kept.inverse_rms.push_back(saved(source.inverse_rms()));
  return record_joint_in_place(
      "depth_mix", Variable(std::move(y)), std::move(inputs),
      [kept = std::move(kept)](const Array& g, const std::vector<GradientPlace>& places) {
        backward(kept, g, places);
      },
      [epsilon = sources.front().epsilon()](const std::vector<Variable>& in) {
        return composed_depth_mix({in.begin(), in.end() - 1}, in.back(), epsilon);
      });
}

Variable composed_depth_mix(const std::vector<Variable>& sources, const Variable& query,
                            Real epsilon) {
  check_values(sources, query, epsilon);
  const Variable x = stack(sources);
  return sum(x * composed_weights(x, query, epsilon), 0);
}

Variable depth_weights(const std::vector<DepthSource>& sources, const Variable& query) {
  const Pause nothing_recorded;
  const Variable x = stack(values_of(sources, query));
  return squeeze(composed_weights(x, query, sources.front().epsilon()), -1);
}

std::vector<OpenMix> open_mixes(const std::vector<DepthSource>& sources,
                                const std::vector<Variable>& queries) {
  if (queries.empty()) return {};
  const std::vector<Variable> values = values_of(sources, queries.front());
  const Shape& shape = values.front().shape();
  for (const Variable& query : queries) check_query(shape, query);
  const std::size_t width = shape.back(), rows = rows_of(values.front());
  std::vector<Array> mixes;
  std::vector<OpenMix> open(queries.size());
  for (OpenMix& each : open) {
    mixes.push_back(uninitialized(shape));
    each.log_sum_exp.resize(rows);
  }
  parallel_chunks(
      rows, rows_per_piece(width),
      [&](std::size_t begin, std::size_t end) {
        RowOfSources row(values, inverse_rms_of(sources));
        std::vector<Real> weights(values.size());
        for (std::size_t r = begin; r < end; ++r) {
          row.go_to(r);
          for (std::size_t q = 0; q < queries.size(); ++q)
            open[q].log_sum_exp[r] = row.mix(queries[q].value().data(), weights.data(),
                                             weights.data(), mixes[q].data() + r * width);
        }
      },
      forward_operations(queries.size() * values.size() * mixes.front().size()));
  for (std::size_t q = 0; q < open.size(); ++q) open[q].mix = Variable(std::move(mixes[q]));
  return open;
}

Variable close_mix(const OpenMix& open, const DepthSource& last, const Variable& query) {
  const std::vector<Variable> values = values_of({last}, query);
  const Shape& shape = values.front().shape();
  check_shape(open.mix.shape() == shape, "depth_mix: sources must have one shape, the open mix is ",
              open.mix.shape(), ", the last source ", shape);
  const std::size_t width = query.size(), rows = rows_of(last.value());
  Array y = uninitialized(shape);
  parallel_chunks(
      rows, rows_per_piece(width),
      [&](std::size_t begin, std::size_t end) {
        for (std::size_t r = begin; r < end; ++r) {
          const Real* const terms[]{open.mix.value().data() + r * width,
                                    last.value().value().data() + r * width};
          const double logit = dot(terms[1], query.value().data(), width) *
                               double(last.inverse_rms().value().data()[r]);
          const double lead = open.log_sum_exp[r] - logit;
          const Real weights[]{Real(1 / (1 + std::exp(-lead))), Real(1 / (1 + std::exp(lead)))};
          vector_kernels<Real>().combine(terms, weights, 2, y.data() + r * width, width);
        }
      },
      forward_operations(2 * y.size()));
  return Variable(std::move(y));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
