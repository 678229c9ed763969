// Data that some tests need and that is not in the tree.
#pragma once

#include <filesystem>
#include <string>

#include "common/test.hpp"

inline std::filesystem::path data_folder(const std::string& name) {
  return std::filesystem::path(ATTNGRAD_DATA) / name;
}

// Whether it is there; says that the test is skipped where it is not.
inline bool have_data(const std::filesystem::path& path) {
  const bool there = std::filesystem::exists(path);
  if (!there) WARN("skipped: no " << path << " (ATTNGRAD_DATA)");
  return there;
}
