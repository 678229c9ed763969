// The weights of mixes over depth as a picture.
#pragma once

#include <string>
#include <vector>

// weights: for each sublayer and then the output, the weights of its sources: the embedding, then
// one more for each sublayer, or block of sublayers, that has begun before. Throws
// attngrad::FileError if the file cannot be written.
void write_depth_weights(const std::string& path, const std::string& title,
                         const std::vector<std::vector<double>>& weights);
