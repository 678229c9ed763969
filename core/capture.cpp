#include "core/capture.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/errors.hpp"
#include "core/parameters.hpp"
#include "core/tape.hpp"

namespace attngrad {
inline namespace ATTNGRAD_PRECISION {
namespace {

thread_local Capture* innermost = nullptr;

// fnmatch keeps * within the parts of a file's path: dots are its slashes.
std::string as_file_path(std::string dotted) {
  std::replace(dotted.begin(), dotted.end(), '.', '/');
  return dotted;
}

}  // namespace

Capture::Capture(std::string pattern) : pattern_(as_file_path(std::move(pattern))) {
  check_argument(!pattern_.empty(), "capture: needs a pattern such as blocks.*.attention.weights");
  outer_ = std::exchange(innermost, this);
}

Capture::~Capture() { innermost = outer_; }

Capture capture(std::string pattern) { return Capture(std::move(pattern)); }

Capture::Suspended::Suspended() : before(std::exchange(innermost, nullptr)) {}
Capture::Suspended::~Suspended() { innermost = before; }

void offer(const std::string& name, const std::function<Variable()>& value) {
  if (innermost == nullptr) return;
  const std::string path = dotted(layer_path(), name), file_path = as_file_path(path);
  std::optional<Variable> computed;
  for (Capture* capture = innermost; capture != nullptr; capture = capture->outer_) {
    if (fnmatch(capture->pattern_.c_str(), file_path.c_str(), FNM_PATHNAME) != 0) continue;
    if (!computed) {
      const Pause not_recorded;
      computed = value();
    }
    capture->values_.push_back({path, *computed});
  }
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
