// Package merge is server-side apply as a library. It decides which manager owns which field of an object, what an
// apply changes, and which conflicts it has. It needs no server: it takes values and returns values, and the time is
// an argument.
//
// The entry points are [Kind.Apply] and [Kind.Update] for writes, [Owners] for questions, and [Replicas] for the scale
// subresource. [Set] is a set of field paths; [ParseFieldsV1] and [Set.FieldsV1] read and print it.
//
// # Glossary
//
//   - writer: the client that makes a request. The writer acts under the name of a manager.
//   - manager: the name (with operation, API version and subresource) under which fields are owned. Each manager has
//     one entry in metadata.managedFields, and the entry holds the [Set] of the paths that it owns.
//   - live: the stored object before the write; null if there is none.
//   - intent: the body of an apply. It holds exactly those fields that the manager wants to own.
//   - conflict: a field that an apply would change and that another manager owns.
//   - associative list: a list whose items are told apart by keys or, in a set, by their values. Each item has separate
//     owners. The items of an atomic list have none: the list is owned as a whole.
//   - identity: the value that distinguishes an item of an associative list from the others. identify computes it.
//   - to prune: to remove what a manager owned, does not apply any longer, and no other manager owns.
//   - to reconcile: to adapt a stored set of paths to a schema in which a list or map has become atomic since.
//
// # The problem
//
// Several managers write to one object: a person applies a Deployment, an autoscaler sets its replicas, a mesh adds a
// container. Each write contains a whole object or a part of one, and no information about other managers. Two simple
// ways fail:
//
//   - The last write wins. The person applies the manifest again, and sets the replicas back to 1.
//   - A three-way merge of live, intent and the last intent (client-side apply, in an annotation). It sees what this
//     writer has given up, but knows one writer only. If two tools apply the same label and one of them drops it, the
//     label is removed, although the other one still applies it; and a tool that overwrites a value of another gets no
//     warning.
//
// So the object itself records, per manager, which fields it owns (metadata.managedFields). From that record follow
// three decisions that cannot be made from the values alone: which fields an apply removes, which ones it may not
// change, and which managers a conflict names.
//
// # The algorithm
//
// Let fields(x) be the set of all paths of a value x, and diff(x, y) the paths whose values were added or changed from
// x to y (touched), or removed. With M the writing manager and owned(m) the set of a manager m, an apply (SSA-3)
// computes
//
//	merged   = live ∪ intent, where the intent wins                                join.go
//	pruned   = merged ∖ (owned(M) ∖ fields(intent) ∖ ⋃ owned(m), m ≠ M)           prune.go
//	conflict = { (m, p) : m ≠ M, p ∈ owned(m) ∩ touched(diff(live, pruned)) }      compare.go, conflict.go
//
// It fails if there is a conflict, unless it is forced. Otherwise pruned is stored, and
//
//	owned(M) = fields(intent) ∖ unowned ∖ reset        owned(m) = owned(m) ∖ diff(live, pruned), for each other m
//
// An update (SSA-6) stores the object that it brings: owned(M) gains touched(diff(live, next)), and every manager, M
// included, first loses diff(live, next).
//
// # An example
//
// The object is new, and alice applies
//
//	spec: {replicas: 1, containers: [{name: web, image: a}]}
//
// She owns .spec.replicas, .spec.containers[name="web"], and in that item .name and .image. She does not own .spec, as
// a struct exists wherever one of its fields does. Then bob applies
//
//	spec: {containers: [{name: web, args: [x]}]}
//
// The live item with the identity "web" and his are one item. merged has image and args; diff holds
// .spec.containers[name="web"].args only, which has no other owner: no conflict. The item and its .name now have two
// owners. At last alice applies
//
//	spec: {replicas: 1}
//
// She has given up the item, its .name and its .image. bob owns the first two, so that only .image is pruned, and the
// item stays as {name: web, args: [x]}. Had an autoscaler updated .spec.replicas to 5 before, the field would be in its
// set and no longer in hers, diff would hold it (5 → 1), and her apply would be a conflict with the autoscaler.
//
// # Cost
//
// Every operation is linear, up to a logarithm, in the sizes of both objects and of all sets, whatever they contain: a
// client may send lists of 100,000 items, items of one identity, and thousands of managers (TestWorkIsLinear). A
// repeated apply, the most frequent request of controllers, takes time proportional to its intent and the text of
// managedFields: equal parts are not copied, compared twice, or printed again.
//
// # Where to read
//
// merge.go has Apply and Update, and reads from top to bottom. set.go is the trie of paths that all other files use,
// fieldset.go makes one from a value, and shape.go decides by the schema how a value merges: as a leaf, by members or
// by items.
//
// Managers may have written in different API versions. Their sets name the fields of their own version, so that each
// comparison is made once per version, on converted objects (SSA-11).
//
// # Caveats
//
// The reference is the field manager of Kubernetes. conformance/oracle/merge runs it beside this package. Two
// differences are known and meant. Values are compared in their canonical form here, and as they were written there, so
// that an intent with `cpu: "0.5"` has no conflict with a live `500m` (SSA-18). And the list of the violations of an
// intent ends at maxErrorText here, while there a client can make the server print a list of any length.
//
// Managed fields may be written by clients, too (SSA-7). No assumption holds for the set of another manager: it may
// contain paths that do not exist, lead into a scalar, or select list items by keys that the list does not have. The
// set that an apply stores for its own manager is the exception; see checkApplied.
//
// Values and sets are immutable and share memory. No function of this package changes an argument.
package merge
