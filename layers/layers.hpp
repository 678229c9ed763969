// All layers. Not in it: attention/score_function.hpp, which every file would take a second to
// read.
#pragma once

#include "layers/attention/composed.hpp"
#include "layers/attention/decode.hpp"
#include "layers/attention/flash.hpp"
#include "layers/attention/fused.hpp"
#include "layers/dropout.hpp"
#include "layers/embedding.hpp"
#include "layers/encoder_decoder.hpp"
#include "layers/feed_forward.hpp"
#include "layers/linear.hpp"
#include "layers/llama.hpp"
#include "layers/normalization.hpp"
#include "layers/residual/attention_residuals.hpp"
#include "layers/sequential.hpp"
#include "layers/transformer.hpp"
