#include "core/gradcheck.hpp"

#include <cmath>
#include <limits>

#include "core/ops/elementwise.hpp"
#include "core/ops/reduce.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

std::vector<Variable> as_parameters(const std::vector<Array>& inputs) {
  std::vector<Variable> parameters;
  for (const Array& x : inputs) parameters.push_back(parameter(x));
  return parameters;
}

// f with its output weighted by fixed random numbers and summed: a loss that no two elements enter
// alike.
Function weighted(const Function& f, std::uint64_t seed) {
  return [f, seed](const std::vector<Variable>& x) {
    const Variable y = f(x);
    Rng rng(seed);
    return sum(y * constant(uniform(rng, y.shape(), 0.5, 1.5)));
  };
}

std::vector<Array> gradients_of(const Function& loss, const std::vector<Array>& inputs) {
  const std::vector<Variable> x = as_parameters(inputs);
  Tape tape;
  const Gradients gradients = tape.gradients(loss(x));
  std::vector<Array> all;
  for (const Variable& input : x) all.push_back(gradients.of(input).value());
  return all;
}

double value_of(const Function& loss, const std::vector<Variable>& x) {
  return double(loss(x).item());
}

double central_difference(const Function& loss, std::vector<Variable>& x, std::size_t input,
                          std::size_t element, double relative_step) {
  Real& entry = x[input].edit().data()[element];
  const Real before = entry;
  const double step = relative_step * std::max(1.0, std::abs(double(before)));
  entry = Real(before + step);
  const double above = value_of(loss, x), high = double(entry);
  entry = Real(before - step);
  const double below = value_of(loss, x), low = double(entry);
  entry = before;
  return (above - below) / (high - low);
}

GradcheckResult check_once(const char* what, const Function& loss, const std::vector<Array>& inputs,
                           const GradcheckOptions& options) {
  const std::vector<Array> analytic = gradients_of(loss, inputs);
  std::vector<Variable> x = as_parameters(inputs);
  GradcheckResult result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::vector<double> differences(x[i].size());
    double scale = 1;
    for (std::size_t e = 0; e < differences.size(); ++e) {
      differences[e] = central_difference(loss, x, i, e, options.step);
      if (std::isfinite(differences[e])) scale = std::max(scale, std::abs(differences[e]));
    }
    for (std::size_t e = 0; e < differences.size(); ++e) {
      const double mine = double(analytic[i].data()[e]);
      const double error = std::abs(mine - differences[e]) / scale;
      if (error <= result.worst) continue;
      result.worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
      if (error <= options.tolerance) continue;
      result.passed = false;
      result.message = text(what, " of input ", i, " of shape ", x[i].shape(), ", element ", e,
                            ": analytic ", mine, ", by differences ", differences[e]);
    }
  }
  return result;
}

// x -> sum of v_i * d loss / d x_i, with fixed random v
Function directional_gradient(const Function& loss, std::uint64_t seed) {
  return [loss, seed](const std::vector<Variable>& x) {
    Tape inner;
    const Gradients gradients = inner.gradients(loss(x));
    Rng rng(seed);
    Variable total(Real(0));
    for (const Variable& input : x)
      total = total + sum(gradients.of(input) * constant(uniform(rng, input.shape(), 0.5, 1.5)));
    return total;
  };
}

// A result that is zero but for rounding (the loss of one class, the gradient of a row with one
// visible key, or of a bias that all of a row has alike) has no scale of its own; it is measured
// against this part of the largest number it was made of, for it may be the sum of thousands.
constexpr double vanishing = 1e-2;

double largest_finite(const Array& x) {
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::isfinite(x.data()[i])) largest = std::max(largest, std::abs(double(x.data()[i])));
  return largest;
}

// max|a - b| / max(floor, max|b|)
double difference_above(double floor, const Array& a, const Array& b) {
  check_shape(a.shape() == b.shape(), "relative_difference: shapes differ: a is ", a.shape(),
              ", b is ", b.shape());
  double difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = double(a.data()[i]), y = double(b.data()[i]);
    if (std::isnan(x) != std::isnan(y)) return std::numeric_limits<double>::infinity();
    if (std::isnan(x) || x == y) continue;  // equal infinities differ by nothing
    difference = std::max(difference, std::abs(x - y));
  }
  return difference == 0 ? 0 : difference / std::max(floor, largest_finite(b));
}

}  // namespace

GradcheckResult gradcheck(const Function& f, const std::vector<Array>& inputs,
                          GradcheckOptions options) {
  check_argument(options.order == 1 || options.order == 2, "gradcheck: order must be 1 or 2, got ",
                 options.order);
  const Function loss = weighted(f, options.seed);
  GradcheckResult result = check_once("the gradient", loss, inputs, options);
  if (!result || options.order == 1) return result;
  return check_once("the second derivative", directional_gradient(loss, options.seed + 1), inputs,
                    options);
}

double relative_difference(const Array& a, const Array& b) { return difference_above(0, a, b); }

Comparison compare_functions(const Function& f, const Function& reference,
                             const std::vector<Array>& inputs, std::uint64_t seed) {
  Comparison worst;
  const std::vector<Variable> constants(as_parameters(inputs));
  double largest = 1;
  for (const Array& x : inputs) largest = std::max(largest, largest_finite(x));
  worst.value =
      difference_above(vanishing * largest, f(constants).value(), reference(constants).value());
  const std::vector<Array> mine = gradients_of(weighted(f, seed), inputs);
  const std::vector<Array> theirs = gradients_of(weighted(reference, seed), inputs);
  for (const Array& g : theirs) largest = std::max(largest, largest_finite(g));
  for (std::size_t i = 0; i < mine.size(); ++i)
    worst.gradient =
        std::max(worst.gradient, difference_above(vanishing * largest, mine[i], theirs[i]));
  return worst;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
