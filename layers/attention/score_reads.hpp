// What a score function reads of its parameters, and where the slopes of that go.
#pragma once

#include <iterator>
#include <numeric>

#include "layers/attention/score_numbers.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// An element of a parameter for each lane, at `first` + `of_lane`, or one for all of them, at
// `first`.
struct ScoreRead {
  std::size_t parameter;
  bool same;
  std::size_t first;
  IndexLanes of_lane;
};

// A parameter as it lies in memory, and whether it wants a gradient.
struct ScoreParameter {
  const Real* data;
  const Shape* shape;
  bool learned;
};

// What one call of f has read of the parameters that want a gradient.
class ScoreReads {
 public:
  static constexpr std::size_t most = 8;

  explicit ScoreReads(const std::vector<ScoreParameter>& parameters) : parameters_(parameters) {}

  std::size_t count() const { return count_; }
  const ScoreRead& operator[](std::size_t i) const { return reads_[i]; }

  // One index for each axis.
  template <class... Index>
  Lanes read(std::size_t parameter, const Index&... indices) {
    check_argument(parameter < parameters_.size(), "score: the function reads parameter ",
                   parameter, " of ", parameters_.size());
    const auto& [data, shape, learned] = parameters_[parameter];
    check_shape(shape->size() == sizeof...(indices), "score: parameter ", parameter, " of shape ",
                *shape, " is read with ", sizeof...(indices), " indices");
    check_argument(count_ < most, "score: the function reads more than ", most,
                   " elements for one score");
    ScoreRead& read = reads_[count_];
    read.parameter = parameter;
    if (learned) ++count_;
    read.first = 0;
    [[maybe_unused]] std::size_t axis = 0;
    read.same = true;
    (add_axis(read, (*shape)[axis++], indices), ...);
    if (read.same) return Lanes(data[read.first]);
    Lanes values;
    for (std::size_t lane = 0; lane < score_lanes; ++lane)
      values.of[lane] = data[read.first + std::size_t(read.of_lane.of[lane])];
    return values;
  }

 private:
  static void check_index(std::size_t parameter, std::size_t size, std::ptrdiff_t low,
                          std::ptrdiff_t high) {
    check_argument(low >= 0 && high < std::ptrdiff_t(size), "score: the function reads parameter ",
                   parameter, " at ", low < 0 ? low : high, ", outside of [0, ", size,
                   "); it is called for hidden pairs too, so clamp the index");
  }

  // One more axis: what is the same for every lane, as a clamped index mostly is, goes into
  // `first`.
  template <class Index>
  static void add_axis(ScoreRead& read, std::size_t size, const Index& index) {
    read.first *= size;
    if (!read.same) read.of_lane = read.of_lane * IndexLanes(std::int32_t(size));
    if constexpr (std::is_integral_v<Index>) {
      check_index(read.parameter, size, index, index);
      read.first += std::size_t(index);
    } else {
      std::int32_t low = index.of[0], high = index.of[0];
      for (const std::int32_t i : index.of) {
        low = std::min(low, i);
        high = std::max(high, i);
      }
      check_index(read.parameter, size, low, high);
      if (low == high) {
        read.first += std::size_t(low);
        return;
      }
      read.of_lane = read.same ? index : read.of_lane + index;
      read.same = false;
    }
  }

  const std::vector<ScoreParameter>& parameters_;
  std::array<ScoreRead, most> reads_;
  std::size_t count_ = 0;
};

template <std::size_t slopes>
class NumberParameters {
 public:
  explicit NumberParameters(ScoreReads& reads) : reads_(reads) {}

  auto operator[](std::size_t parameter) const {
    return [this, parameter](const auto&... indices) {
      [[maybe_unused]] const std::size_t before = reads_.count();
      ScoreNumber<slopes> x{reads_.read(parameter, indices...), {}};
      if constexpr (slopes > 0)
        if (reads_.count() > before) {
          check_argument(1 + before < slopes,
                         "score: the function reads more elements for some keys than for others");
          x.slope[1 + before] = Lanes(1.0);
        }
      return x;
    };
  }

 private:
  ScoreReads& reads_;
};

// Adds up the gradient of one read over a block. While it stays at one element, in double.
class ScoreSum {
 public:
  void add(const Lanes& gradient, std::size_t count, const ScoreRead& read,
           Real* const* gradients) {
    Real* const to = gradients[read.parameter];
    if (!read.same) {
      for (std::size_t lane = 0; lane < count; ++lane)
        to[read.first + std::size_t(read.of_lane.of[lane])] += gradient.of[lane];
      return;
    }
    if (to_ != to + read.first) {
      flush();
      to_ = to + read.first;
    }
    Lanes counted = gradient;
    for (std::size_t lane = count; lane < score_lanes; ++lane) counted.of[lane] = 0;
    double wide[score_lanes];
    convert_lanes(counted.of, wide);
    map_vectors([](auto& to, const auto& x, const auto& y) { to = x + y; }, sums_, wide, sums_);
  }

  void flush() {
    if (to_ != nullptr) *to_ += Real(std::accumulate(std::begin(sums_), std::end(sums_), 0.0));
    std::fill(std::begin(sums_), std::end(sums_), 0.0);
  }

 private:
  Real* to_ = nullptr;
  double sums_[score_lanes] = {};  // by lane
};

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
