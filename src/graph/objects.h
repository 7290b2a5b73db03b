// Which memory object a declared range lies in.
#pragma once

#include <map>
#include <vector>

#include "graph/graph.h"
#include "graph/options.h"

namespace tidepool::graph {

class ObjectTable {
 public:
  // Objects of every range that is declared.
  ObjectTable(const CompileOptions& options, const std::vector<device::Access>& declared);

  const std::vector<Object>& objects() const { return objects_; }
  // The object that a declared range lies in. Throws Error when it passes the end of an allocation; `who` is for that.
  ObjectId object_of(const device::Access& access, const char* who) const;

 private:
  void add_allocations(const CompileOptions& options);
  void add_host_memory(const CompileOptions& options, const std::vector<device::Access>& declared);
  void add_resources(const CompileOptions& options, const std::vector<device::Access>& declared);
  ObjectId find(uint64_t address) const;

  std::vector<Object> objects_;
  std::map<uint64_t, ObjectId> by_address_;  // of memory objects that hold bytes, by their first address
  std::map<uint64_t, ObjectId> by_space_;    // of resources
};

}  // namespace tidepool::graph
