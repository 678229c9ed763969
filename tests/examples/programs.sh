#!/usr/bin/env bash
# Runs the example programs as a user would, on good and on bad input: programs.sh BUILD/examples
set -euo pipefail
programs=$1
there=$(mktemp -d)
trap 'rm -rf "$there"' EXIT
cd "$there"

fail() { echo "FAILED: $*" >&2; exit 1; }

# refuses CODE WORDS COMMAND...: the command must exit with CODE (or, for "any", not 0) and say WORDS
refuses() {
  local code=$1 words=$2 status=0
  shift 2
  "$@" >out 2>&1 || status=$?
  if [ "$code" = any ]; then [ "$status" != 0 ]; else [ "$status" = "$code" ]; fi ||
    fail "$* exited with $status: $(cat out)"
  grep -q -- "$words" out || fail "$* does not say '$words': $(cat out)"
}

# damaged FILE FROM TO: writes the file to `damaged` with something else in its header, whose quotes
# within metadata are written as \"; without FROM there the test is wrong
damaged() {
  FROM=$2 TO=$3 perl -0777 -ne 'my ($size, $rest) = unpack("Q< a*", $_);
    my $header = substr($rest, 0, $size);
    my ($from, $to) = map { s/"/\\"/gr } @ENV{"FROM", "TO"};
    $header =~ s/\Q$from\E/$to/ or die "no $from in $header";
    $header .= " " x (-length($header) % 8);
    print pack("Q<", length $header), $header, substr($rest, $size)' "$1" >damaged ||
    fail "cannot damage $1"
}

for name in first_gradient new_layer compare_gradients toy_sequence complexity score_function \
  translate_dates multi_token_attention attention_residuals less_is_more \
  ghost_attention train_transformer; do
  "$programs/$name" --help | grep -q -- --seed || fail "$name --help"
  refuses any nonsense "$programs/$name" --nonsense
done

# must_be RULE PROGRAM OPTIONS NUMBERS: each option refuses each number, NaN and infinity
must_be() {
  local rule=$1 program=$programs/$2 options=$3 option number
  shift 3
  for option in $options; do
    for number in nan inf "$@"; do
      refuses 2 "$option: must be $rule, got $number" "$program" "$option" "$number"
    done
  done
}
must_be "a finite number above 0" toy_sequence "--rate --deviation" 0 -1
must_be "a finite number, 0 or more" toy_sequence --clip -1
must_be "a finite number above 0" train_transformer --rate 0 1e999 fast
must_be "a finite number, 0 or more" train_transformer "--final-rate --decay --clip --temperature" -1e-9
must_be "a number from 0 up to but not 1" train_transformer "--dropout --beta1 --beta2" 1 -0.1
must_be "a number above 0 and up to 1" train_transformer --top-p 0 1.1
must_be "a number from 0 to 1" less_is_more --recent -0.1 1.1
must_be "a finite number above 0" multi_token_attention "--rate --final-rate" 0
must_be "a number from 0 up to but not 1" multi_token_attention --dropout 1
must_be "a finite number above 0" attention_residuals --rates 0
must_be "a finite number above 0" fine_tune --rate 0
must_be "a finite number, 0 or more" generate --temperature -1
must_be "a number from 0 to 1" generate --recent 2
must_be "a number above 0 and up to 1" generate --top-p 0

for precision in f64 f32; do
  for mask in none causal random both; do
    "$programs/compare_gradients" --precision $precision --mask $mask >out || fail "$(cat out)"
  done
done
"$programs/compare_gradients" --json | grep -q '"passed":true' || fail "compare_gradients --json"

"$programs/toy_sequence" --kernel both --steps 3 --batch 4 --held-out 5 --report-every 3 >out
grep -q "largest difference" out || fail "toy_sequence with both kernels: $(cat out)"

# a plot of attention holds a square for the whole weight that the first token gives itself
is_attention_plot() {
  grep -q '</svg>' "$1" && grep -q 'fill-opacity="1"' "$1" && grep -q 'head 1' "$1" ||
    fail "$1 is not a plot of attention"
}
"$programs/toy_sequence" --kernel flash --steps 1 --batch 4 --held-out 5 --attention-plot toy.svg >out ||
  fail "$(cat out)"
is_attention_plot toy.svg
"$programs/translate_dates" --steps 2 --batch 4 --width 8 --heads 2 --held-out 5 --attention-plot dates.svg \
  >out || fail "$(cat out)"
