package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	storagemigration "k8s.io/api/storagemigration/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
)

// widgets is how many objects are migrated.
const widgets = 10_000

// migrations is what the migrations of the scenario say in the end, and the definition of the widgets: by name and type
// of condition. The first and the second one are for the same resource, one after the other.
const migrations = `first Running False MigrationCompleted 0 Migration completed
first Succeeded True StorageVersionMigrationSucceeded 0 Migration completed
reviews Failed True StorageVersionMigrationFailed 0 resource "authentication.k8s.io/v1, Resource=tokenreviews" does not support discovery operations: [update patch list]
reviews Running False MigrationCompleted 0 Migration completed
second Running False MigrationCompleted 0 Migration completed
second Succeeded True StorageVersionMigrationSucceeded 0 Migration completed
unknown Failed True StorageVersionMigrationFailed 0 resource does not exist in discovery
unknown Running False MigrationCompleted 0 Migration completed
widgets.example.com StorageMigrating False MigrationSucceeded 2 The migration has succeeded and the stored versions have been updated
widgets.example.com storedVersions v2
`

// StorageVersionMigrations are done by Plinth's controller as by the real kube-controller-manager, which works on
// Plinth as on the reference: 10,000 custom objects that are stored in v1 are stored in v2 afterwards, in the keys of
// etcd.
//
// SPEC: RUN-4, EXT-1
func TestStorageMigration(t *testing.T) {
	type mode struct {
		name    string
		options harness.Options
		manager bool
	}
	modes := []mode{{"Plinth's controller", harness.Options{Kind: harness.Plinth}, false}}
	if harness.WantReference() { // the manager waits for a minute, too
		modes = append(modes, mode{"kube-controller-manager on Plinth", harness.Options{Kind: harness.Plinth,
			Flags: []string{"--controllers=-namespace-controller", "--disable-admission-plugins=ServiceAccount"}}, true},
			mode{"kube-controller-manager on the reference", harness.Options{Kind: harness.Reference}, true})
	}
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			t.Setenv("CONFORMANCE_STORE", "etcd")
			server := harness.Run(t, mode.options)
			if mode.manager {
				controlplane.Run(t, server, controlplane.Options{Manager: manager, NoScheduler: true})
			}
			if got := newMigrationScene(t, server).scenario(); got != migrations {
				t.Errorf("the conditions are\n%s, and are to be\n%s", got, migrations)
			}
		})
	}
}

// migrationScene is a server with a definition whose objects are migrated.
type migrationScene struct {
	*scene
	definitions apiextensionsclient.Interface
	etcd        *clientv3.Client
}

func newMigrationScene(t *testing.T, server *harness.Server) *migrationScene {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 5000, 5000
	s := &migrationScene{scene: &scene{T: t, client: kubernetes.NewForConfigOrDie(config),
		dynamic: dynamic.NewForConfigOrDie(config)}, definitions: apiextensionsclient.NewForConfigOrDie(config)}
	s.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{server.Etcd}})
	s.must(err)
	t.Cleanup(func() { s.etcd.Close() })
	return s
}

// scenario makes the objects and the migrations, and returns what they say in the end.
func (s *migrationScene) scenario() string {
	// These two have to wait for a minute until it is sure that there is no such resource.
	s.migrate("unknown", "none.example.com", "nothings")
	s.migrate("reviews", "authentication.k8s.io", "tokenreviews")
	s.define()
	s.fill()
	s.store("v2")
	if found := s.stored(); found != fmt.Sprint(map[string]int{"v1": widgets}) {
		s.Fatalf("before the migration %s are stored", found)
	}
	s.migrate("first", "example.com", "widgets")
	s.migrate("second", "example.com", "widgets")
	var said string
	for began := time.Now(); ; time.Sleep(time.Second / 4) {
		var err error
		if said, err = s.say(s.Context()); err == nil {
			break
		}
		if time.Since(began) > 5*time.Minute {
			s.Fatalf("the migrations do not end: %v", err)
		}
	}
	if found := s.stored(); found != fmt.Sprint(map[string]int{"v2": widgets}) {
		s.Errorf("after the migration %s are stored", found)
	}
	return said
}

func (s *migrationScene) migrate(name, group, resource string) {
	s.Helper()
	_, err := s.client.StoragemigrationV1().StorageVersionMigrations().Create(s.Context(),
		&storagemigration.StorageVersionMigration{ObjectMeta: meta.ObjectMeta{Name: name},
			Spec: storagemigration.StorageVersionMigrationSpec{
				Resource: meta.GroupResource{Group: group, Resource: resource}}}, meta.CreateOptions{})
	s.must(err)
}

