// Ghost Attention as a recipe for data: how dialogues become samples that teach a model to keep an
// instruction in mind. Each step can be used alone.
//
// Source: Touvron et al., "Llama 2", arXiv:2307.09288, section 3.3.
#pragma once

#include <functional>

#include "core/random.hpp"
#include "examples/ghost_attention/dialogue.hpp"

// The instruction in front of every user's message, in place of a system message: what a model that
// forgets is asked with. Without an instruction nothing changes.
Dialogue attach_everywhere(const Dialogue& dialogue);
// The same in front of the first user's message only: what the trained model will be asked with.
Dialogue attach_first(const Dialogue& dialogue);
// The loss counts in the last answer alone: earlier ones were given in a context that the model no
// longer sees. Throws attngrad::ArgumentError for a dialogue without an answer.
Dialogue only_last_answer(const Dialogue& dialogue);

// An answer to the last message, which is a user's.
using Answerer = std::function<std::string(const Dialogue&)>;
// How good an answer to the last message is: the more the better.
using Scorer = std::function<double(const Dialogue&, const std::string& answer)>;
// The best of `count` answers, the first of equals. Throws attngrad::ArgumentError for none.
Answerer best_of(std::size_t count, Answerer answer, Scorer score);
// Every answer of the dialogue given anew, in order, each beside the new ones before it, while the
// instruction stands in every user's message. The result has the instruction where it was.
Dialogue answer_again(const Dialogue& dialogue, const Answerer& answer);

// Lists of which instructions are made: "hobby" of {"chess", ...} with the sentences that use them.
struct InstructionPart {
  std::string sentence;  // {} stands for one of the values: "enjoy {}"
  std::string terse;     // the same in few words: "Hobby: {}"
  std::vector<std::string> values;
};
struct InstructionOptions {
  std::string opening = "", joint = " and ", ending = "";                 // of full sentences
  std::string terse_opening = "", terse_joint = ", ", terse_ending = "";  // of few words
  double terse_share = 0.5;  // of instructions in few words
};
// A random combination of one part or more, each subset as likely, with a value drawn for each.
// Throws attngrad::ArgumentError for no parts and a part without values.
std::string random_instruction(const std::vector<InstructionPart>& parts,
                               const InstructionOptions& options, ag::Rng& rng);
// One combination: of part i the value values[i], or not in it where that is none. `terse`: in few
// words.
std::string instruction_of(const std::vector<InstructionPart>& parts,
                           const std::vector<std::string>& values, bool terse,
                           const InstructionOptions& options);
// The terse form of an instruction that instruction_of() makes in full; any other as it is, for
// nothing that it asks may be lost. "Always act as Napoleon." becomes "Figure: Napoleon".
std::string in_few_words(const std::string& instruction, const std::vector<InstructionPart>& parts,
                         const InstructionOptions& options);
Dialogue with_instruction(const Dialogue& dialogue, const std::string& instruction);