grep -q '</svg>' dates.svg && grep -q 'decoder.1.cross.weights, head 1' dates.svg ||
  fail "the plot of translate_dates: $(head -c 300 dates.svg)"
grep -q "of 5 held-out dates are exact" out || fail "translate_dates: $(cat out)"
"$programs/score_function" --length 150 --heads 2 --width 8 --json >out || fail "$(cat out)"
[ "$(grep -c '"difference":' out)" = 3 ] || fail "score_function --json: $(cat out)"

few=(--blocks 3 --letters 3 --width 8 --hidden 8 --batch 4 --held-out 6 --eval-every 2 --warmup 2 --final-rate 0.003)
letters() { "$programs/multi_token_attention" "${few[@]}" "$@"; }
letters --arms transformer,mta,frozen --seeds 42,7 --steps 4 --folder whole --plot errors.svg >out || fail "$(cat out)"
[ "$(grep -c 'the same in every bit: 4 losses' out)" = 2 ] || fail "frozen kernels are not plain attention: $(cat out)"
grep -q 'seed 7, step 4: MTA .*, to be at most 1 %' out || fail "multi_token_attention: $(cat out)"
[ "$(grep -c polyline errors.svg)" = 6 ] && grep -q 'error, %' errors.svg || fail "the plot of multi_token_attention"
for steps in 2 4; do letters --arms mta --seed 7 --seeds 1 --steps $steps --folder parts --json >out; done
[ "$(grep -c '"loss"' out)" = 2 ] || fail "multi_token_attention --json: $(cat out)"
cmp whole/mta-7.safetensors parts/mta-7.safetensors || fail "a resumed training of multi_token_attention ends elsewhere"
# keeps FROM TO WORDS FILE COMMAND...: a kept training in which TO stands for FROM is refused with these words
keeps() {
  local from=$1 to=$2 words=$3 file=$4
  shift 4
  damaged "$file" "$from" "$to"
  cp "$file" kept_safe
  mv damaged "$file"
  refuses 1 "training: $file: $words" "$@"
  mv kept_safe "$file"
}
mta=(parts/mta-7.safetensors letters --arms mta --seed 7 --seeds 1 --steps 4 --folder parts)
keeps '"step":4' '"step":"x"' 'step must be a whole number from 0 to' "${mta[@]}"
keeps '"step":4' '"step":3' 'measured.losses must be a list of 3, is an array of 4' "${mta[@]}"
keeps '"measured":' '"old":' 'has no measured' "${mta[@]}"
keeps '"errors":[[' '"errors":[[5,0],[' 'measured.errors\[0\]\[0\] must be a whole number from 1 to 4, is 5' "${mta[@]}"
keeps '"losses":[' '"losses":["x"],"old":[' 'measured.losses must be a list of 4, is an array of 1' "${mta[@]}"
keeps '"generators":[[' '"generators":[[1],[' 'generators must be a list of 2, is an array of 3' "${mta[@]}"
keeps '"settings":{' '"settings":' 'must hold a JSON object, holds no JSON' "${mta[@]}"
refuses 1 "saved with other settings: dropout must be 0.1, is 0" letters --arms mta --seeds 7,8 --steps 4 --dropout 0.1 --folder parts
refuses 1 "stands twice" letters --seeds 7,7
refuses 2 "--answer" letters --answer middle
refuses 1 "2 to 25 letters" "$programs/multi_token_attention" --letters 26

few=(--lengths 16,32,64 --longest 32 --heads 1 --width 8)
"$programs/complexity" "${few[@]}" --plot complexity.svg >out
grep -q "growth" out || fail "complexity: $(cat out)"
grep -q '</svg>' complexity.svg || fail "the plot of complexity is not an SVG"
"$programs/complexity" "${few[@]}" --full --json >out
[ "$(grep -c '"memory_mib":' out)" = 7 ] || fail "complexity --json: $(cat out)"
refuses 2 "--lengths" "$programs/complexity" --lengths 0
refuses 2 "--lengths" "$programs/complexity" --lengths 64,many
refuses 1 "cannot write" "$programs/complexity" "${few[@]}" --plot no_such_folder/x.svg

steady=(--batch 2 --sample 20 --rate 0.001 --final-rate 0.001 --warmup 0)
small=("${steady[@]}" --layers 1 --heads 2 --width 16 --context 8)
train() { "$programs/train_transformer" "${small[@]}" "$@"; }
resume() { "$programs/train_transformer" "${steady[@]}" "$@"; }

