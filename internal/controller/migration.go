package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"plinth/internal/access"
	"plinth/internal/aggregation"
	"plinth/internal/apierr"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/controller/worklist"
	"plinth/internal/engine"
	"plinth/object"
)

// Migrations does what StorageVersionMigrations ask for: it writes every object of a resource again, so that all are
// stored in the version in which new ones are. The conditions of a migration are its state:
//
//	promote   of the migrations of a resource that have not begun, the oldest one gets Running, if none has it
//	begin     a Running one gets status.resourceVersion, the revision at that time
//	rewrite   objects whose revision is not newer are patched with nothing; then it gets Succeeded, or Failed
//	promote   one that has ended is no longer Running, and the next one of the resource begins
//
// A patch has the resourceVersion of the object as its precondition. If it fails with a conflict, or the object is
// gone, there is nothing to do: whoever wrote it stored it in the new version. A server that restarts goes on with the
// objects that are still older than status.resourceVersion.
//
// The definition of a custom resource gets the condition StorageMigrating meanwhile. In the end its
// status.storedVersions is the version that is stored now, unless the definition has changed since the migration began.
type Migrations struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	// Aggregator knows the resources of aggregated API servers. Nil: there are none.
	Aggregator *aggregation.Aggregator
	Now        func() time.Time // nil: time.Now
	Busy       *pace.Busy       // nil: nobody asks
	Observe    worklist.Observe
}

// The names of the controller and of the field managers of its parts, as in the reference.
const (
	migrationController = "storage-version-migrator-controller"
	migrationRunner     = "migration-runner-controller"
)

// migrationTask is a task of a migrator: a step, for the object, or the resource, of a key.
type migrationTask struct {
	step migrationStep
	key  engine.Key
}

type migrationStep uint8

// The steps.
const (
	promote migrationStep = iota // choose which migration of a resource runs; the key is that of the resource
	migrate                      // go on with a migration
	ask                          // go on with a migration of a resource of an aggregated API server
)

// mayCome is how long a migration waits for a resource that is not served: its definition may not be created yet.
const mayCome = time.Minute

// migrator is the state of one run of Migrations.
type migrator struct {
	*Migrations
	of, definitions *engine.Resource
	user            access.User
	work            *worklist.List[migrationTask, struct{}]
	asking          *worklist.List[migrationTask, struct{}] // tasks that ask other servers, for which no other task waits
	pace            *rate.Limiter                           // of the patches
}

