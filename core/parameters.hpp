// Parameters: a list of variables with dotted names; and how such a list is made from a layer.
//
// A layer is a struct with one member that lists its members by name:
//   void visit(auto&& f) { f("query", query); f("blocks", blocks); }
// A member is a Variable (without a value: absent, and skipped), a layer, or a vector, optional or
// unique_ptr of these.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/variable.hpp"

namespace attngrad {

// The two joined by a dot; only one of them if the other is empty.
inline std::string dotted(const std::string& prefix, const std::string& name) {
  return prefix.empty() || name.empty() ? prefix + name : prefix + "." + name;
}

inline namespace ATTNGRAD_PRECISION {

// An ordered list of named variables. A variable listed again under another name, such as a head
// tied to an embedding, is kept once, under its first name; the later names are remembered as
// aliases.
class Parameters {
 public:
  struct Entry {
    std::string name;
    Variable value;
  };

  Parameters() = default;
  Parameters(std::initializer_list<Entry> entries);

  // Appends. Throws ArgumentError if the variable holds no value, if the name is empty, or if it
  // names another variable.
  void add(const std::string& name, const Variable& variable);
  // Appends all of other, each name after "prefix." unless prefix is empty. If it throws, nothing
  // was appended.
  Parameters& join(const Parameters& other, const std::string& prefix = "");
  Parameters& operator+=(const Parameters& other) { return join(other); }

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  // The number of elements of all variables together.
  std::size_t count() const;
  std::vector<std::string> names() const;

  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }
  const Entry& operator[](std::size_t i) const { return entries_[i]; }

  // Both know aliases. find throws ArgumentError, with the nearest names, if there is none.
  bool contains(const std::string& name) const { return places_.contains(name); }
  const Variable& find(const std::string& name) const { return entries_[place(name)].value; }
  // The place of a name or alias in the list; throws as find.
  std::size_t place(const std::string& name) const;

  friend Parameters operator+(Parameters a, const Parameters& b) { return std::move(a += b); }

 private:
  std::vector<Entry> entries_;
  // The place in entries_ of each name or alias, and of each value (Variable::id).
  std::unordered_map<std::string, std::size_t> places_;
  std::unordered_map<const void*, std::size_t> places_of_value_;
};

// ---- visiting ---------------------------------------------------------------------------------

namespace visiting {

struct AnyMember {
  void operator()(const std::string& name, auto& member) const;
};

template <class Member>
concept List = requires(Member& member) {
  member.begin();
  member.size();
};

template <class Member>
concept Holder = requires(Member& member) {
  *member;
  { member.operator bool() } -> std::same_as<bool>;
};

}  // namespace visiting

// A type with the member visit described above.
template <class Layer>
concept VisitableLayer = requires(Layer& layer) { layer.visit(visiting::AnyMember{}); };

namespace visiting {

// Calls f(name, x) for the variable or layer that a member is, and for each one that it contains.
template <class Member, class F>
void unwrap(const std::string& name, Member& member, F& f) {
  static_assert(!std::is_const_v<Member>, "visit: must not be a const function");
  if constexpr (std::same_as<Member, Variable>) {
    if (member.holds_value()) f(name, member);
  } else if constexpr (VisitableLayer<Member>) {
    f(name, member);
  } else if constexpr (List<Member>) {
    std::size_t index = 0;
    for (auto& entry : member) unwrap(dotted(name, std::to_string(index++)), entry, f);
  } else {
    static_assert(Holder<Member>,
                  "visit: not a Variable, a layer, or a vector, optional or unique_ptr of these");
    if (member) unwrap(name, *member, f);
  }
}

}  // namespace visiting

// Calls f(name, child) for each variable that holds a value and each layer directly below `layer`,
// in order; entries of a vector are named "blocks.0", "blocks.1". A child named "" stands in its
// parent's place.
template <VisitableLayer Layer, class F>
void visit_children(Layer& layer, F&& f) {
  layer.visit([&f](const std::string& name, auto& member) { visiting::unwrap(name, member, f); });
}

// Calls f(name, variable) for every variable that holds a value in `layer` and in the layers below
// it, in order.
template <VisitableLayer Layer, class F>
void visit_variables(Layer& layer, F&& f, const std::string& prefix = "") {
  visit_children(layer, [&](const std::string& name, auto& child) {
    const std::string path = dotted(prefix, name);
    if constexpr (std::same_as<std::remove_reference_t<decltype(child)>, Variable>) {
      f(path, child);
    } else {
      visit_variables(child, f, path);
    }
  });
}

// All variables of a layer and of the layers below it, by dotted name. They share their values with
// the layer. Throws ArgumentError if two different ones have the same name.
template <VisitableLayer Layer>
Parameters parameters(const Layer& layer, const std::string& prefix = "") {
  Parameters all;
  // visit serves readers and writers, so it is not const; what is done here only reads
  visit_variables(
      const_cast<Layer&>(layer), [&](const std::string& name, Variable& x) { all.add(name, x); },
      prefix);
  return all;
}

}  // namespace ATTNGRAD_PRECISION
}  // namespace attngrad
