#include "examples/less_is_more/decode_time.hpp"

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "examples/common/small_model.hpp"

namespace {

constexpr std::int64_t vocabulary = 512;
constexpr std::size_t prompt_piece = 512;

ag::Transformer random_model(const DecodeTimeSettings& s, std::size_t context) {
  ag::TransformerOptions options =
      small_model(std::size_t(vocabulary), context + 1, s.width, s.heads, s.layers, 3 * s.width);
  options.key_heads = s.key_heads;
  ag::Rng rng(1);
  return ag::Transformer(options, rng);
}

void fill(const ag::Transformer& model, std::size_t context, ag::TransformerCache& cache) {
  ag::Rng rng(2);
  for (std::size_t done = 0; done < context; done += prompt_piece)
    model.decode(rng.integers(0, vocabulary, {1, std::min(prompt_piece, context - done)}), cache);
}

DecodeTime time_of_token(const ag::Transformer& model, ag::TransformerCache& cache,
                         const ag::LessIsMoreOptions& options) {
  const std::vector<std::size_t> before = cache.lengths();
  const ag::Indices token({1, 1}, 7);
  ag::LessIsMore less(options);
  std::size_t count = 0;
  const Timing timing = time_of([&] {
    model.decode(token, cache, &less);
    cache.truncate(before);
    ++count;
  });
  return {before[0], options.selection.budget, "", timing, less.bytes_read() / count};
}

}  // namespace

std::vector<DecodeTime> time_decoding(const DecodeTimeSettings& s) {
  std::vector<DecodeTime> times;
  for (const std::size_t context : s.contexts) {
    const ag::Transformer model = random_model(s, context);
    ag::TransformerCache cache = model.make_cache(1);
    fill(model, context, cache);
    const auto add = [&](const ag::LessIsMoreOptions& options, const std::string& selector) {
      times.push_back(time_of_token(model, cache, options));
      times.back().selector = selector;
    };
    add({.roles = std::vector(s.layers, ag::DecodeRole::dense), .selection = {.budget = context}},
        "dense");
    for (const std::size_t budget : s.budgets)
      for (const ag::Selector selector :
           {ag::Selector::unified, ag::Selector::per_head, ag::Selector::window})
        add({.roles = ag::decode_roles(s.layers, {1}),
             .selection = {.budget = budget, .selector = selector}},
            ag::selector_name(selector));
  }
  return times;
}

void print_decode_times(const std::vector<DecodeTime>& times, bool json) {
  if (!json)
    std::printf(
        "\ntime of a token, random weights; speed-up over dense attention\n%8s  %8s  %11s  %9s  "
        "%9s  %8s  %9s\n",
        "context", "budget", "selector", "ms", "tokens/s", "speed-up", "KV read");
  double dense = 0;
  for (const DecodeTime& t : times) {
    if (t.selector == "dense") dense = t.token.median_ms;
    const double speed_up = dense / t.token.median_ms;
    if (json)
      std::cout << nlohmann::json{{"context", t.context},   {"budget", t.budget},
                                  {"selector", t.selector}, {"ms", t.token.median_ms},
                                  {"speed_up", speed_up},   {"bytes", t.bytes}}
                << "\n";
    else
      std::printf("%8zu  %8zu  %11s  %9.3f  %9.1f  %8.2f  %6.2f MB\n", t.context, t.budget,
                  t.selector.c_str(), t.token.median_ms, 1000 / t.token.median_ms, speed_up,
                  double(t.bytes) / 1e6);
  }
}
