#include "examples/attention_residuals/settings.hpp"

#include "core/errors.hpp"
#include "examples/common/command_line.hpp"
#include "examples/common/small_model.hpp"

std::string Job::name() const { return ag::text(arm, "-seed", seed, "-rate", rate); }

std::vector<Job> jobs_of(const Settings& s, std::uint64_t first_seed) {
  for (const std::string& arm : s.arms) residual_of(arm);
  check_distinct("arms", s.arms);
  check_distinct("rates", s.rates);
  std::vector<Job> jobs;
  for (const double rate : s.rates)
    for (std::uint64_t seed = first_seed; seed < first_seed + s.seeds; ++seed)
      for (const std::string& arm : s.arms) jobs.push_back({arm, seed, rate});
  return jobs;
}

ag::Residual residual_of(const std::string& arm) {
  if (arm == plain_arm) return ag::ResidualSum();
  if (arm == "full") return ag::FullAttention();
  const std::string number = arm.substr(0, 5) == "block" ? arm.substr(5) : "";
  ag::check_argument(!number.empty() && number.size() < 6 && number[0] != '0' &&
                         number.find_first_not_of("0123456789") == std::string::npos,
                     "attention_residuals: an arm is residual, full, or block with a number such "
                     "as block8, got ",
                     arm);
  return ag::BlockAttention{.blocks = std::size_t(std::stoul(number))};
}

ag::TransformerOptions model_options(const Settings& s, const std::string& arm,
                                     std::size_t vocabulary) {
  ag::TransformerOptions options =
      small_model(vocabulary, s.context, s.width, s.heads, s.layers, s.hidden);
  options.residual = residual_of(arm);
  return options;
}
