#!/usr/bin/env bash
# Shows that the program tells right from wrong: check.sh PROGRAM
set -euo pipefail
program=$(realpath "$1")
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
cd "$there"

fail() { echo "FAILED: $*" >&2; cat out >&2; exit 1; }

# npy FILE BYTES: a float32 array of shape (2)
npy() {
  local header="{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
  printf '\x93NUMPY\x01\x00\x76\x00%-117s\n%b' "$header" "$2" >"$1"
}

# exits CODE WORDS ARGUMENTS...: the program must exit with CODE and say WORDS
exits() {
  local code=$1 words=$2 status=0
  shift 2
  "$program" "$@" >out 2>&1 || status=$?
  [ "$status" = "$code" ] || fail "$* exited with $status, expected $code"
  grep -qF -- "$words" out || fail "$* does not say '$words'"
}

# entry NAME OP EXPECTED: a test of one node, with the numbers 1 and 2 as either input
entry() {
  printf '"%s": {"opset": [["", 14]],
    "nodes": [{"op": "%s", "domain": "", "attrs": {}, "inputs": ["a", "a"], "outputs": ["y"]}],
    "inputs": [{"name": "a", "file": "input_0.npy"}],
    "outputs": [{"name": "y", "file": "output_0.npy"}]}' "$1" "$2"
  mkdir "$1"
  npy "$1/input_0.npy" '\x00\x00\x80\x3f\x00\x00\x00\x40' # 1, 2
  npy "$1/output_0.npy" "$3"
}
sum='\x00\x00\x00\x40\x00\x00\x80\x40'   # 2, 4
wrong='\x00\x00\x00\x40\x00\x00\xa0\x40' # 2, 5
nan='\x00\x00\x00\x40\x00\x00\xc0\x7f'   # 2, not a number

{
  echo "{"
  entry right Add "$sum"
  echo ","
  entry wrong Add "$wrong"
  echo ","
  entry nan Add "$nan"
  echo ","
  entry unknown Frobnicate "$sum"
  echo "}"
} >manifest.json

exits 0 "1 passed, 0 failed, 0 skipped" . --only right
exits 1 "FAILED  wrong: y at (1): expected 5, got 4; 1 of 2 differ" . --only wrong
exits 1 "FAILED  nan: y at (1): expected nan, got 4" . --only nan
exits 0 "skipped unknown: no mapping for the op Frobnicate" . --only unknown
exits 1 "1 passed, 2 failed, 1 skipped" .
exits 2 "cannot read" nowhere
exits 2 "--nonsense" . --nonsense
exits 2 "folder is required"
echo "[1]" >manifest.json
exits 2 "not a manifest of tests" .
