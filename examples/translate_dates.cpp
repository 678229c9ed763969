// An encoder-decoder learns to read dates as people write them, and to write them as ISO 8601 does.
//
// The data are made: every day from 1900 to 2099 in a dozen forms. One day in ten is held out: the
// model never sees it, in any form.
#include <cstdio>

#include "core/core.hpp"
#include "examples/common/attention_plot.hpp"
#include "examples/common/command_line.hpp"
#include "layers/encoder_decoder.hpp"
#include "optim/optim.hpp"

namespace {

namespace ag = attngrad;

struct Settings {
  std::size_t steps = 600, batch = 64, width = 64, heads = 4, layers = 2, held_out = 1000;
  double rate = 2e-3;
  std::string attention_plot_path;
};

// ---- dates ------------------------------------------------------------------------------------

struct Date {
  int year, month, day;
};

int days_of(int year, int month) {
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  const int days[]{31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return days[month - 1];
}

bool is_held_out(const Date& d) { return (d.year * 372 + d.month * 31 + d.day) % 10 == 3; }

Date random_date(ag::Rng& rng, bool held_out) {
  for (;;) {
    Date d{int(rng.integer(1900, 2100)), int(rng.integer(1, 13)), 0};
    d.day = int(rng.integer(1, days_of(d.year, d.month) + 1));
    if (is_held_out(d) == held_out) return d;
  }
}

std::string iso(const Date& d) {
  char text[32];
  std::snprintf(text, sizeof text, "%04d-%02d-%02d", d.year, d.month, d.day);
  return text;
}

// The date in one of the ways people write it.
std::string free_form(const Date& d, ag::Rng& rng) {
  static const char* months[]{"January",   "February", "March",    "April",
                              "May",       "June",     "July",     "August",
                              "September", "October",  "November", "December"};
  const std::string name = months[d.month - 1], brief = name.substr(0, 3);
  const char* ordinal = d.day % 10 == 1 && d.day != 11   ? "st"
                        : d.day % 10 == 2 && d.day != 12 ? "nd"
                        : d.day % 10 == 3 && d.day != 13 ? "rd"
                                                         : "th";
  const std::string day = std::to_string(d.day), month = std::to_string(d.month),
                    year = std::to_string(d.year);
  switch (rng.integer(0, 10)) {
    case 0:
      return name + " " + day + ", " + year;
    case 1:
      return day + " " + name + " " + year;
    case 2:
      return day + ordinal + " of " + name + " " + year;
    case 3:
      return brief + " " + day + " " + year;
    case 4:
      return day + "." + month + "." + year;
    case 5:
      return "the " + day + ordinal + " " + brief + " " + year;
    case 6:
      return year + ", " + name + " " + day;
    case 7:
      return day + "-" + brief + "-" + year;
    case 8:
      return year + "/" + month + "/" + day;
    default:
      return "on " + name + " " + day + ordinal + " " + year;
  }
}

// ---- tokens: characters -----------------------------------------------------------------------

constexpr std::size_t longest = 32, iso_length = 10;
const std::string target_letters = "0123456789-";
const auto start = std::int64_t(target_letters.size());

struct Batch {
  ag::Indices source;
  std::vector<std::size_t> lengths;
  ag::Indices input, output;  // the target after `start`, and the target
  std::vector<std::string> texts, dates;
};

Batch make_batch(std::size_t size, bool held_out, ag::Rng& rng) {
  Batch batch{
      ag::Indices::from_shape({size, longest}),    {}, ag::Indices::from_shape({size, iso_length}),
      ag::Indices::from_shape({size, iso_length}), {}, {}};
  for (std::size_t b = 0; b < size; ++b) {
    const Date d = random_date(rng, held_out);
    const std::string text = free_form(d, rng), date = iso(d);
    for (std::size_t i = 0; i < longest; ++i)
      batch.source.data()[b * longest + i] = i < text.size() ? text[i] : 0;
    for (std::size_t i = 0; i < iso_length; ++i) {
      batch.output.data()[b * iso_length + i] = std::int64_t(target_letters.find(date[i]));
      batch.input.data()[b * iso_length + i] =
          i == 0 ? start : batch.output.data()[b * iso_length + i - 1];
    }
    batch.lengths.push_back(text.size());
    batch.texts.push_back(text);
    batch.dates.push_back(date);
  }
  return batch;
}

std::vector<std::string> translated(const ag::EncoderDecoder& model, const Batch& batch) {
  const ag::Indices tokens = ag::translate(model, batch.source, batch.lengths, start, iso_length);
  std::vector<std::string> dates;
  for (std::size_t b = 0; b < batch.texts.size(); ++b) {
    std::string date;
    for (std::size_t i = 0; i < iso_length; ++i) {
      const auto token = std::size_t(tokens.data()[b * iso_length + i]);
      date += token < target_letters.size() ? target_letters[token] : '?';
    }
    dates.push_back(date);
  }
  return dates;
}

// ---- training ---------------------------------------------------------------------------------

ag::EncoderDecoder make_model(const Settings& s, ag::Rng& rng) {
  return ag::EncoderDecoder({.source_vocabulary = 128,
                             .target_vocabulary = target_letters.size() + 1,
                             .source_context = longest,
                             .target_context = iso_length,
                             .width = s.width,
                             .heads = s.heads,
                             .encoder_layers = s.layers,
                             .decoder_layers = s.layers,
                             .deviation = 0.06},
                            rng);
}

void train(const Settings& s, ag::EncoderDecoder& model, ag::Rng& rng, bool json) {
  const ag::Parameters parameters = ag::parameters(model);
  ag::AdamW optimizer(parameters);
  const ag::Schedule schedule =
      ag::warmup_cosine({.peak = s.rate, .floor = 0, .warmup = s.steps / 20, .total = s.steps});
  for (std::size_t step = 0; step < s.steps; ++step) {
    const Batch batch = make_batch(s.batch, false, rng);
    ag::Tape tape;
    const ag::Variable logits =
        model.decode(batch.input, model.encode(batch.source, batch.lengths));
    const ag::Variable loss = ag::cross_entropy(logits, batch.output);
    const ag::Gradients gradients = tape.gradients(loss);
    optimizer.step(gradients, schedule(step), ag::clip_norm(parameters, gradients, 1).factor);
    if ((step + 1) % 100 != 0 && step + 1 != s.steps) continue;
    if (json)
      std::printf("%s\n", nlohmann::json{{"step", step + 1}, {"loss", loss.item()}}.dump().c_str());
    else
      std::printf("step %zu/%zu  loss %.4f\n", step + 1, s.steps, double(loss.item()));
    std::fflush(stdout);
  }
}

// Which letters of the first date of a batch each letter of its translation looked at.
void draw_attention(const Settings& s, const ag::EncoderDecoder& model, const Batch& batch) {
  if (s.attention_plot_path.empty()) return;
  const std::size_t length = batch.lengths[0];
  ag::Indices source = ag::Indices::from_shape({1, length}),
              target = ag::Indices::from_shape({1, iso_length});
  std::copy_n(batch.source.begin(), length, source.begin());
  std::copy_n(batch.input.begin(), iso_length, target.begin());
  const ag::Capture seen = ag::capture("decoder.*.cross.weights");
  model.decode(target, model.encode(source, {length}));
  AttentionPlot plot{
      batch.texts[0] + ": each letter that is written, and the letters it looked at", {}, {}};
  for (const char c : batch.dates[0]) plot.queries.push_back({c});
  for (const char c : batch.texts[0]) plot.keys.push_back(visible_token({c}));
  write_attention_plot(s.attention_plot_path, plot, seen.values());
}

int learn(const Settings& s, const CommonOptions& common) {
  check_writable(s.attention_plot_path);
  ag::Rng rng(common.seed), weights = rng.split(), batches = rng.split(), held_out = rng.split();
  ag::EncoderDecoder model = make_model(s, weights);
  train(s, model, batches, common.json);

  const Batch test = make_batch(s.held_out, true, held_out);
  const std::vector<std::string> dates = translated(model, test);
  draw_attention(s, model, test);
  std::size_t right = 0;
  for (std::size_t b = 0; b < dates.size(); ++b) right += dates[b] == test.dates[b];
  const double share = double(right) / double(dates.size());
  if (common.json) {
    std::printf("%s\n",
                nlohmann::json{{"held_out", dates.size()}, {"exact", share}}.dump().c_str());
    return 0;
  }
  for (std::size_t b = 0; b < std::min<std::size_t>(8, dates.size()); ++b)
    std::printf("  %-32s %s%s\n", test.texts[b].c_str(), dates[b].c_str(),
                dates[b] == test.dates[b] ? "" : "  wrong");
  std::printf("%zu of %zu held-out dates are exact: %.1f %%\n", right, dates.size(), 100 * share);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  Program program("An encoder-decoder learns to read dates and to write them as ISO 8601 does.");
  program.size_option("--steps", s.steps, "of training");
  program.size_option("--batch", s.batch, "dates in a step");
  program.size_option("--width", s.width, "of the model");
  program.size_option("--heads", s.heads, "of each attention");
  program.size_option("--layers", s.layers, "of the encoder, and of the decoder");
  program.size_option("--held-out", s.held_out, "dates to test with");
  program.app.add_option("--rate", s.rate, "the highest learning rate");
  program.app.add_option("--attention-plot", s.attention_plot_path,
                         "where to draw what the first held-out date attends to (SVG)");
  return program.run(argc, argv, [&](const CommonOptions& common) { return learn(s, common); });
}
