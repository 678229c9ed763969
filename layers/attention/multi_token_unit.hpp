// How multi_token_attention works on a strip of queries; for its passes and for its decoding.
#pragma once

#include "layers/attention/multi_token_decode.hpp"
#include "layers/attention/multi_token_strips.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {

// Scores, or weights, of some heads: those of the queries first, ..., end - 1 and the first `keys`
// keys.
class Planes {
 public:
  Planes(std::size_t heads, std::size_t first, std::size_t end, std::size_t keys)
      : first_(first), end_(end), keys_(keys) {
    numbers_ = uninitialized({heads, end - first, keys});
  }

  std::size_t first() const { return first_; }
  std::size_t end() const { return end_; }
  std::size_t rows() const { return end_ - first_; }
  std::size_t keys() const { return keys_; }
  std::size_t plane_size() const { return rows() * keys_; }
  Real* row(std::size_t head, std::size_t query) {
    return numbers_.data() + (head * rows() + query - first_) * keys_;
  }
  const Real* row(std::size_t head, std::size_t query) const {
    return const_cast<Planes*>(this)->row(head, query);
  }
  void clear() { numbers_.fill(Real(0)); }

 private:
  std::size_t first_, end_, keys_;
  Array numbers_;
};
using PlanesPointer = std::shared_ptr<Planes>;

inline std::size_t reach(const Variable& kernel) {
  return kernel.holds_value() ? kernel.size(1) - 1 : 0;
}
inline std::size_t group_of(const Variable& mix) { return mix.holds_value() ? mix.size(1) : 1; }
inline std::size_t before(std::size_t query, std::size_t rows) {
  return query - std::min(query, rows);
}

// The part of a head that holds some times.
template <class T>
kernels::HeadView<T> times(const kernels::HeadView<T>& v, std::size_t first, std::size_t end) {
  return {v.data + first * v.stride, end - first, v.width, v.stride};
}

// Heads of one batch row that belong together, because they are mixed or share a key head.
class Unit {
 public:
  Unit(const MultiTokenCall& c, std::size_t batch, std::size_t first_head, std::size_t heads)
      : c_(c), batch_(batch), first_head_(first_head), heads_(heads) {}

  // What the strip of queries begin, ..., end - 1 needs on the way.
  struct Strip {
    PlanesPointer raw, convolved, weights, convolved_after, last;
  };
  // known: the rows before the strip, if they are not to be computed (multi_token_decode.hpp).
  Strip run(std::size_t begin, std::size_t end, std::size_t keys,
            const TokenRows* known = nullptr) const;
  void add_output(const Planes& weights, std::size_t begin, std::size_t end, Array& y) const;
  // sums: in double, of the gradients of the mixing's weights, for this batch row
  void run_back(std::size_t begin, std::size_t end, const Array& dy, const GradientArrays& to,
                const std::vector<double*>& sums) const;
  // Leaves the last rows of a strip in `to`.
  void keep_last(const Planes& from, Array& to) const;
  std::size_t visible_keys(std::size_t end) const {
    return std::max<std::size_t>(mask().keys(batch_, end - 1).end, 1);
  }

 private:
  const SizedMask& mask() const { return c_.call.mask; }
  PlanesPointer planes(std::size_t first, std::size_t end, std::size_t keys) const {
    return std::make_shared<Planes>(heads_, first, end, keys);
  }
  kernels::HeadView<const Real> head(const Heads& heads, std::size_t h, std::size_t group) const {
    return head_view(heads, batch_, (first_head_ + h) / group);
  }
  ScoreBlock<Real> block(Planes& x, std::size_t h, std::size_t first, std::size_t end) const {
    return {
        {batch_, first_head_ + h, first, end - first, 0, x.keys()}, x.row(h, first), x.keys(), 1};
  }
  ScoreBlock<const Real> block(const Planes& x, std::size_t h, std::size_t first,
                               std::size_t end) const {
    return {
        {batch_, first_head_ + h, first, end - first, 0, x.keys()}, x.row(h, first), x.keys(), 1};
  }
  // A row of some head with what query i does not see as 0; keys: how many.
  void hide_row(std::size_t h, std::size_t i, Real* row, std::size_t keys) const {
    mask().overwrite_hidden(
        ScoreBlock<Real>{{batch_, first_head_ + h, i, 1, 0, keys}, row, keys, 1}, Real(0));
  }
  void hide(Planes& x, Real value) const {
    for (std::size_t h = 0; h < heads_; ++h)
      mask().overwrite_hidden(block(x, h, x.first(), x.end()), value);
  }
  void softmax(Planes& x) const;
  void copy_known(const Array& rows, Planes& to, std::size_t begin) const;
  void drop(Planes& x) const {
    for (std::size_t h = 0; h < heads_; ++h)
      for (std::size_t i = x.first(); i < x.end(); ++i)
        c_.call.drop_row(batch_, first_head_ + h, i, x.row(h, i), x.keys());
  }
  void convolve(const Variable& kernel, const Planes& from, Planes& to) const;
  void convolve_back(const Variable& kernel, const Planes& from, const Planes& g, Planes& to,
                     double* sums) const;
  void mix(const Variable& matrices, bool transposed, const Planes& from, Planes& to) const;
  void mix_back(const Variable& matrices, const Planes& from, const Planes& g, double* sums) const;
  PlanesPointer mixed_back(const Variable& matrices, const Planes& from, const PlanesPointer& g,
                           double* sums) const;

  const MultiTokenCall& c_;
  std::size_t batch_, first_head_, heads_;
};

// How many heads belong together.
std::size_t heads_of_unit(const MultiTokenCall& call);

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
