// What may include what, and how long a file may be: the rules that keep the source tree readable.
// ATTNGRAD_SOURCES is the folder of the sources.
#include <filesystem>
#include <fstream>
#include <regex>

#include "common/test.hpp"
#include "layers/fused_ops.hpp"

namespace {

namespace fs = std::filesystem;

struct Source {
  std::string path;  // from the top, such as core/tape.hpp
  std::vector<std::string> lines;
  bool is_header() const { return path.ends_with(".hpp"); }
};

const std::vector<Source>& sources() {
  static const std::vector<Source> all = [] {
    std::vector<Source> found;
    for (const char* folder : {"core", "layers", "optim", "examples", "tests"})
      for (const auto& entry :
           fs::recursive_directory_iterator(fs::path(ATTNGRAD_SOURCES) / folder)) {
        const std::string extension = entry.path().extension().string();
        if (!entry.is_regular_file() || (extension != ".hpp" && extension != ".cpp")) continue;
        Source source{fs::relative(entry.path(), ATTNGRAD_SOURCES).generic_string(), {}};
        std::ifstream in(entry.path());
        for (std::string line; std::getline(in, line);) source.lines.push_back(line);
        found.push_back(std::move(source));
      }
    return found;
  }();
  return all;
}

// "file: line" for every line of a file under `folder` that matches.
std::vector<std::string> matches(const std::string& folder, const std::string& pattern,
                                 const std::vector<std::string>& except = {}) {
  const std::regex expression(pattern);
  std::vector<std::string> found;
  for (const Source& source : sources()) {
    if (!source.path.starts_with(folder)) continue;
    if (std::find(except.begin(), except.end(), source.path) != except.end()) continue;
    for (const std::string& line : source.lines)
      if (std::regex_search(line, expression)) found.push_back(source.path + ": " + line);
  }
  return found;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("the sources are found", "[architecture]") {
  REQUIRE(sources().size() > 50);
  REQUIRE_FALSE(matches("core/", "#include \"core/").empty());
}

TEST_CASE("arrows point one way: examples, tests -> layers, optim -> core", "[architecture]") {
  CHECK(matches("core/", "#include \"(layers|optim|examples|tests)/") == Lines());
  CHECK(matches("optim/", "#include \"(layers|examples|tests)/") == Lines());
  CHECK(matches("layers/", "#include \"(optim|examples|tests)/") == Lines());
}

TEST_CASE("a kernel knows nothing of variables, tapes or ops", "[architecture]") {
  CHECK(matches("core/kernels/",
                "#include \"core/(?!kernels/|array|errors|parallel|pool|precision)") == Lines());
  CHECK(matches("core/kernels/", "\\b(Variable|Tape|Recorder)\\b.*[;{(]",
                {"core/kernels/formulas.hpp"}) == Lines());
}

TEST_CASE("the engine knows no op beyond the elementwise ones it adds gradients with",
          "[architecture]") {
  CHECK(matches("core/tape", "#include \"core/ops/(?!elementwise)") == Lines());
  CHECK(matches("core/variable", "#include \"core/(ops|kernels)/") == Lines());
  CHECK(matches("core/array", "#include \"core/(tape|variable|ops|kernels)") == Lines());
}

TEST_CASE("headers name xtensor, xsimd and BLAS in one place each", "[architecture]") {
  for (const Source& source : sources()) {
    if (!source.is_header() || source.path.starts_with("tests/")) continue;
    for (const std::string& line : source.lines) {
      INFO(source.path << ": " << line);
      if (source.path != "core/array.hpp")
        CHECK(line.find("#include <xtensor") == std::string::npos);
      if (source.path != "core/kernels/simd.hpp")
        CHECK(line.find("#include <xsimd") == std::string::npos);
      CHECK(line.find("<cblas") == std::string::npos);
    }
  }
  // xt::linalg takes xtensor's own matrices, so its unit names them too
  CHECK(matches("", "xt::x(array|tensor)\\b", {"core/array.hpp", "core/ops/linalg.cpp"}) ==
        Lines());
}

TEST_CASE("xtensor-blas is configured before it is included, or it never calls BLAS",
          "[architecture]") {
  for (const char* file : {"core/kernels/gemm.cpp", "core/ops/linalg.cpp"}) {
    const Lines includes = matches(file, "#include <xtensor-blas/");
    CAPTURE(file);
    REQUIRE(includes.size() == 2);
    CHECK(includes[0].ends_with("<xtensor-blas/xblas_config.hpp>"));
  }
}

TEST_CASE("a file has at most 400 lines", "[architecture]") {
  for (const Source& source : sources()) {
    INFO(source.path << " has " << source.lines.size());
    CHECK(source.lines.size() <= 400);
  }
}

TEST_CASE("an expression is never kept by auto", "[architecture]") {
  // xtensor's expressions refer to their operands, which may be gone by the time they are read
  CHECK(matches("", "auto&* +\\w+ *= *-?xt::(?!eval)") == Lines());
}

TEST_CASE("every fused op, and every file that registers one, is named by a table of fused ops",
          "[architecture]") {
  const std::vector<ag::FusedOp> table = ag::fused_ops();
  const std::regex call("record_joint(_in_place)?\\(\\s*(\"(\\w+)\"|op)");
  for (const Source& source : sources()) {
    const bool of_library =
        source.path.starts_with("core/ops/") || source.path.starts_with("layers/");
    std::string text;
    for (const std::string& line : source.lines) text += line + "\n";
    const std::sregex_iterator first(text.begin(), text.end(), call), last;
    if (!of_library || first == last) continue;
    for (auto found = first; found != last; ++found) {
      const std::string name = (*found)[3];  // empty where a variable holds it
      INFO(source.path << " registers " << name);
      CHECK((name.empty() || std::any_of(table.begin(), table.end(),
                                         [&](const ag::FusedOp& op) { return op.name == name; })));
    }
    const std::string header = source.path.substr(0, source.path.size() - 4) + ".hpp";
    INFO(source.path);
    const std::string include = "#include \"" + header + "\"";
    CHECK(matches("core/fused.cpp", include).size() +
              matches("layers/fused_ops.cpp", include).size() +
              matches("layers/fused_attention_ops.cpp", include).size() >
          0);
  }
}

TEST_CASE("the README's lines of the six steps are where they are", "[architecture]") {
  std::ifstream readme(fs::path(ATTNGRAD_SOURCES) / "README.md");
  const std::regex row("^\\| ([1-6]) \\| .*\\((layers/[a-z_/]+\\.cpp)#L([0-9]+)\\) \\|$");
  int steps = 0;
  for (std::string line; std::getline(readme, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    ++steps;
    CAPTURE(line);
    const std::string path = match[2];
    const auto found = std::find_if(sources().begin(), sources().end(),
                                    [&](const Source& source) { return source.path == path; });
    REQUIRE(found != sources().end());
    REQUIRE(found->lines.at(std::stoul(match[3]) - 1).find("step " + match[1].str()) !=
            std::string::npos);
  }
  REQUIRE(steps == 6);
}
