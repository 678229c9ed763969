# Sourced by the run scripts: brings what attngrad needs onto the machine, and builds it.
# It speaks on stderr only, so that what a program prints stays clean.

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)

say() { echo "attngrad: $*" >&2; }

# Runs a command with its output out of the way: on a terminal it is seen as it comes, elsewhere
# only if the command fails. Standard input is left for the program that runs afterwards.
quietly() {
  if [ -t 2 ]; then "$@" >&2 </dev/null; return; fi
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || { status=$?; cat "$log" >&2; }
  rm -f "$log"
  return "$status"
}

cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1; }

# Compiles the program on standard input to nothing. The flags are split on purpose.
compiles() {
  ${CXX:-c++} -std=c++20 ${CPPFLAGS-} ${CXXFLAGS-} -x c++ - ${LDFLAGS-} "$@" -o /dev/null \
    2>/dev/null
}

has_header() {
  printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | compiles -fsyntax-only
}

from_dpkg() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed* ]]; }

cmake_is_new() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')
  [ -n "$version" ] && printf '3.22\n%s\n' "$version" | sort -V -C
}

# Whether there is what Debian's package $1 would bring. A library from elsewhere is as good, if the
# compiler finds it; of a compiler and a CMake only the version counts.
present() {
  case $1 in
    g++) echo 'static_assert(__cplusplus >= 202002L);' | compiles -fsyntax-only ;;
    cmake) cmake_is_new ;;
    make) command -v make || command -v ninja ;;
    libxtensor-dev) # the header moved in xtensor 0.26
      from_dpkg "$1" || has_header xtensor/containers/xarray.hpp || has_header xtensor/xarray.hpp
      ;;
    libxtensor-blas-dev) from_dpkg "$1" || has_header xtensor-blas/xlinalg.hpp ;;
    libxsimd-dev) from_dpkg "$1" || has_header xsimd/xsimd.hpp ;;
    libopenblas-dev) from_dpkg "$1" || echo 'int main() {}' | compiles -lopenblas ;;
    libdnnl-dev) from_dpkg "$1" || has_header oneapi/dnnl/dnnl.h ;;
    libcli11-dev) from_dpkg "$1" || has_header CLI/CLI.hpp ;;
    nlohmann-json3-dev) from_dpkg "$1" || has_header nlohmann/json.hpp ;;
    libbenchmark-dev) from_dpkg "$1" || has_header benchmark/benchmark.h ;;
    python3) command -v python3 ;;
    catch2) from_dpkg "$1" || has_header catch2/catch_all.hpp || has_header catch2/catch.hpp ;;
    *) from_dpkg "$1" ;;
  esac >/dev/null
}

# The packages among "$@" whose contents are not there, on one line.
missing_of() {
  local package found=()
  for package in "$@"; do present "$package" || found+=("$package"); done
  echo "${found[*]-}"
}

# Installs what is missing of attngrad's own packages and of "$@"; touches nothing if all is there.
ensure_packages() {
  local all=(g++ cmake make libxtensor-dev libxtensor-blas-dev libxsimd-dev libopenblas-dev
    libcli11-dev nlohmann-json3-dev "$@")
  [ "$(uname -m)" != x86_64 ] || all+=(libdnnl-dev) # elsewhere its products are slow, and not used
  local missing sudo='' versions="${CXX:-c++} must know C++20, cmake be 3.22 or newer"
  missing=$(missing_of "${all[@]}")
  [ -n "$missing" ] || return 0

  if ! command -v apt-get >/dev/null; then
    say "please install these, here under their Debian names, and run this again: $missing" \
      "($versions)"
    exit 1
  fi
  local by_hand="apt-get update && apt-get install -y --no-install-recommends $missing"
  if [ "$(id -u)" != 0 ]; then
    sudo='sudo -n'
    if [ -t 0 ] && command -v sudo >/dev/null; then
      sudo=sudo
      say "sudo is needed to install: $missing"
    fi
    # `sudo true`, not `sudo -v`, which asks for a password even where NOPASSWD is granted
    if ! $sudo true 2>/dev/null; then
      say "packages are missing that you may not install; have an administrator run: $by_hand"
      exit 1
    fi
  fi

  say "installing $missing"
  local apt="$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120"
  # one unreachable source need not be the one that matters: installing decides
  quietly $apt update || say "apt-get update failed; going on with the package lists at hand"
  quietly $apt install -y --no-install-recommends $missing ||
    { say "apt-get could not install everything; see above, then try: $by_hand"; exit 1; }
  missing=$(missing_of "${all[@]}")
  if [ -n "$missing" ]; then
    say "still missing, or too old, after apt-get: $missing ($versions)"
    exit 1
  fi
}

# Whether folder $1 is configured with these -DNAME=VALUE options. CMake leaves a cache even when it
# fails; it writes the build files last.
is_configured() {
  local folder=$1 option name
  shift
  [ -e "$folder/Makefile" ] || [ -e "$folder/build.ninja" ] || return 1
  for option in "$@"; do
    option=${option#-D}
    name=${option%%[:=]*}
    [ "$(sed -n "s/^$name:[^=]*=//p" "$folder/CMakeCache.txt")" = "${option#*=}" ] || return 1
  done
}

# As many jobs as there are cores and memory: a unit that includes xtensor takes up to 1.5 GB.
build_jobs() {
  local jobs fit
  jobs=$(cores)
  fit=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo 2>/dev/null || true)
  fit=$((${fit:-$((jobs * 1500000))} / 1500000))
  [ "$fit" -ge "$jobs" ] || jobs=$((fit > 0 ? fit : 1))
  echo "$jobs"
}

# configure_and_build FOLDER [-DNAME=VALUE...] [TARGET...]: Release; without targets, everything.
# ATTNGRAD_CMAKE_ARGS adds options for CMake.
configure_and_build() {
  local folder=$1 argument options=(-DCMAKE_BUILD_TYPE=Release) targets=()
  shift
  for argument in "$@" ${ATTNGRAD_CMAKE_ARGS-}; do
    case $argument in
      -*) options+=("$argument") ;;
      *) targets+=("$argument") ;;
    esac
  done
  command -v make >/dev/null || export CMAKE_GENERATOR="${CMAKE_GENERATOR:-Ninja}"
  if ! is_configured "$folder" "${options[@]}"; then
    say "configuring and building in ${folder#"$root"/}/ (minutes, the first time)"
    quietly cmake -S "$root" -B "$folder" "${options[@]}"
  fi
  quietly cmake --build "$folder" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(build_jobs)}" \
    ${targets[@]+--target "${targets[@]}"}
}
