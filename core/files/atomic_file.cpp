#include "core/files/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/errors.hpp"

namespace attngrad {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int error) {
  throw FileError(text("write: cannot ", what, " ", path.string(), ": ", std::strerror(error)));
}

// A file that is removed again unless it is renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path path)
      : path_(std::move(path)),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (file_ < 0) fail("create", path_, errno);
  }
  ~TemporaryFile() {
    if (file_ >= 0) ::close(file_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", path_, errno);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  void rename_to(const std::filesystem::path& target) {
    if (::fsync(file_) != 0) fail("flush", path_, errno);
    if (::close(std::exchange(file_, -1)) != 0) fail("close", path_, errno);
    if (::rename(path_.c_str(), target.c_str()) != 0) fail("rename to", target, errno);
    renamed_ = true;
  }

 private:
  std::filesystem::path path_;
  int file_;
  bool renamed_ = false;
};

// Makes a rename last through a power cut. Some file systems cannot do it for folders; the file
// itself is safe then too.
void flush_folder(const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::close(file);
}

}  // namespace

void write_atomically(const std::filesystem::path& path,
                      const std::vector<std::string_view>& parts) {
  static std::atomic<unsigned> count{0};
  TemporaryFile file(text(path.string(), ".", ::getpid(), "-", count++, ".tmp"));
  for (const std::string_view part : parts) file.write(part);
  file.rename_to(path);
  flush_folder(path.has_parent_path() ? path.parent_path() : ".");
}

}  // namespace attngrad
