#include "core/ops/loss.hpp"

#include <cmath>

#include "core/kernels/rows.hpp"
#include "core/kernels/strided.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/softmax.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

using kernels::LogSumExp;
using kernels::row_kernels;
using kernels::vector_kernels;

// The targets of rows of logits (rows, classes), and how their losses come together.
class Targets {
 public:
  Targets(const Variable& logits, const Indices& targets, const CrossEntropyOptions& options)
      : targets_(targets), options_(options) {
    check_shape(logits.rank() > 0, "cross_entropy: logits must have rank 1 or more, got shape ()");
    const Shape expected(logits.shape().begin(), logits.shape().end() - 1);
    check_shape(targets.shape() == expected, "cross_entropy: targets must be ", expected, ", got ",
                targets.shape());
    check_argument(options.label_smoothing >= 0 && options.label_smoothing <= 1,
                   "cross_entropy: label smoothing must be in [0, 1], got ",
                   options.label_smoothing);
    check_weights();
    classes_ = logits.shape().back();
    for (std::size_t row = 0; row < rows(); ++row) {
      const std::int64_t target = (*this)[row];
      check_argument(ignored(row) || (target >= 0 && std::size_t(target) < classes_),
                     "cross_entropy: target ", target, " is outside [0, ", classes_, ")");
      if (!ignored(row)) counted_ += weight_of(row);
    }
  }

  std::size_t rows() const { return targets_.size(); }
  std::size_t classes() const { return classes_; }
  std::int64_t operator[](std::size_t row) const { return targets_.data()[row]; }
  double weight_of(std::size_t row) const {
    return options_.weights ? double(options_.weights->data()[row]) : 1.0;
  }
  bool ignored(std::size_t row) const {
    return (*this)[row] == options_.ignore_index || weight_of(row) == 0;
  }
  double smoothing() const { return double(options_.label_smoothing); }
  bool keeps_rows() const { return options_.reduction == Reduction::none; }
  const Indices& all() const { return targets_; }
  const CrossEntropyOptions& options() const { return options_; }
  Shape result_shape() const { return keeps_rows() ? targets_.shape() : Shape(); }

  // What the loss of one row counts in the result.
  double share(std::size_t row) const {
    const double whole = options_.reduction == Reduction::mean && counted_ > 0 ? counted_ : 1;
    return weight_of(row) / whole;
  }

 private:
  void check_weights() const {
    if (!options_.weights) return;
    check_shape(options_.weights->shape() == targets_.shape(), "cross_entropy: weights must be ",
                targets_.shape(), ", got ", options_.weights->shape());
    for (const Real w : *options_.weights)
      check_argument(std::isfinite(w) && w >= 0,
                     "cross_entropy: weights must be finite and not negative, got ", w);
  }

  Indices targets_;
  CrossEntropyOptions options_;
  std::size_t classes_ = 0;
  double counted_ = 0;  // the weights of the rows that count
};

// Calls body(row) for all rows that count, in parallel.
template <class Body>
void for_each_row(const Targets& t, Body body) {
  parallel_chunks(t.rows(), kernels::rows_per_task(t.classes()),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t row = begin; row < end; ++row) body(row);
                  });
}

// -sum of the target distribution times x - log_sum_exp x. Differences from the largest x come
// first, so that little is lost where all of x is large.
double row_loss(const Real* x, LogSumExp log_sum_exp, std::int64_t target, double smoothing,
                std::size_t n) {
  const double at_target = log_sum_exp.top - double(x[target]) + log_sum_exp.log_total;
  if (smoothing == 0) return at_target;
  const double average = vector_kernels<Real>().sum(x, n) / double(n);
  const double everywhere = log_sum_exp.top - average + log_sum_exp.log_total;
  return (1 - smoothing) * at_target + smoothing * everywhere;
}

// The losses of rows, each with its share, as the options want them; in double, so that many add up
// well.
Array collect(const Targets& t, const std::vector<double>& losses) {
  Array y = uninitialized(t.result_shape());
  if (t.keeps_rows()) {
    std::copy(losses.begin(), losses.end(), y.data());
  } else {
    y.data()[0] = Real(vector_kernels<double>().sum(losses.data(), losses.size()));
  }
  return y;
}

// The softmax less the target's distribution, and exactly 0 where the row does not count.
Array backward(const Targets& t, const Array& x, const std::vector<LogSumExp>& log_sums,
               const Array& g) {
  Array gx = uninitialized(x.shape());
  const std::size_t n = t.classes();
  for_each_row(t, [&](std::size_t row) {
    const double scale = double(g.data()[t.keeps_rows() ? row : 0]) * t.share(row);
    if (t.ignored(row) || scale == 0) {
      std::fill_n(gx.data() + row * n, n, Real(0));
    } else {
      row_kernels<Real>().cross_entropy_backward(x.data() + row * n, log_sums[row], t[row],
                                                 t.smoothing(), scale, gx.data() + row * n, n);
    }
  });
  return gx;
}

// The targets' distributions, (..., classes), each times what its row counts.
Array distributions(const Targets& t, const Shape& shape) {
  const std::size_t n = t.classes();
  Array y = zeros(shape);
  for (std::size_t row = 0; row < t.rows(); ++row) {
    if (t.ignored(row)) continue;
    std::fill_n(y.data() + row * n, n, Real(t.share(row) * t.smoothing() / double(n)));
    y.data()[row * n + std::size_t(t[row])] += Real(t.share(row) * (1 - t.smoothing()));
  }
  return y;
}

}  // namespace

Variable cross_entropy(const Variable& logits, const Indices& targets,
                       CrossEntropyOptions options) {
  const auto t = std::make_shared<const Targets>(logits, targets, options);
  const std::size_t n = t->classes();
  std::vector<LogSumExp> log_sums(t->rows());
  std::vector<double> losses(t->rows(), 0.0);
  for_each_row(*t, [&](std::size_t row) {
    if (t->ignored(row)) return;
    const Real* x = logits.value().data() + row * n;
    log_sums[row] = row_kernels<Real>().log_sum_exp(x, n);
    losses[row] = t->share(row) * row_loss(x, log_sums[row], (*t)[row], t->smoothing(), n);
  });

  const std::size_t weights = options.weights ? options.weights->size() * sizeof(Real) : 0;
  saves_bytes(log_sums.size() * sizeof(LogSumExp) + targets.size() * sizeof(std::int64_t) +
              weights);
  return record_joint(
      "cross_entropy", Variable(collect(*t, losses)), {logits},
      [t, logits, log_sums = std::move(log_sums)](const Array& g) {
        return list_of(backward(*t, logits.value(), log_sums, g));
      },
      [t](const std::vector<Variable>& in) {
        return composed_cross_entropy(in[0], t->all(), t->options());
      });
}

Variable composed_cross_entropy(const Variable& logits, const Indices& targets,
                                CrossEntropyOptions options) {
  const Targets t(logits, targets, options);
  const Variable expected(distributions(t, logits.shape()));
  // a class without weight counts nothing, even where its logarithm is -infinity
  const Variable losses = negate(chain(expected, composed_log_softmax(logits)));
  return t.keeps_rows() ? sum(losses, -1) : sum(losses);
}

Variable mean_square(const Variable& prediction, const Variable& target) {
  check_shape(prediction.shape() == target.shape(), "mean_square: shapes differ: prediction is ",
              prediction.shape(), ", target is ", target.shape());
  return mean(square(prediction - target));
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