train --steps 4 --dropout 0.1 --save whole.safetensors --plot losses.svg --attention-plot map.svg >out
is_attention_plot map.svg
grep -q '</svg>' losses.svg || fail "the plot is not an SVG"
train --steps 2 --dropout 0.1 --save half.safetensors >out
resume --load half.safetensors --steps 4 --dropout 0.1 --save both.safetensors >out
cmp whole.safetensors both.safetensors || fail "training that was resumed ends elsewhere"

"$programs/train_transformer" "${small[@]}" --steps 100000000 --save stopped.safetensors >out 2>&1 &
for _ in $(seq 600); do
  if grep -q '^step 1/' out; then break; fi
  sleep 0.1
done
kill -INT $!
wait $! || fail "Ctrl-C is not a clean stop: $(cat out)"
[ -s stopped.safetensors ] || fail "Ctrl-C did not save"

printf 'abcabc' >short
: >empty
refuses 1 "missing, unreadable or empty" train --text no_such_file
refuses 1 "missing, unreadable or empty" train --text empty
refuses 1 "a context of 8 needs more symbols" train --text short
refuses 1 "does not occur" train --prompt "$(printf '\001')"
refuses 1 "cannot write" train --save no_such_folder/x.safetensors
refuses 1 "cannot write" train --plot no_such_folder/x.svg
refuses 1 "cannot write" train --attention-plot no_such_folder/x.svg
refuses 1 "short" resume --load short

# loads FROM TO WORDS: a checkpoint in which TO stands for FROM is refused with these words
loads() {
  damaged half.safetensors "$1" "$2"
  refuses 1 "load: damaged: $3" resume --load damaged --steps 2
  [ "$(wc -l <out)" = 1 ] || fail "more than a line: $(cat out)"
}
loads '"shape":{' '"shape":' "must hold a JSON object, holds no JSON"
loads '"shape":' '"form":' "has no shape"
loads '"shape":{' '"shape":3,"form":{' "shape must be an object, is 3"
loads '"layers":1' '"layers":10000000' "the arrays must hold"
loads '"layers":1' '"layers":0' "shape.layers must be a whole number from 1 to 2147483648, is 0"
loads '"heads":2' '"heads":"x"' 'shape.heads must be a whole number from 1 to 2147483648, is "x"'
loads '"heads":2' '"heads":2.7' "shape.heads must be a whole number from 1 to 2147483648, is 2.7"
loads '"heads":2' '"heads":3' "shape.heads must be a divisor of the width 16, is 3"
loads '"bias":true' '"bias":1' "shape.bias must be true or false, is 1"
loads '"activation":"gelu"' '"activation":"zz"' 'shape.activation must be one of gelu, gelu_tanh, is "zz"'
loads '"optimizer":"adamw"' '"optimizer":"zz"' 'shape.optimizer must be one of sgd, momentum, adam, adamw, is "zz"'
loads '"unit":"character"' '"unit":"zz"' 'shape.unit must be one of character, byte, is "zz"'
loads '"alphabet":[[' '"alphabet":[[300],[' "alphabet\[0\]\[0\] must be a whole number from 0 to 255, is 300"
loads '"alphabet":[[10],' '"alphabet":[[10],[10],' "alphabet\[1\] must be a symbol that did not come before"
loads '"alphabet":[[10],' '"alphabet":[[],' "alphabet\[0\] must be a list of 1 to 4, is an array of 0"
loads '"step":2' '"step":-1' "step must be a whole number from 0 to 1099511627776, is -1"
loads '"step":2' '"step":1e30' "step must be a whole number from 0 to 1099511627776, is 1e+30"
loads '"batches":[' '"batches":[1],"old":[' "batches must be a list of 2, is an array of 1"
loads '"dropouts":[' '"dropouts":[-1,' "dropouts must be a list of 2, is an array of 3"
damaged half.safetensors '"layers":1' '"layers":2'
refuses 1 "load: damaged does not fit" resume --load damaged --steps 2
refuses any "--load" train --load half.safetensors
refuses any "--steps" train --steps -3

