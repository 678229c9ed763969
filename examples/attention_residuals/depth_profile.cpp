#include "examples/attention_residuals/depth_profile.hpp"

#include <cmath>

#include "core/core.hpp"
#include "layers/layers.hpp"
#include "optim/clip.hpp"

namespace {

double root_mean_square(const ag::Array& x) {
  double squares = 0;
  for (const ag::Real each : x) squares += double(each) * double(each);
  return std::sqrt(squares / double(x.size()));
}

// The mean weight of each source; all: (sources, ...).
std::vector<double> source_means(const ag::Array& all) {
  const std::size_t sources = all.shape()[0], tokens = all.size() / sources;
  std::vector<double> means(sources);
  for (std::size_t i = 0; i < all.size(); ++i)
    means[i / tokens] += double(all.data()[i]) / double(tokens);
  return means;
}

// What is captured of one batch.
struct Seen {
  ag::Capture embedding = ag::capture("token_embedding");
  ag::Capture attended = ag::capture("blocks.*.attention");
  ag::Capture fed_forward = ag::capture("blocks.*.feed_forward");
  ag::Capture mixes = ag::capture("residuals.inputs.*");
  ag::Capture output = ag::capture("residuals.output");
  ag::Capture input_weights = ag::capture("residuals.inputs.*.weights");
  ag::Capture output_weights = ag::capture("residuals.output.weights");

  const ag::Array& sublayer(std::size_t i) const {
    return (i % 2 == 0 ? attended : fed_forward).values().at(i / 2).value.value();
  }
};

// The states behind the sublayers, and of a residual sum what they read.
void add_up(const Seen& seen, std::size_t sublayers, std::size_t block_size,
            DepthProfile& profile) {
  const ag::Array& embedding = seen.embedding.values().at(0).value.value();
  const bool sums = block_size == 0;
  ag::Array state = embedding;
  for (std::size_t i = 0; i < sublayers; ++i) {
    if (sums) profile.reads.push_back(root_mean_square(state));
    if (!sums && i % block_size == 0)
      state = seen.sublayer(i);
    else
      state += seen.sublayer(i);
    profile.states.push_back(root_mean_square(state));
  }
  if (sums)
    profile.reads.push_back(profile.states.empty() ? root_mean_square(embedding)
                                                   : profile.states.back());
}

void add_mixes(const Seen& seen, DepthProfile& profile) {
  for (const ag::Capture* mixes : {&seen.mixes, &seen.output})
    for (const auto& [name, mix] : mixes->values())
      profile.reads.push_back(root_mean_square(mix.value()));
  for (const ag::Capture* weights : {&seen.input_weights, &seen.output_weights})
    for (const auto& [name, of_mix] : weights->values())
      profile.weights.push_back(source_means(of_mix.value()));
}

DepthProfile profile_of(const ag::Transformer& model, const Windows& batch) {
  DepthProfile profile;
  const Seen seen;
  ag::Tape tape;
  const ag::Variable loss = ag::cross_entropy(model(batch.inputs), batch.targets);
  add_up(seen, 2 * model.blocks.size(), model.residuals ? model.residuals->block_size() : 0,
         profile);
  if (model.residuals) add_mixes(seen, profile);
  const ag::Gradients gradients = tape.gradients(loss);
  for (const ag::TransformerBlock& block : model.blocks)
    profile.gradients.push_back(ag::clip_norm(ag::parameters(block), gradients, 1).norm);
  return profile;
}

void add_share(std::vector<double>& sum, const std::vector<double>& part, double share) {
  sum.resize(part.size());
  for (std::size_t i = 0; i < part.size(); ++i) sum[i] += share * part[i];
}

}  // namespace

void to_json(nlohmann::json& json, const DepthProfile& profile) {
  json = {{"states", profile.states},
          {"reads", profile.reads},
          {"gradients", profile.gradients},
          {"weights", profile.weights}};
}

DepthProfile profile_in(const CheckedJson& json, std::size_t layers) {
  const std::size_t sublayers = 2 * layers;
  DepthProfile profile{.states = json.at("states").all_measured(sublayers),
                       .reads = json.at("reads").all_measured(sublayers + 1),
                       .gradients = json.at("gradients").all_measured(layers),
                       .weights = {}};
  for (const CheckedJson& mix : json.at("weights").list(0, sublayers + 1))
    profile.weights.push_back(mix.all_measured(mix.list(1, sublayers + 1).size()));
  return profile;
}

DepthProfile profile_by_depth(const ag::Transformer& model, const std::vector<Windows>& batches) {
  DepthProfile mean;
  const double share = 1 / double(batches.size());
  for (const Windows& batch : batches) {
    const DepthProfile part = profile_of(model, batch);
    add_share(mean.states, part.states, share);
    add_share(mean.reads, part.reads, share);
    add_share(mean.gradients, part.gradients, share);
    mean.weights.resize(part.weights.size());
    for (std::size_t i = 0; i < part.weights.size(); ++i)
      add_share(mean.weights[i], part.weights[i], share);
  }
  return mean;
}
