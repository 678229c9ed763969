// Dialogues as tokens, and a model that takes part in them.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "examples/common/sampling.hpp"
#include "examples/ghost_attention/dialogue.hpp"
#include "layers/transformer.hpp"

using Tokens = std::vector<std::int64_t>;

// How messages become tokens, on any tokeniser:
//   begin  user-role content assistant-role content turn-end  user-role ...
// A system message stands before the first user's content, in one message with it.
struct ChatTemplate {
  std::function<Tokens(const std::string&)> encode;
  std::function<std::string(const Tokens&)> decode;
  Tokens begin, user, assistant;
  std::int64_t turn_end;   // which no content holds
  Tokens other_ends = {};  // what a model may end an answer with, too

  std::int64_t end_or_itself(std::int64_t token) const {
    const bool ends = std::find(other_ends.begin(), other_ends.end(), token) != other_ends.end();
    return ends ? turn_end : token;
  }
};

// What a model reads and is asked for: tokens, and for each the weight of its loss: the message's
// for the tokens of an answer and its end, 0 for all others.
struct WeightedTokens {
  Tokens tokens;
  std::vector<double> weights;
};
WeightedTokens encode(const Dialogue& dialogue, const ChatTemplate& chat);

// Several sequences side by side in rows, the longest first. A place predicts the next token of
// its own sequence; documents are for the mask, -1 is padding.
struct Packed {
  ag::Indices inputs, targets, documents;  // (rows, time)
  ag::Array weights;                       // (rows, time): of the targets
};
// time: as long as the longest sequence needs, or row_length if that is more. Throws
// attngrad::ArgumentError for no sequences and for one of fewer than two tokens.
Packed pack(const std::vector<WeightedTokens>& sequences, std::size_t row_length = 0);

// The mean loss of the targets, by their weights; no sequence sees another.
ag::Variable loss_of(const ag::Transformer& model, const Packed& packed);

struct ReplyOptions {
  SamplingOptions sampling{.temperature = 0, .top_k = 0, .top_p = 1};
  std::size_t most_tokens = 64;  // of an answer, which is then cut off
};

// Many dialogues with a model at a time, through one cache.
class ChatSession {
 public:
  // rows: dialogues. The model and the template must outlive the session.
  ChatSession(const ag::Transformer& model, const ChatTemplate& chat, std::size_t rows,
              const ReplyOptions& options = {}, std::uint64_t seed = 0);

  // The answers to one message in each dialogue. Throws attngrad::ArgumentError for another number
  // of messages, or where the context is full.
  std::vector<std::string> say(const std::vector<std::string>& messages);

 private:
  friend std::string reply(const ag::Transformer&, const ChatTemplate&, const Dialogue&,
                           const ReplyOptions&, ag::Rng&);
  std::vector<std::string> answer();
  // The last logits of each row, once its waiting tokens are in the cache.
  ag::Array read_waiting();

  const ag::Transformer& model_;
  const ChatTemplate& chat_;
  ReplyOptions options_;
  ag::Rng rng_;
  ag::TransformerCache cache_;
  std::vector<Tokens> waiting_;  // of each row, not read yet
};

// The answer to the last message of a dialogue without a system message.
std::string reply(const ag::Transformer& model, const ChatTemplate& chat, const Dialogue& dialogue,
                  const ReplyOptions& options, ag::Rng& rng);