// define makes the definition, which stores v1, and waits until it is served.
func (s *migrationScene) define() {
	s.Helper()
	version := func(name string, stored bool) apiextensions.CustomResourceDefinitionVersion {
		yes := true
		return apiextensions.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: stored,
			Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: &yes}}}
	}
	_, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(s.Context(),
		&apiextensions.CustomResourceDefinition{
			ObjectMeta: meta.ObjectMeta{Name: "widgets.example.com"},
			Spec: apiextensions.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensions.NamespaceScoped,
				Names: apiextensions.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget",
					ListKind: "WidgetList"},
				Versions: []apiextensions.CustomResourceDefinitionVersion{version("v1", true), version("v2", false)},
			},
		}, meta.CreateOptions{})
	s.must(err)
	s.wait("the widgets are served", func(ctx context.Context) error {
		_, err := s.widgets().List(ctx, meta.ListOptions{})
		return err
	})
}

func (s *migrationScene) widgets() dynamic.ResourceInterface {
	return s.dynamic.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).
		Namespace("default")
}

// fill makes the objects.
func (s *migrationScene) fill() {
	s.Helper()
	var work sync.WaitGroup
	numbers, failed := make(chan int), make(chan error, widgets)
	for range 16 {
		work.Go(func() {
			for n := range numbers {
				_, err := s.widgets().Create(s.Context(), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": fmt.Sprint("w", n)},
					"size": int64(n)}}, meta.CreateOptions{})
				if err != nil {
					failed <- err
				}
			}
		})
	}
	for n := range widgets {
		numbers <- n
	}
	close(numbers)
	work.Wait()
	close(failed)
	s.must(<-failed)
}

// store changes the version that the definition stores, and waits until new objects are stored in it.
func (s *migrationScene) store(version string) {
	s.Helper()
	definitions := s.definitions.ApiextensionsV1().CustomResourceDefinitions()
	s.wait("the definition changes", func(ctx context.Context) error {
		definition, err := definitions.Get(ctx, "widgets.example.com", meta.GetOptions{})
		if err != nil {
			return err
		}
		for i := range definition.Spec.Versions {
			definition.Spec.Versions[i].Storage = definition.Spec.Versions[i].Name == version
		}
		_, err = definitions.Update(ctx, definition, meta.UpdateOptions{})
		return err
	})
	s.wait("new objects are stored in the other version", func(ctx context.Context) error {
		_, err := s.widgets().Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "probe"}}},
			meta.CreateOptions{})
		if err != nil {
			return err
		}
		found := s.stored()
		if err := s.widgets().Delete(ctx, "probe", meta.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return same("what is stored", found, fmt.Sprint(map[string]int{"v1": widgets, version: 1}))
	})
}

// stored counts the objects in etcd by the version in which they are stored.
func (s *migrationScene) stored() string {
	s.Helper()
	answer, err := s.etcd.Get(s.Context(), "/registry/example.com/widgets/", clientv3.WithPrefix())
	s.must(err)
	found := map[string]int{}
	for _, kv := range answer.Kvs {
		var head struct{ APIVersion string }
		if err := json.NewDecoder(bytes.NewReader(kv.Value)).Decode(&head); err != nil {
			s.Fatalf("%s: %v", kv.Key, err)
		}
		found[strings.TrimPrefix(head.APIVersion, "example.com/")]++
	}
	return fmt.Sprint(found)
}

// say returns what the migrations and the definition say, or an error as long as a migration goes on.
func (s *migrationScene) say(ctx context.Context) (string, error) {
	list, err := s.client.StoragemigrationV1().StorageVersionMigrations().List(ctx, meta.ListOptions{})
	if err != nil {
		return "", err
	}
	var lines []string
	say := func(name string, c meta.Condition) {
		lines = append(lines, fmt.Sprintln(name, c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message))
	}
	for _, m := range list.Items {
		running := false
		for _, c := range m.Status.Conditions {
			say(m.Name, c)
			running = running || c.Type == string(storagemigration.MigrationRunning) && c.Status == meta.ConditionTrue
		}
		if running || len(m.Status.Conditions) < 2 {
			err = errors.Join(err, fmt.Errorf("%s: %v", m.Name, m.Status.Conditions))
		}
	}
	definition, failed := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, "widgets.example.com",
		meta.GetOptions{})
	if failed != nil {
		return "", failed
	}
	for _, c := range definition.Status.Conditions {
		if c.Type == apiextensions.StorageMigrating {
			say(definition.Name, meta.Condition{Type: string(c.Type), Status: meta.ConditionStatus(c.Status), Reason: c.Reason,
				ObservedGeneration: c.ObservedGeneration, Message: c.Message})
		}
	}
	stored := strings.Join(definition.Status.StoredVersions, ",")
	lines = append(lines, fmt.Sprintln(definition.Name, "storedVersions", stored))
	slices.Sort(lines)
	return strings.Join(lines, ""), err
}