// Start begins its loops.
func (c *Migrations) Start(g *steps.Group) {
	types := c.Registry.Builtin()
	m := &migrator{
		Migrations:  c,
		of:          types.Find("storagemigration.k8s.io", "v1", "storageversionmigrations"),
		definitions: types.Find("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
		user:        access.ControllerAccount(migrationController), pace: pace.New(),
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if m.of == nil {
		return // not served
	}
	tasks := worklist.Config[migrationTask, struct{}]{Do: m.do, Failed: m.failed, Busy: c.Busy,
		Name: migrationController, Observe: c.Observe}
	m.work, m.asking = worklist.New(g.Context(), g, tasks), worklist.New(g.Context(), g, tasks)
	(&follower{engine: c.Engine, logger: c.Logger, name: migrationController, types: []*engine.Resource{m.of},
		sync: m.changed}).start(g)
}

// changed queues the tasks that follow from a change of a migration.
func (m *migrator) changed(_ context.Context, _ *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
	s, err := readMigration(o)
	if err != nil {
		return 0, nil // it is mended or deleted by somebody else
	}
	m.work.Add(migrationTask{promote, s.of()}, struct{}{})
	if !gone {
		m.work.Add(migrationTask{migrate, o.Key}, struct{}{})
	}
	return 0, nil
}

// failed logs the error of a task that is executed again. Conflicts are not news: somebody else has changed the object.
func (m *migrator) failed(t migrationTask, err error) {
	if apierr.Is(err, apierr.Conflict) {
		return
	}
	m.Logger.Warn("a migration could not go on, trying again", "controller", migrationController, "object",
		t.key.String(), "error", err)
}

func (m *migrator) do(ctx context.Context, t migrationTask, _ struct{}) error {
	if t.step == promote {
		return m.promote(ctx, t.key)
	}
	return m.migrate(ctx, t)
}

// migration is a StorageVersionMigration as it was read.
type migration struct {
	o               *engine.Object
	obj             object.Value
	group, resource string // what is migrated
}

func readMigration(o *engine.Object) (*migration, error) {
	obj, err := parsed(o)
	if err != nil {
		return nil, err
	}
	of := obj.At("spec", "resource")
	return &migration{o, obj, of.At("group").Str(), of.At("resource").Str()}, nil
}

func (s *migration) name() string { return s.o.Key.Name }

// of is the key of the tasks that are about the resource: it is no key of an object.
func (s *migration) of() engine.Key { return engine.Key{Resource: s.group, Name: s.resource} }

// is says whether a condition has the status True.
func (s *migration) is(condition string) bool {
	return conditionOf(s.obj, condition).At("status").Str() == "True"
}

func (s *migration) ended() bool { return s.is("Succeeded") || s.is("Failed") }

// before says whether a migration is older than another one.
func (s *migration) before(other *migration) bool {
	a, b := s.obj.At("metadata", "creationTimestamp").Str(), other.obj.At("metadata", "creationTimestamp").Str()
	return a < b || a == b && s.name() < other.name()
}

// age is the time since a migration was created.
func (s *migration) age(now time.Time) time.Duration {
	created, err := time.Parse(time.RFC3339, s.obj.At("metadata", "creationTimestamp").Str())
	if err != nil {
		return mayCome
	}
	return now.Sub(created)
}

// set changes a condition of a migration, and says whether it was different.
func (m *migrator) set(s *migration, c condition) (changed bool) {
	before := s.obj.At("status", "conditions")
	after := amend(before, []condition{c}, m.Now())
	if object.Equal(before, after) {
		return false
	}
	s.obj = s.obj.WithAt(after, "status", "conditions")
	return true
}

// write stores the status of a migration, unless the migration has changed since it was read.
func (m *migrator) write(ctx context.Context, s *migration) error {
	rq := &engine.Request{Resource: m.of, Name: s.name(), Subresource: m.of.Subresource("status"), User: m.user,
		FieldManager: manager}
	_, err := m.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(s.obj, s.o)})
	return err
}

// The reasons and messages of the conditions.
const (
	migrationRunning   = "MigrationRunning"
	migrationSucceeded = "StorageVersionMigrationSucceeded"
	migrationFailed    = "StorageVersionMigrationFailed"
	isRunning          = "The migration is running"
	completed          = "Migration completed"
)

// promote lets one of the migrations of a resource run, and finishes those that have ended.
func (m *migrator) promote(ctx context.Context, resource engine.Key) error {
	list, err := m.Engine.List(ctx, &engine.Request{Resource: m.of, User: m.user}, engine.ListOptions{})
	if err != nil {
		return err
	}
	var next *migration
	var ended []*migration
	runs := false
	for o := range list.Items {
		s, err := readMigration(o)
		if err != nil || s.of() != resource {
			continue
		}
		switch {
		case s.is("Running") && s.ended():
			ended = append(ended, s)
		case s.is("Running"):
			runs = true
		case !s.ended() && (next == nil || s.before(next)):
			next = s
		}
	}
	if err := list.Err(); err != nil {
		return err
	}
	for _, s := range ended {
		if err := m.finish(ctx, s); err != nil {
			return err
		}
	}
	if next == nil || runs {
		return nil
	}
	return m.run(ctx, next)
}

// run marks a migration as running, and the definition of its resource as being migrated.
func (m *migrator) run(ctx context.Context, s *migration) error {
	definition, err := m.definition(ctx, s)
	if err != nil {
		return err
	}
	if definition != nil {
		err := m.mark(ctx, definition, condition{status: "True", reason: migrationRunning,
			message: fmt.Sprintf("Migration %s is running", s.name())}, object.Nil)
		if err != nil {
			return err
		}
	}
	if conditionOf(s.obj, "Running").At("status").Str() != "False" {
		m.set(s, condition{name: "Running", status: "True", reason: migrationRunning, message: isRunning})
	}
	return m.write(ctx, s)
}

