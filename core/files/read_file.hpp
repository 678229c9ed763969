// Opening a file to read it with suspicion.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "core/errors.hpp"

namespace attngrad {

// What read(in, size) makes of the file at `path`, whose size is known before anything is read.
// Throws FileError where it cannot be opened; every FileError says the format and the path first.
template <class Read>
auto read_file(const char* format, const std::filesystem::path& path, const Read& read) {
  try {
    std::error_code error;
    const std::uint64_t size = std::filesystem::file_size(path, error);
    if (error) throw FileError(error.message());
    std::ifstream in(path, std::ios::binary);
    if (!in) throw FileError("cannot be opened");
    return read(in, size);
  } catch (const FileError& error) {
    throw FileError(text(format, ": ", path.string(), ": ", error.what()));
  }
}

}  // namespace attngrad
