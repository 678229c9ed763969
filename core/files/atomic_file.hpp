// Writing a file so that its name never shows half of it.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace attngrad {

// Makes the file at `path` hold the parts one after the other. They are written to a temporary file
// in the same folder, which is flushed to the disk and then renamed, so a reader or a crash sees
// the old file or the whole new one. Throws FileError, leaving no temporary file and the old file
// as it was.
void write_atomically(const std::filesystem::path& path,
                      const std::vector<std::string_view>& parts);

}  // namespace attngrad