// finish marks a migration that has ended as no longer running, and tells the definition of its resource the result.
func (m *migrator) finish(ctx context.Context, s *migration) error {
	definition, err := m.definition(ctx, s)
	if err != nil {
		return err
	}
	if definition != nil {
		obj, err := engine.ObjectOf(definition)
		if err != nil {
			return err
		}
		// As in the reference, the stored versions are set after a failure, too.
		c := condition{status: "False", reason: "MigrationFailed", message: "The migration has failed"}
		stored, same := object.Nil, conditionOf(obj, "StorageMigrating")
		unchanged := !same.IsNull() && same.At("observedGeneration").Int() == obj.At("metadata", "generation").Int()
		if unchanged {
			stored = storedVersion(obj)
		}
		if s.is("Succeeded") {
			c.reason, c.message = "MigrationSucceeded", "The migration has succeeded"
			if unchanged {
				c.message += " and the stored versions have been updated"
			} else {
				c.message += " but the stored versions have not been updated due to a generation mismatch"
			}
		}
		if err := m.mark(ctx, definition, c, stored); err != nil {
			return err
		}
	}
	m.set(s, condition{name: "Running", status: "False", reason: "MigrationCompleted", message: completed,
		generation: s.obj.At("metadata", "generation").Int()})
	return m.write(ctx, s)
}

// storedVersion is the name of the version in which the objects of a definition are stored.
func storedVersion(definition object.Value) object.Value {
	for _, version := range definition.At("spec", "versions").Items() {
		if version.At("storage").Bool() {
			return version.At("name")
		}
	}
	return object.Nil
}

