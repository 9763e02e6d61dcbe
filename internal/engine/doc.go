// Package engine implements the verbs of the API over a store: create, get, list, watch, update, patch, apply, delete
// and deletecollection, one file each, to be read from top to bottom. It knows resource types, objects and revisions,
// but not HTTP.
//
// # Terminology
//
//   - A [Kind] is what is stored: objects under a path, in one version, with the conversion to its other versions.
//   - A [Resource] is what is served: one version of a kind under one name, with its schema and its behaviours. Both
//     are compared by identity.
//   - The [Registry] finds resources. [Types] are all resources at one moment; a request gets them once and uses them
//     to its end.
//   - A [Request] has the arguments of a verb: the resource, the names in the URL, the user and the options. It does
//     not change while it is served.
//   - A draft is one object on its way from a request into the store (draft.go).
//   - A version is the bytes of an object at one revision ([store.Version]). Its sidecar has the data that selections
//     and watches need without parsing the bytes; the [Layout] in the sidecar is this package's part of that.
//
// The words for the steps of a write (decode, default, own, admit, …) are in the glossary of ARCHITECTURE.md.
//
// # Resources and the tables that they come from
//
// A Resource is compiled, not written by hand. Package builtin has a table with a row for each built-in kind
// (builtin.kind); a row has only what is special about that kind. Package crd has CustomResourceDefinitions. Both
// compile their rows into Resources, in which nothing is implied: all functions, names, verbs and subresources that the
// verbs need. So there are two layers: the properties of a kind are in its row, and their effect is in the code that
// uses the field of Resource. The verbs never check which kind they serve.
//
// # Steps
//
// The methods of draft are the steps, and the verbs call them in this order:
//
//	create  decode · wipe · default · own · admit · permit · then for each name:
//	        name · allocate · prepare · settle · validate · check · set status · claim · commit
//	update  decode · inherit · default · own · admit · permit ·
//	        allocate · prepare · settle · validate · check · set status · claim · commit
//	patch   as update; the body is the live object with the patch applied
//	apply   as update, or as create where there is no object; the merge with the live object includes own
//	delete  admit · check · mark, or remove and claim · commit
//	a POST to a subresource
//	        decode · default · admit · check · own · then as an update from permit on, without a check
//	        (an Eviction: as a delete behind check)
//	a virtual resource, and a subresource that only answers
//	        decode · own · admit · check · Answer
//
// A write to a subresource takes the steps of an update: up to prepare, the draft is the body of the subresource;
// prepare puts it into the object.
//
// # Lost races
//
// A verb reads the live version, decides, and commits on the condition that this version is still live. Two things can
// go wrong: another request commits first, or the version that was read was not the newest one, which happens on a
// store that follows another server. The rule is
//
//	the answer of a verb is that of a commit, or was decided on a version that is known to be the newest
//
// Always reading the newest version first would cost a round trip per write on a store that follows another server, and
// retrying only the commit would write bytes that were computed from an old version. So a verb begins with the version
// at hand and is repeated from the top: after a lost race, and once more with the newest version (sure) if an attempt
// without a commit (a refusal, or "nothing changed") was decided on another one (draft.again). The loop is in the file
// of the verb. Everything that an attempt computes is in its draft, which is thrown away.
//
// A create repeats less. Mutating admission runs once, before the object has a name; if a generated name is taken, only
// the steps after admission are repeated. If only the namespace or the definition has changed since, it is checked
// again and the same bytes are sent.
//
// # Ownership
//
// own records in metadata.managedFields which fields the writer now owns. It compares old with the draft, so everything
// that the writer did not change must be equal in both when it runs: system metadata (inherit, wipe) and defaults
// (fill) are set before it. Mutating admission runs after it, as in the reference: fields that a webhook adds have no
// owner. prepare runs after it, too: the fields that it resets for this URL are declared by Resource.Resets and
// subtracted by package merge, so that a PUT of the whole object does not own the status that it may not write. An
// apply computes ownership when it merges its intent with the live object.
//
// # Stored forms that are out of date
//
// The schema of a custom kind, its storage version or its defaults may change while objects are stored. Rewriting all
// of them at once is what the reference leaves to a storage migration, and takes too long for a server with a million
// objects. Treating their bytes as current would show objects without new defaults and with fields that were removed
// from the schema. So every version has a stamp, a hash of what determined its form (see [Kind]):
//
//	stamp(v) = stamp(k)  ⇒  v.Data = what a write of the same object would store now
//
// and only such bytes are sent as they are. Other versions are read through Kind.readAll on every read, many at a time,
// because a conversion may call a webhook; a write stores the current form, and is never treated as "nothing changed".
// What a webhook has made of a version is kept ([Converted]), so that each is converted once.
//
// # Lists
//
// A list reads one snapshot, so all of its pages show one revision. list.go explains the continue token.
//
// # Watches
//
// There is no watch cache and no queue per watcher. A watch is a position in the store's history and a selector: each
// of its reads takes the next records from the history that all watchers share. watch.go explains initial events,
// transitions of a selection and bookmarks.
//
// # Deletion
//
// A delete removes an object at once, or marks it with a deletionTimestamp and leaves the removal to the write that
// removes the last finalizer or other hold. delete.go explains when it does which.
package engine
