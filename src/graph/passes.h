// The passes, in the order in which compile() runs them. Each changes the graph in place and says what it did.
#pragma once

#include "graph/graph.h"
#include "graph/options.h"

namespace tidepool::graph {

// Operations that write activations only, whose values nobody takes, go; then those that only they needed. An operation
// that declares no write stays: it may set status words, which nobody declares.
PassReport remove_dead_code(Graph& graph);

// Removes clones: the operation changes the version it was given instead of a copy of it.
//
// What must be proved of the clone of version v of an object, made for operation M:
//   last use      no operation behind M takes v: after M it is gone;
//   one name      no other object shares bytes with this one, so that nobody sees the change under another name;
//   not wanted    v is not what the object has when the step ends: M's version takes its place;
//   home          the object's last version arises from its first by such changes alone, so it is in the object's own
//                 memory when the step ends, where the next step and the host look.
// The last follows for a carried object when all its clones can go. One that cannot is an Error which names M, the
// object and the reason; the clone of an activation stays, as a copy that is really made, and the reason is in the
// report.
PassReport write_in_place(Graph& graph);

// Install operations run on the side stream, spills on the spill stream, all others on main, in the order of the list.
PassReport assign_streams(Graph& graph);

// Activation values that do not live at the same time share bytes of the arena: each gets the first free place, large
// ones first. The parameters of operations are rewritten (relocate.h); where that cannot be proved to be right the
// operation is refused by name and its values stay at home. Carried activations, and those that operations of other
// streams or asynchronous ones use, stay at home and share with nobody, so no two values that share bytes are used in
// an order that main alone does not give. A protected arena stays as it is. Throws Error when a copy that
// write_in_place left finds no room.
PassReport reuse_buffers(Graph& graph, const device::Arena* activations);

// Which operation waits for which, from the versions alone: read after write, write after read, write after write,
// between streams and from asynchronous operations to everything, within the step and from one replay to the next. A
// wait that follows from the order of a stream and from other waits is left out. Objects that are host_ordered count
// within the step and by the recorded ranges only. Last.
PassReport place_events(Graph& graph);

// Runs the step in thought, in the order of the list: whether every operation finds at its place the versions that the
// graph gives it, and carried objects end at home in their last version. Throws Error that names what is overwritten.
void verify(const Graph& graph);

}  // namespace tidepool::graph
