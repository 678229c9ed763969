#include "examples/ghost_attention/chat.hpp"

#include <algorithm>

#include "core/ops/loss.hpp"

namespace {

void append(Tokens& to, const Tokens& more) { to.insert(to.end(), more.begin(), more.end()); }

Tokens message_tokens(const std::string& content, const ChatTemplate& chat) {
  Tokens tokens = chat.user;
  append(tokens, chat.encode(content));
  append(tokens, chat.assistant);
  return tokens;
}

std::int64_t chosen(const ag::Array& logits, std::size_t row, const SamplingOptions& options,
                    ag::Rng& rng) {
  const std::size_t classes = logits.shape()[1];
  return sample_token(logits.data() + row * classes, classes, options, rng);
}

}  // namespace

WeightedTokens encode(const Dialogue& dialogue, const ChatTemplate& chat) {
  dialogue.check();
  WeightedTokens all{chat.begin, std::vector<double>(chat.begin.size(), 0)};
  const auto add = [&](const Tokens& tokens, double weight) {
    append(all.tokens, tokens);
    all.weights.resize(all.tokens.size(), weight);
  };
  std::string before;  // the system message
  for (const Message& message : dialogue.messages) {
    if (message.role == Role::system) {
      before = message.content + " ";
    } else if (message.role == Role::user) {
      add(message_tokens(before + message.content, chat), 0);
      before.clear();
    } else {
      add(chat.encode(message.content), message.weight);
      add({chat.turn_end}, message.weight);
    }
  }
  return all;
}

namespace {

// Which sequences share a row: each goes to the first that has room.
std::vector<std::vector<std::size_t>> rows_of(const std::vector<WeightedTokens>& sequences,
                                              std::size_t time) {
  std::vector<std::size_t> order(sequences.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sequences[a].tokens.size() > sequences[b].tokens.size();
  });
  std::vector<std::vector<std::size_t>> rows;
  std::vector<std::size_t> used;
  for (const std::size_t i : order) {
    const std::size_t length = sequences[i].tokens.size() - 1;
    std::size_t row = 0;
    while (row < rows.size() && used[row] + length > time) ++row;
    if (row == rows.size()) {
      rows.emplace_back();
      used.push_back(0);
    }
    rows[row].push_back(i);
    used[row] += length;
  }
  return rows;
}

}  // namespace

Packed pack(const std::vector<WeightedTokens>& sequences, std::size_t row_length) {
  ag::check_argument(!sequences.empty(), "pack: needs a sequence, got none");
  std::size_t time = row_length;
  for (const WeightedTokens& s : sequences) {
    ag::check_argument(s.tokens.size() >= 2, "pack: a sequence needs two tokens or more, got ",
                       s.tokens.size());
    time = std::max(time, s.tokens.size() - 1);
  }
  const std::vector<std::vector<std::size_t>> rows = rows_of(sequences, time);
  const ag::Shape shape{rows.size(), time};
  Packed packed{ag::Indices(shape, 0), ag::Indices(shape, 0), ag::Indices(shape, -1),
                ag::Array(shape, ag::Real(0))};
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::size_t at = row * time;
    for (const std::size_t i : rows[row]) {
      const WeightedTokens& s = sequences[i];
      for (std::size_t t = 0; t + 1 < s.tokens.size(); ++t, ++at) {
        packed.inputs.data()[at] = s.tokens[t];
        packed.targets.data()[at] = s.tokens[t + 1];
        packed.weights.data()[at] = ag::Real(s.weights[t + 1]);
        packed.documents.data()[at] = std::int64_t(i);
      }
    }
  }
  return packed;
}

ag::Variable loss_of(const ag::Transformer& model, const Packed& packed) {
  return ag::cross_entropy(model(packed.inputs, ag::documents(packed.documents)), packed.targets,
                           {.weights = packed.weights});
}

ChatSession::ChatSession(const ag::Transformer& model, const ChatTemplate& chat, std::size_t rows,
                         const ReplyOptions& options, std::uint64_t seed)
    : model_(model),
      chat_(chat),
      options_(options),
      rng_(seed),
      cache_(model.make_cache(rows)),
      waiting_(rows, chat.begin) {}

ag::Array ChatSession::read_waiting() {
  std::vector<std::size_t> counts;
  for (const Tokens& tokens : waiting_) counts.push_back(tokens.size());
  const std::size_t rows = counts.size(), time = *std::max_element(counts.begin(), counts.end());
  ag::Indices batch({rows, time}, 0);
  for (std::size_t row = 0; row < rows; ++row)
    std::copy(waiting_[row].begin(), waiting_[row].end(), batch.data() + row * time);
  const ag::Array logits = model_.decode(batch, counts, cache_).value();
  const std::size_t classes = logits.shape()[2];
  ag::Array last = ag::Array::from_shape({rows, classes});
  for (std::size_t row = 0; row < rows; ++row) {
    if (counts[row] > 0)
      std::copy_n(logits.data() + (row * time + counts[row] - 1) * classes, classes,
                  last.data() + row * classes);
    waiting_[row].clear();
  }
  return last;
}

std::vector<std::string> ChatSession::say(const std::vector<std::string>& messages) {
  ag::check_argument(messages.size() == waiting_.size(),
                     "ChatSession: needs a message for each of ", waiting_.size(),
                     " dialogues, got ", messages.size());
  for (std::size_t row = 0; row < messages.size(); ++row)
    append(waiting_[row], message_tokens(messages[row], chat_));
  return answer();
}

std::vector<std::string> ChatSession::answer() {
  const std::size_t rows = waiting_.size();
  std::vector<Tokens> answers(rows);
  std::vector<bool> done(rows, false);
  for (std::size_t left = rows; left > 0;) {
    const ag::Array logits = read_waiting();
    for (std::size_t row = 0; row < rows; ++row) {
      if (done[row]) continue;
      const bool full = answers[row].size() == options_.most_tokens;
      const std::int64_t token =
          full ? chat_.turn_end : chat_.end_or_itself(chosen(logits, row, options_.sampling, rng_));
      waiting_[row] = {token};
      if (token != chat_.turn_end) {
        answers[row].push_back(token);
        continue;
      }
      done[row] = true;
      --left;
    }
  }
  std::vector<std::string> texts;
  for (const Tokens& tokens : answers) texts.push_back(chat_.decode(tokens));
  return texts;
}

std::string reply(const ag::Transformer& model, const ChatTemplate& chat, const Dialogue& dialogue,
                  const ReplyOptions& options, ag::Rng& rng) {
  ag::check_argument(!dialogue.messages.empty() && dialogue.messages.back().role == Role::user,
                     "reply: the last message must be the user's");
  ChatSession session(model, chat, 1, options, rng.split().seed());
  session.waiting_[0] = encode(dialogue, chat).tokens;
  return session.answer()[0];
}