// definition returns the definition of the resource of a migration; nil if there is none.
func (m *migrator) definition(ctx context.Context, s *migration) (*engine.Object, error) {
	rq := &engine.Request{Resource: m.definitions, Name: s.resource + "." + s.group, User: m.user}
	result, err := m.Engine.Get(ctx, rq, "")
	if apierr.Is(err, apierr.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return result.Object, nil
}

// mark sets the condition StorageMigrating of a definition, and its storedVersions unless stored is null.
func (m *migrator) mark(
	ctx context.Context, definition *engine.Object, c condition, stored object.Value,
) error {
	obj, err := engine.ObjectOf(definition)
	if err != nil {
		return err
	}
	text := object.StringOf
	status := []object.Member{{Key: "conditions", Value: object.ListOf(object.Fields("type", text("StorageMigrating"),
		"status", text(c.status), "reason", text(c.reason), "message", text(c.message),
		"lastTransitionTime", text(m.Now().UTC().Format(time.RFC3339)),
		"observedGeneration", obj.At("metadata", "generation")))}}
	if !stored.IsNull() {
		status = append(status, object.Member{Key: "storedVersions", Value: object.ListOf(stored)})
	}
	intent := object.Fields("apiVersion", text(m.definitions.APIVersion()), "kind", text(m.definitions.Kind),
		"metadata", object.Fields("name", text(definition.Key.Name)), "status", object.MapOf(status...))
	_, err = m.Engine.Apply(ctx, &engine.Request{
		Resource: m.definitions, Subresource: m.definitions.Subresource("status"), Name: definition.Key.Name, User: m.user,
		FieldManager: migrationRunner, Force: true,
	}, object.Parsed{Value: withRevision(intent, definition)})
	return err
}

// migrate begins or goes on with a migration.
func (m *migrator) migrate(ctx context.Context, t migrationTask) error {
	name := t.key.Name
	result, err := m.Engine.Get(ctx, &engine.Request{Resource: m.of, Name: name, User: m.user}, "")
	if err != nil {
		return unlessChanged(nil, err)
	}
	s, err := readMigration(result.Object)
	if err != nil || !s.is("Running") || s.ended() {
		return nil
	}
	revision := s.obj.At("status", "resourceVersion").Str()
	of := m.resource(s.group, s.resource)
	if _, ok := of.(*backendObjects); ok && t.step != ask {
		m.asking.Add(migrationTask{ask, t.key}, struct{}{})
		return nil
	}
	switch {
	case of == nil && s.age(m.Now()) < mayCome:
		return fmt.Errorf("no resource %s of the group %q is served", s.resource, s.group)
	case of == nil && revision == "":
		return m.fail(ctx, s, "resource does not exist in discovery")
	case of == nil:
		return m.fail(ctx, s, unhandled+"unable to obtain GVR from discovery")
	case !of.migratable():
		return m.fail(ctx, s, fmt.Sprintf("resource %q does not support discovery operations: [update patch list]", of))
	case revision == "":
		return m.begin(ctx, s, of)
	}
	if _, err := resourceversion.CompareResourceVersion(revision, revision); err != nil {
		return m.fail(ctx, s, fmt.Sprintf("%serror comparing resource versions between GC and SVM resource: %v", unhandled,
			err))
	}
	return m.rewrite(ctx, s, of, revision)
}

// unhandled begins the messages of failed migrations.
const unhandled = "migration encountered unhandled error: "

// fail ends a migration.
func (m *migrator) fail(ctx context.Context, s *migration, message string) error {
	m.Logger.Warn("a migration has failed", "controller", migrationController, "migration", s.name(), "error", message)
	if !m.set(s, condition{name: "Failed", status: "True", reason: migrationFailed, message: message}) {
		return nil
	}
	return m.write(ctx, s)
}

// begin records the revision at which a migration begins.
func (m *migrator) begin(ctx context.Context, s *migration, of migrated) error {
	revision, err := of.latest(ctx)
	if err != nil {
		return err
	}
	if _, err := resourceversion.CompareResourceVersion(revision, revision); err != nil {
		return m.fail(ctx, s, fmt.Sprintf("latest resourceVersion for %s is not valid: %v", of, err))
	}
	s.obj = s.obj.WithAt(object.StringOf(revision), "status", "resourceVersion")
	return m.write(ctx, s)
}

// rewrite patches the objects whose revision is not after a revision.
func (m *migrator) rewrite(ctx context.Context, s *migration, of migrated, until string) error {
	if s.resource == "events" && (s.group == "" || s.group == "events.k8s.io") {
		// The garbage collector does not follow them, and the reference patches what it follows: it waits forever.
		m.Logger.Warn("Events are not migrated", "controller", migrationController, "migration", s.name())
		return nil
	}
	list, err := of.list(ctx)
	if err != nil {
		return err
	}
	left, total := 0, 0
	for o := range list.items {
		total++
		order, err := resourceversion.CompareResourceVersion(o.revision, until)
		if err != nil {
			return m.fail(ctx, s, unhandled+err.Error())
		}
		if order <= 0 {
			left++
		}
	}
	for o := range list.items {
		if order, _ := resourceversion.CompareResourceVersion(o.revision, until); order > 0 {
			continue
		}
		if err := m.pace.Wait(ctx); err != nil {
			return err
		}
		err := of.patch(ctx, o)
		switch {
		case err == nil || apierr.Is(err, apierr.Conflict) || apierr.Is(err, apierr.NotFound):
			left--
		case ctx.Err() != nil:
			return err
		case isTransient(err):
			if m.setRunning(s, left, total, err) {
				err = errors.Join(err, unlessChanged(nil, m.write(ctx, s)))
			}
			return err
		default:
			m.setRunning(s, left, total, nil)
			return m.fail(ctx, s, fmt.Sprintf("%d/%d not yet migrated. %s%s", left, total, unhandled, err))
		}
	}
	if err := list.err(); err != nil {
		return err
	}
	running := m.setRunning(s, left, total, nil)
	succeeded := condition{name: "Succeeded", status: "True", reason: migrationSucceeded, message: completed}
	if !m.set(s, succeeded) && !running {
		return nil
	}
	return m.write(ctx, s)
}

// setRunning sets the condition Running: how many objects are left, of how many, and why it does not go on now.
func (m *migrator) setRunning(s *migration, left, total int, transient error) (changed bool) {
	message := isRunning
	switch {
	case total == 0:
	case left > 0:
		message += fmt.Sprintf(", %d/%d objects not yet migrated", left, total)
	default:
		message += fmt.Sprintf(", %d objects verified migrated", total)
	}
	if transient != nil {
		message += "; transient error: " + transient.Error()
	}
	return m.set(s, condition{name: "Running", status: "True", reason: migrationRunning, message: message})
}

// isTransient says whether a patch that failed may succeed when it is tried again. So it may if another server has not
// answered at all.
func isTransient(err error) bool {
	if status := (*apierr.Error)(nil); !errors.As(err, &status) {
		return true
	}
	for _, reason := range []apierr.Reason{apierr.ServerTimeout, apierr.TooManyRequests, apierr.ServiceUnavailable,
		apierr.InternalError, apierr.Timeout} {
		if apierr.Is(err, reason) {
			return true
		}
	}
	return false
}
