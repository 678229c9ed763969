#include "examples/less_is_more/recall_task.hpp"

#include <algorithm>
#include <numeric>

#include "core/errors.hpp"

namespace {

constexpr std::int64_t asked = 0, begin = 1, first_key = 2, first_value = 2 + RecallTask::keys;

struct Record {
  std::int64_t key, value;
  std::size_t next;  // the record that the value is the key of, or this one
};

std::size_t below(std::size_t count, ag::Rng& rng) {
  return static_cast<std::size_t>(rng.integer(0, std::int64_t(count)));
}

std::vector<std::int64_t> random_keys(std::size_t count, ag::Rng& rng) {
  std::vector<std::int64_t> all(RecallTask::keys);
  std::iota(all.begin(), all.end(), first_key);
  for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + below(all.size() - i, rng)]);
  all.resize(count);
  return all;
}

std::vector<Record> random_records(std::size_t count, bool chain, ag::Rng& rng) {
  const std::vector<std::int64_t> keys = random_keys(count, rng);
  std::vector<Record> records;
  for (std::size_t i = 0; i < count; ++i)
    records.push_back({keys[i], first_value + rng.integer(0, RecallTask::values), i});
  if (!chain) return records;
  // records in random places form pairs, the first of which leads to the second
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i + 1 < count; ++i) std::swap(order[i], order[i + below(count - i, rng)]);
  for (std::size_t i = 0; i + 1 < count; i += 2) {
    Record& from = records[order[i]];
    from.next = order[i + 1];
    from.value = records[from.next].key;
  }
  return records;
}

}  // namespace

RecallBatch RecallTask::random_batch(std::size_t count, std::size_t records, std::size_t queries,
                                     ag::Rng& rng) const {
  ag::check_argument(records > 0 && records <= std::size_t(keys) && (!chain_ || records % 2 == 0),
                     "recall: needs 1 to ", keys, " records, of a chain an even number, got ",
                     records);
  const std::size_t time = 1 + records + queries, hops = chain_ ? 2 : 1;
  RecallBatch batch{ag::Indices::from_shape({count, time, 2}),
                    ag::Indices({count, time}, not_asked),
                    ag::Indices::from_shape({count, queries, hops})};
  for (std::size_t row = 0; row < count; ++row) {
    const std::vector<Record> all = random_records(records, chain_, rng);
    std::int64_t* places = batch.tokens.data() + row * time * 2;
    std::fill_n(places, 2, begin);
    for (std::size_t i = 0; i < records; ++i) {
      places[2 + 2 * i] = all[i].key;
      places[3 + 2 * i] = all[i].value;
    }
    for (std::size_t q = 0; q < queries; ++q) {
      std::size_t at = below(records, rng);
      // in a chain, half of the queries have a second step
      while (chain_ && (all[at].next != at) != (q % 2 == 0)) at = below(records, rng);
      const Record &first = all[at], &last = all[first.next];
      places[2 * (1 + records + q)] = first.key;
      places[2 * (1 + records + q) + 1] = asked;
      batch.targets.data()[row * time + 1 + records + q] = last.value;
      std::int64_t* needle = batch.needles.data() + (row * queries + q) * hops;
      needle[0] = std::int64_t(1 + at);
      if (chain_) needle[1] = std::int64_t(1 + first.next);
    }
  }
  return batch;
}
