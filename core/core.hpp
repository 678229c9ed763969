// All of core: arrays, variables, the tape, ops and checks.
#pragma once

#include "core/checkpoint.hpp"
#include "core/gradcheck.hpp"
#include "core/ops/dropout.hpp"
#include "core/ops/elementwise.hpp"
#include "core/ops/index.hpp"
#include "core/ops/linalg.hpp"
#include "core/ops/loss.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/normalize.hpp"
#include "core/ops/reduce.hpp"
#include "core/ops/shape.hpp"
#include "core/ops/softmax.hpp"
#include "core/parallel.hpp"
#include "core/parameters.hpp"
#include "core/random.hpp"
#include "core/tape.hpp"
