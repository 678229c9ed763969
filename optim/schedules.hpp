// Learning-rate schedules: functions from a step, counted from 0, to a rate.
//
// A rate is never 0 at the first step, and after the last one it stays where it ended. All throw
// ArgumentError for arguments that break their rules.
#pragma once

#include <cstddef>
#include <functional>

namespace attngrad {

using Schedule = std::function<double(std::size_t step)>;

// rate > 0, at every step.
Schedule constant_rate(double rate);

struct WarmupOptions {
  double peak;             // > 0
  double floor = 0;        // in [0, peak]
  std::size_t warmup = 0;  // steps of rising; at most total
  std::size_t total;       // steps until the floor is reached; at least 1
};

// Rises linearly to peak, then falls to floor along half a cosine. With t the step and w, n the
// steps of warmup and total:
//   t < w:       peak (t + 1) / w
//   w <= t < n:  floor + (peak - floor) (1 + cos(pi (t - w) / (n - w))) / 2
//   t >= n:      floor
// Source: Loshchilov, Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017,
// equation 5, without restarts.
Schedule warmup_cosine(const WarmupOptions& options);

// The same with a straight line in place of the cosine: peak + (floor - peak) (t - w) / (n - w).
Schedule warmup_linear(const WarmupOptions& options);

// rate times factor at every `interval` steps: rate factor^floor(t / interval).
// rate > 0, factor in (0, 1], interval at least 1.
Schedule step_decay(double rate, double factor, std::size_t interval);

}  // namespace attngrad
