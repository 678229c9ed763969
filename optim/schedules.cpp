#include "optim/schedules.hpp"

#include <cmath>
#include <numbers>

#include "core/errors.hpp"

namespace attngrad {
namespace {

void check_rate(const char* schedule, double rate) {
  check_argument(rate > 0 && std::isfinite(rate), schedule,
                 ": the rate must be positive and finite, got ", rate);
}

// `fall` takes the part of the way down that is done, in [0, 1), to the part of the height that is
// left.
template <class Fall>
Schedule warmup(const char* name, const WarmupOptions& options, Fall fall) {
  check_rate(name, options.peak);
  check_argument(options.floor >= 0 && options.floor <= options.peak, name,
                 ": floor must be in [0, ", options.peak, "], got ", options.floor);
  check_argument(options.total > 0, name, ": total must be at least 1");
  check_argument(options.warmup <= options.total, name, ": warmup must be at most total ",
                 options.total, ", got ", options.warmup);
  return [options, fall](std::size_t step) {
    const auto& [peak, floor, warmup, total] = options;
    if (step < warmup) return peak * double(step + 1) / double(warmup);
    if (step >= total) return floor;
    return floor + (peak - floor) * fall(double(step - warmup) / double(total - warmup));
  };
}

}  // namespace

Schedule constant_rate(double rate) {
  check_rate("constant_rate", rate);
  return [rate](std::size_t) { return rate; };
}

Schedule warmup_cosine(const WarmupOptions& options) {
  return warmup("warmup_cosine", options,
                [](double done) { return (1 + std::cos(std::numbers::pi * done)) / 2; });
}

Schedule warmup_linear(const WarmupOptions& options) {
  return warmup("warmup_linear", options, [](double done) { return 1 - done; });
}

Schedule step_decay(double rate, double factor, std::size_t interval) {
  check_rate("step_decay", rate);
  check_argument(factor > 0 && factor <= 1, "step_decay: factor must be in (0, 1], got ", factor);
  check_argument(interval > 0, "step_decay: interval must be at least 1");
  return [=](std::size_t step) { return rate * std::pow(factor, double(step / interval)); };
}

}  // namespace attngrad