# attention residuals: every arm, plots, and a training that was stopped and gone on with
deep=(--layers 2 --width 16 --heads 2 --hidden 16 --context 8 --batch 2 --warmup 1)
short=(--steps 4 --evaluate-every 2)
residuals() { "$programs/attention_residuals" "${deep[@]}" "$@"; }
residuals "${short[@]}" --seeds 2 --arms residual,full,block2 --plot depth --folder kept >out || fail "$(cat out)"
grep -q '+-' out || fail "attention_residuals shows no standard error: $(cat out)"
for plot in loss state read gradient weights-full weights-block2; do
  grep -q '</svg>' depth-$plot.svg || fail "depth-$plot.svg is not a plot"
done
residuals "${short[@]}" --seeds 2 --arms residual,full,block2 --folder kept --json >again || fail "$(cat again)"
[ "$(grep -c '"gap":' again)" = 6 ] || fail "attention_residuals --json: $(cat again)"
long=(--seeds 1 --arms full --steps 4000 --evaluate-every 250)
"$programs/attention_residuals" "${deep[@]}" "${long[@]}" --folder cut >out 2>&1 &
for _ in $(seq 600); do
  if grep -q 'step 250,' out; then break; fi
  sleep 0.1
done
kill $! && ! wait $! || fail "attention_residuals was too fast to be stopped: $(cat out)"
residuals "${long[@]}" --folder cut >out || fail "$(cat out)"
grep -q ' [1-9][0-9]* steps done before' out || fail "attention_residuals began anew: $(cat out)"
residuals "${long[@]}" --folder whole >out || fail "$(cat out)"
cmp {cut,whole}/full-seed1-rate0.004.safetensors || fail "a training that was cut off ends elsewhere"
cp whole/full-seed1-rate0.004.safetensors whole/full-seed2-rate0.004.safetensors
refuses 1 "other settings" residuals "${long[@]}" --seed 2 --folder whole
whole=(whole/full-seed1-rate0.004.safetensors residuals "${long[@]}" --folder whole)
keeps '"width":16},"step":4000' '"width":16},"step":4001' 'step must be a whole number from 0 to 4000, is 4001' "${whole[@]}"
keeps '"step":250' '"step":251' 'measured\[1\].step must be 250, is 251' "${whole[@]}"
keeps '"profile":' '"old":' 'has no measured\[16\].profile' "${whole[@]}"
keeps '"measured":[' '"measured":[{},' 'measured must be a list of 17, is an array of 18' "${whole[@]}"
keeps '"states":[' '"states":[1,' 'measured\[16\].profile.states must be a list of 4, is an array of 5' "${whole[@]}"
residuals --cost --arms residual,full --json >out || fail "$(cat out)"
[ "$(grep -c '"peak_mebibytes":' out)" = 2 ] || fail "attention_residuals --cost: $(cat out)"
refuses 2 "an arm is residual, full" residuals --arms residual,block
refuses 1 "stands twice" residuals --arms full,full
refuses 2 "--rates" residuals --rates 0
refuses 1 "cannot write" residuals --plot no_such_folder/x
refuses 1 "missing, unreadable or empty" residuals --text no_such_file

"$programs/generate" --help | grep -q -- --seed || fail "generate --help"
refuses 2 "--model is required" "$programs/generate" --tokenizer none
refuses 2 nonsense "$programs/generate" --model none --tokenizer none --nonsense
refuses 1 "missing, unreadable or empty" "$programs/generate" --model none --tokenizer none
echo broken >broken
refuses 1 "broken ends at byte" "$programs/generate" --model none --tokenizer broken
refuses 2 "--select requires --budget" "$programs/generate" --model none --tokenizer none --select 1
refuses 1 "--sinks is for --window and --budget" "$programs/generate" --model none --tokenizer none --sinks 2
refuses 2 "--selector" "$programs/generate" --model none --tokenizer none --budget 8 --selector best

"$programs/fine_tune" --help | grep -q -- --seed || fail "fine_tune --help"
refuses 2 "--save is required" "$programs/fine_tune" --model none --tokenizer none
refuses 1 "broken ends at byte" "$programs/fine_tune" --model none --tokenizer broken --save tuned
refuses 1 "cannot write" "$programs/fine_tune" --model none --tokenizer broken --save no_such_folder/x

few=(--seeds 1 --cases 4 --records 8 --budgets 4,16 --contexts 40 --time-budgets 16)
for steps in 2 3; do
  "$programs/less_is_more" "${few[@]}" --most-steps $steps --folder recall$steps --plot hits.svg --json >out ||
    fail "$(cat out)"
