// Our side of peers/torch_attention.py: the same shapes, layout and work, one line of JSON a shape.
#include <cstdio>
#include <sstream>

#include "core/core.hpp"
#include "examples/common/command_line.hpp"
#include "layers/attention/kernel.hpp"
#include "timer.hpp"

namespace ag = attngrad;

namespace {

struct Shape4 {
  std::size_t batch, heads, length, width;
};

Shape4 parse(const std::string& text) {
  Shape4 s{};
  char x;
  std::istringstream in(text);
  if (!(in >> s.batch >> x >> s.heads >> x >> s.length >> x >> s.width))
    throw ag::ArgumentError("--shapes: needs BxHxNxD, got " + text);
  return s;
}

// (batch, heads, length, width), as PyTorch has it
ag::Heads heads_of(const ag::Variable& x, const Shape4& s) {
  return {.array = x,
          .batch = s.batch,
          .heads = s.heads,
          .length = s.length,
          .width = s.width,
          .offset = 0,
          .batch_stride = s.heads * s.length * s.width,
          .head_stride = s.length * s.width,
          .time_stride = s.width};
}

nlohmann::json measure(const std::string& text, const std::string& kernel_name, bool causal,
                       double least_seconds) {
  const Shape4 s = parse(text);
  ag::Rng rng(0);
  const auto random = [&](bool wants_grad) {
    ag::Array x = ag::normal(rng, {s.batch, s.heads, s.length, s.width});
    return wants_grad ? ag::parameter(std::move(x)) : ag::constant(std::move(x));
  };
  const ag::Variable q = random(true), k = random(true), v = random(true);
  const ag::Variable dy(ag::normal(rng, {s.batch, s.length, s.heads * s.width}));
  const ag::AttentionKernel kernel = ag::attention_kernel(kernel_name);
  const ag::AttentionOptions options{.mask = causal ? ag::causal() : ag::Mask(), .scale = {}};
  const auto forward = [&] {
    return kernel({heads_of(q, s), heads_of(k, s), heads_of(v, s)}, options).output;
  };
  const double before = peak_resident_mib();
  const Timing fwd = time_of([&] { forward(); }, least_seconds);
  const Timing both = time_of(
      [&] {
        ag::Tape tape;
        tape.gradients(forward(), dy);
      },
      least_seconds);
  // the usual convention: 4 B H N N D forward, 2.5 times that backward, half of it when causal
  const double flop =
      4.0 * double(s.batch * s.heads * s.length) * double(s.length * s.width) * (causal ? 0.5 : 1);
  return {{"shape", text},
          {"kernel", kernel_name},
          {"causal", causal},
          {"fwd_ms", fwd.median_ms},
          {"fwd_bwd_ms", both.median_ms},
          {"fwd_gflops", flop / fwd.median_ms / 1e6},
          {"fwd_bwd_gflops", 3.5 * flop / both.median_ms / 1e6},
          {"peak_rss_grown_mib", peak_resident_mib() - before}};
}

}  // namespace

int main(int argc, char** argv) {
  std::string shapes =
      "4x4x64x32,1x8x256x64,1x8x512x64,1x8x1024x64,1x8x2048x64,1x8x4096x64,"
      "1x4x2048x128";
  std::string kernel = "flash";
  bool full = false, sgemm = false;
  double seconds = 1;
  Program program("Times attention alone.");
  program.app.add_option("--shapes", shapes, "BxHxNxD, separated by commas");
  program.app.add_option("--kernel", kernel, "composed, fused or flash");
  program.app.add_option("--seconds", seconds, "of each measurement");
  program.app.add_flag("--full", full, "no causal mask");
  program.app.add_flag("--sgemm", sgemm, "measure OpenBLAS's rate too, after each shape");
  return program.run(argc, argv, [&](const CommonOptions&) {
    std::istringstream list(shapes);
    for (std::string shape; std::getline(list, shape, ',');) {
      nlohmann::json line = measure(shape, kernel, !full, seconds);
      line["threads"] = ag::threads();
      if (sgemm) line["sgemm_gflops"] = sgemm_gflops(ag::threads());
      std::printf("%s\n", line.dump().c_str());
      std::fflush(stdout);
    }
    return 0;
  });
}
