#include "core/errors.hpp"

namespace attngrad {
namespace {

thread_local PathScope* innermost = nullptr;

std::string with_path(const std::string& message) {
  const std::string path = layer_path();
  return path.empty() ? message : path + ": " + message;
}

}  // namespace

ArgumentError::ArgumentError(const std::string& message)
    : std::invalid_argument(with_path(message)) {}

TapeError::TapeError(const std::string& message) : std::logic_error(with_path(message)) {}

PathScope::PathScope(const void* parent, const void* child, NameOf name_of)
    : parent_(parent), child_(child), name_of_(name_of), outer_(innermost) {
  innermost = this;
}

PathScope::~PathScope() { innermost = outer_; }

std::string layer_path() {
  std::string path;
  for (const PathScope* scope = innermost; scope != nullptr; scope = scope->outer_) {
    if (!path.empty()) path.insert(0, 1, '.');
    path.insert(0, scope->name_of_(scope->parent_, scope->child_));
  }
  return path;
}

}  // namespace attngrad