done
[ "$(grep -c '"hit_by_layer":' out)" = 21 ] || fail "less_is_more --json: $(cat out)"
[ "$(grep -c '"speed_up":' out)" = 4 ] || fail "less_is_more --json: $(cat out)"
grep -q 'hit rate' hits.svg || fail "the plot of less_is_more"
"$programs/less_is_more" "${few[@]}" --most-steps 3 --folder recall3 --no-time >out || fail "$(cat out)"
grep -q 'seed 1: 209600 parameters, 3 steps' out || fail "less_is_more began anew: $(cat out)"
refuses 1 "saved with other settings" "$programs/less_is_more" "${few[@]}" --most-steps 4 --folder recall3
recall=(recall3/recall-1.safetensors "$programs/less_is_more" "${few[@]}" --most-steps 3 --folder recall3 --no-time)
keeps '"step":3' '"step":4' 'step must be a whole number from 0 to 3, is 4' "${recall[@]}"
keeps '"records":4' '"records":0' 'measured.records must be a whole number from 1 to 128, is 0' "${recall[@]}"
keeps '"accuracy":' '"old":' 'has no measured.accuracy' "${recall[@]}"
refuses 1 "at most 128" "$programs/less_is_more" --records 129
refuses 1 "of a chain even" "$programs/less_is_more" --chain --records 7
refuses 2 "--budgets" "$programs/less_is_more" --budgets 0
refuses 2 "excludes" "$programs/less_is_more" --only-time --no-time

few=(--seeds 1 --base-steps 3 --student-steps 3 --batch 4 --dialogues 3)
refuses 1 "more --base-steps" "$programs/ghost_attention" "${few[@]}"
keep=("$programs/ghost_attention" "${few[@]}" --width 8 --folder ghost)
"${keep[@]}" >out 2>&1 || grep -q "more --base-steps" out || fail "$(cat out)"
keeps '"step":3' '"step":4' 'step must be a whole number from 0 to 3, is 4' ghost/base-1.safetensors "${keep[@]}"
prepare() { "$programs/ghost_attention" prepare "$@"; }
said='{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}'
echo "{\"messages\": [$said, $said]}" >talk
prepare talk samples --synthesise --terse 0 >out || fail "$(cat out)"
grep -q '"content":"From now on, always .* hi"' samples || fail "prepare adds no instruction: $(cat samples)"
[ "$(grep -o '"weight":0.0' samples | wc -l)" = 1 ] || fail "prepare asks for earlier answers: $(cat samples)"
echo '{"parts": [{"sentence": "rhyme on {}", "terse": "Rhyme: {}", "values": ["sun"]}]}' >parts.json
prepare talk samples --synthesise --instructions parts.json --terse 1 --attach everywhere --all-answers >out
[ "$(grep -o '"Rhyme: sun hi"' samples | wc -l)" = 2 ] || fail "prepare --attach everywhere: $(cat samples)"
echo '{"messages": [{"role": "system", "content": "rhyme on sun"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "fun"}]}' >talk
prepare talk samples --rewrite --instructions parts.json --terse 1 >out
grep -q '"content":"Rhyme: sun hi"' samples || fail "prepare --rewrite: $(cat samples)"
echo nonsense >>talk
refuses 1 "talk line 2: is not a JSON object" prepare talk samples
refuses 1 "missing or unreadable" prepare no_such_file samples
echo "{}" >no_parts.json
refuses 1 "instructions: no_parts.json: has no parts" prepare samples other --instructions no_parts.json
echo '{"parts": [{"sentence": "rhyme on {}", "terse": 3, "values": ["sun"]}]}' >no_parts.json
refuses 1 "no_parts.json: parts\[0\].terse must be a text, is 3" prepare samples other --instructions no_parts.json
refuses 2 "requires --model" prepare samples other --candidates 3
refuses 2 "--model requires --tokenizer" prepare samples other --model none
refuses 1 "--terse is for --synthesise and --rewrite" prepare samples other --terse 0.3
refuses 2 "output is required" prepare samples
refuses 2 "--terse: must be a number from 0 to 1, got nan" prepare samples other --terse nan
refuses 2 "--temperature: must be a finite number, 0 or more, got nan" prepare samples other --temperature nan
refuses 2 "--candidates: Value 0 not in range" prepare samples other --candidates 0

echo "all programs behave"
