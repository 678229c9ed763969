// A gradient in ten lines: z = sum(x * y + sin(x)), so dz/dx = y + cos(x) and dz/dy = x.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/core.hpp"

namespace ag = attngrad;

int main(int argc, char** argv) {
  CLI::App app("A gradient in ten lines: z = sum(x * y + sin(x)).");
  std::uint64_t seed = 0;
  int threads = ag::threads();
  bool json = false;
  app.add_option("--seed", seed, "draw y at random with this seed; 0: y = 3, 4, 5");
  app.add_option("--threads", threads, "for the kernels")->check(CLI::Range(1, 1024));
  app.add_flag("--json", json, "print one JSON object");
  CLI11_PARSE(app, argc, argv);
  ag::set_threads(threads);

  ag::Rng rng(seed);
  const ag::Array given = seed == 0 ? ag::Array{3.0, 4.0, 5.0} : ag::uniform(rng, {3}, 3, 6);

  const ag::Variable x = ag::parameter({0.0, 1.0, 2.0}), y = ag::parameter(given);
  ag::Tape tape;
  const ag::Variable z = ag::sum(x * y + ag::sin(x));
  const ag::Gradients gradients = tape.gradients(z);
  const ag::Array dx = gradients.of(x).value(), dy = gradients.of(y).value();

  if (json) {
    std::cout << nlohmann::json{{"z", z.item()},
                                {"dx", std::vector<double>(dx.begin(), dx.end())},
                                {"dy", std::vector<double>(dy.begin(), dy.end())}}
              << "\n";
    return 0;
  }
  std::cout << "z     = " << z.item() << "\n";
  for (const ag::Real slope : dx) std::cout << "dz/dx = " << slope << "\n";
  for (const ag::Real slope : dy) std::cout << "dz/dy = " << slope << "\n";
}
