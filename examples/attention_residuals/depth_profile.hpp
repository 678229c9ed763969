// What a trained model looks like along its depth.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "examples/common/checked_json.hpp"
#include "examples/common/text.hpp"
#include "layers/transformer.hpp"

struct DepthProfile {
  // The root mean square, behind each sublayer, of the sum that it has added to: the whole residual
  // sum, or what its own block of sublayers has put out so far (Full: its own output).
  std::vector<double> states;
  // That of what each sublayer reads, and last of what the model's last norm reads: the residual
  // sum, or a mix.
  std::vector<double> reads;
  // The norm of the gradient of the parameters of each block of the transformer.
  std::vector<double> gradients;
  // For each sublayer and the output, the weight of each of its sources, a mean over tokens; empty
  // for a residual sum.
  std::vector<std::vector<double>> weights;
};
void to_json(nlohmann::json& json, const DepthProfile& profile);
// Of a model of so many blocks. Throws attngrad::FileError.
DepthProfile profile_in(const CheckedJson& json, std::size_t layers);

// Means over the batches.
DepthProfile profile_by_depth(const ag::Transformer& model, const std::vector<Windows>& batches);
