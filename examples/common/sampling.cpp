#include "examples/common/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

void check_sampling(const SamplingOptions& options) {
  ag::check_argument(options.temperature >= 0 && std::isfinite(options.temperature),
                     "sampling: temperature must be finite and not negative, got ",
                     options.temperature);
  ag::check_argument(options.top_p > 0 && options.top_p <= 1,
                     "sampling: top_p must be in (0, 1], got ", options.top_p);
}

// One that is not finite would leave no order to draw from; -infinity is a token that never comes.
void check_logits(const ag::Real* logits, std::size_t count) {
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) {
    ag::check_argument(logits[i] < INFINITY, "sampling: logit ", i, " is ", logits[i]);
    any = any || logits[i] > -INFINITY;
  }
  ag::check_argument(any, "sampling: none of ", count, " logits is above -infinity");
}

std::int64_t sample_token(const ag::Real* logits, std::size_t count, const SamplingOptions& options,
                          ag::Rng& rng) {
  check_sampling(options);
  check_logits(logits, count);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::size_t kept = options.top_k == 0 ? count : std::min(options.top_k, count);
  std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(kept), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
                    });
  if (options.temperature == 0) return std::int64_t(order[0]);
  std::vector<double> shares(kept);
  for (std::size_t i = 0; i < kept; ++i)
    shares[i] =
        std::exp((double(logits[order[i]]) - double(logits[order[0]])) / options.temperature);
  double total = std::accumulate(shares.begin(), shares.end(), 0.0), most = 0;
  std::size_t needed = 0;
  while (needed < kept && most < options.top_p * total) most += shares[needed++];
  if (options.top_p < 1) total = most, kept = needed;
  double left = rng.uniform() * total;
  for (std::size_t i = 0; i < kept; ++i)
    if ((left -= shares[i]) < 0) return std::int64_t(order[i]);
  return std::int64_t(order[kept - 1]);
}

namespace {

// The model beside the cache of one text.
class Reader {
 public:
  Reader(const ag::Transformer& model, const ReadingOptions& reading, std::size_t most)
      : model_(model),
        streaming_(reading.window.has_value()),
        cache_(streaming_ ? model.make_streaming_cache(1, *reading.window, reading.sinks)
                          : model.make_cache(1, std::min(model.options.context, most))) {
    if (reading.less_is_more) less_.emplace(*reading.less_is_more);
  }

  // The logits behind the last of the tokens, of which the last `unread` have not been read.
  std::vector<ag::Real> read(const std::vector<std::int64_t>& tokens, std::size_t unread) {
    if (!streaming_ && cache_.lengths()[0] + unread > cache_.capacity()) {
      cache_.clear();
      unread = (cache_.capacity() + 1) / 2;
    }
    std::vector<ag::Real> last;
    while (unread > 0) {  // in pieces, one token at a time where a streaming cache is full
      const std::size_t room = cache_.capacity() - cache_.lengths()[0],
                        count = std::clamp<std::size_t>(room, 1, unread);
      ag::Indices piece = ag::Indices::from_shape({1, count});
      std::copy_n(tokens.end() - std::ptrdiff_t(unread), count, piece.data());
      // a prompt is read densely, even token by token
      const bool last_piece = count == unread;
      const ag::Variable logits =
          model_.decode(piece, cache_, less_ && last_piece ? &*less_ : nullptr);
      last.assign(logits.value().end() - std::ptrdiff_t(logits.size(-1)), logits.value().end());
      unread -= count;
    }
    return last;
  }

 private:
  const ag::Transformer& model_;
  bool streaming_;
  ag::TransformerCache cache_;
  std::optional<ag::LessIsMore> less_;
};

}  // namespace

void continue_text(const ag::Transformer& model, std::vector<std::int64_t> tokens,
                   std::size_t count, const SamplingOptions& options, ag::Rng& rng,
                   const std::function<bool(std::int64_t)>& take, const ReadingOptions& reading) {
  ag::check_argument(!tokens.empty(), "continue_text: the prompt must not be empty");
  Reader reader(model, reading, tokens.size() + count);
  std::size_t unread =
      reading.window ? tokens.size() : std::min(tokens.size(), model.options.context);
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<ag::Real> logits = reader.read(tokens, unread);
    tokens.push_back(sample_token(logits.data(), logits.size(), options, rng));
    unread = 1;
    if (!take(tokens.back())) return;
  }
}
