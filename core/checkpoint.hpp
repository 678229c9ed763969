// Saving named variables to a safetensors file and loading them back, all or nothing.
//
// What must come back together is saved together: join the parameters of the model with the state
// of the optimiser, and put what is not an array (the step, the offset of an Rng) in the metadata:
//   Parameters all;
//   all.join(parameters(model), "model").join(optimizer.state(), "optimizer");
//   save(all, "run.safetensors", {{"step", std::to_string(step)}});
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/files/safetensors.hpp"
#include "core/parameters.hpp"

namespace attngrad {

// How a file and a list of variables must fit.
enum class Fit {
  exact,  // the file holds every variable and nothing else
  file_may_hold_more,
  partial,  // what fits is loaded; all else is reported
};

// A tensor of a file that goes by another name here, or that is some rows of a variable: as many as
// it has, from first_row on.
struct Placement {
  std::string tensor, variable;
  std::size_t first_row = 0;
};

struct LoadOptions {
  Fit fit = Fit::exact;
  std::vector<Placement> names = {};  // of tensors that are not called as the variables are
};

struct LoadReport {
  safetensors::Metadata metadata;
  std::vector<std::string> narrowed;    // variables whose F64 numbers were rounded to float
  std::vector<std::string> unexpected;  // tensors of the file that were ignored
  // of Fit::partial: variables that kept their values, and what was wrong with tensors for them
  std::vector<std::string> missing, misfits;
};

inline namespace ATTNGRAD_PRECISION {

// Writes every variable under its (first) name, as F32 or F64 like Real. The file at `path` is
// replaced as a whole. Throws FileError if it cannot be written; the old file is then as it was.
void save(const Parameters& parameters, const std::filesystem::path& path,
          const safetensors::Metadata& metadata = {});
// The same with variables under other names, or cut by rows into tensors of their own: each from
// its first row to that of the next. Of two tensors of the same rows the first is written. Throws
// ArgumentError for a placement of a variable that is not in the list, and where no tensor begins
// at row 0 or one begins behind the last.
void save(const Parameters& parameters, const std::filesystem::path& path,
          const safetensors::Metadata& metadata, const std::vector<Placement>& names);

// Replaces the values of all variables with those of the file. F64, F32, F16 and BF16 convert to
// Real; from F64 to float is reported. A tied variable may be in the file under any of its names,
// or under several with the same bytes. Throws FileError before any variable is changed: for a
// damaged file, and, but for Fit::partial, with one message that lists all that is missing,
// unexpected, of another shape, not floating-point, or given differently under two names.
// ArgumentError for a placement of a variable that is not in the list.
LoadReport load(const Parameters& parameters, const std::filesystem::path& path,
                const LoadOptions& options = {});

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
