// All optimisers, clipping and schedules.
#pragma once

#include "optim/adagrad.hpp"
#include "optim/adam.hpp"
#include "optim/clip.hpp"
#include "optim/schedules.hpp"
#include "optim/sgd.hpp"
