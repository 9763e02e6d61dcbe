package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"plinth/conformance/internal/harness"
)

// nodes creates Pods that refer to objects, which the nodes read with their own credentials: they must not read objects
// to which none of their Pods refers, nor those to which only a deleted Pod referred.
func (s *scene) nodes() {
	const app = "reader"
	for _, name := range []string{"password", "of-nobody"} {
		_, err := s.client.CoreV1().Secrets(s.namespace).Create(s.Context(),
			&core.Secret{ObjectMeta: meta.ObjectMeta{Name: name},
				StringData: map[string]string{"a": "b"}}, meta.CreateOptions{})
		s.must(err)
	}
	_, err := s.client.CoreV1().ConfigMaps(s.namespace).Create(s.Context(),
		&core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "settings"}}, meta.CreateOptions{})
	s.must(err)
	_, err = s.client.CoreV1().ServiceAccounts(s.namespace).Create(s.Context(),
		&core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: app}}, meta.CreateOptions{})
	s.must(err)
	readers := deployment(app, 6)
	pod := &readers.Spec.Template.Spec
	pod.ServiceAccountName = app
	pod.Volumes = []core.Volume{
		{Name: "settings",
			VolumeSource: core.VolumeSource{ConfigMap: &core.ConfigMapVolumeSource{
				LocalObjectReference: core.LocalObjectReference{Name: "settings"},
			}}},
		{Name: "password", VolumeSource: core.VolumeSource{Secret: &core.SecretVolumeSource{SecretName: "password"}}},
	}
	_, err = s.client.AppsV1().Deployments(s.namespace).Create(s.Context(), readers, meta.CreateOptions{})
	s.must(err)
	s.rolledOut(app, 6)
	for _, what := range []string{"ConfigMap/settings", "Secret/password", "token/" + app} {
		if _, read := s.read.Load(app + " " + what); !read {
			s.Errorf("no node has read %s", what)
		}
	}
	pods, err := s.client.CoreV1().Pods(s.namespace).List(s.Context(), meta.ListOptions{LabelSelector: "app=" + app})
	s.must(err)
	name := pods.Items[0].Spec.NodeName
	node, err := s.node(name)
	s.must(err)
	for what, err := range s.forbidden(node, name) {
		if !apierrors.IsForbidden(err) {
			s.Errorf("%s %s: %v", name, what, err)
		}
	}
	// When the last Pod is deleted, the objects that it referred to may no longer be read.
	s.must(s.client.AppsV1().Deployments(s.namespace).Delete(s.Context(), app, meta.DeleteOptions{}))
	s.wait("a node may not read what belongs to none of its Pods any more", func(ctx context.Context) error {
		_, secret := node.CoreV1().Secrets(s.namespace).Get(ctx, "password", meta.GetOptions{})
		_, settings := node.CoreV1().ConfigMaps(s.namespace).Get(ctx, "settings", meta.GetOptions{})
		return errors.Join(same("it may not read the Secret", apierrors.IsForbidden(secret), true),
			same("it may not read the ConfigMap", apierrors.IsForbidden(settings), true))
	})
}

// forbidden returns the responses to requests that a node may not make.
func (s *scene) forbidden(node kubernetes.Interface, name string) map[string]error {
	c, ctx := node.CoreV1(), s.Context()
	another := harness.Nodes[(slices.Index(harness.Nodes, name)+1)%len(harness.Nodes)]
	answers := map[string]error{}
	_, answers["reads a Secret of no Pod of its own"] = c.Secrets(s.namespace).Get(ctx, "of-nobody", meta.GetOptions{})
	_, answers["lists Secrets"] = c.Secrets(s.namespace).List(ctx, meta.ListOptions{})
	_, answers["lists all Pods"] = c.Pods("").List(ctx, meta.ListOptions{})
	_, answers["lists the Pods of another node"] = c.Pods("").List(ctx,
		meta.ListOptions{FieldSelector: "spec.nodeName=" + another})
	_, answers["reads another node"] = c.Nodes().Get(ctx, another, meta.GetOptions{})
	_, answers["lists nodes"] = c.Nodes().List(ctx, meta.ListOptions{})
	_, answers["makes a Secret"] = c.Secrets(s.namespace).Create(ctx, &core.Secret{ObjectMeta: meta.ObjectMeta{Name: "x"}},
		meta.CreateOptions{})
	_, answers["makes a token of an account of no Pod of its own"] = c.ServiceAccounts(s.namespace).CreateToken(ctx,
		"default",
		&authentication.TokenRequest{}, meta.CreateOptions{})
	_, answers["makes a Deployment"] = node.AppsV1().Deployments(s.namespace).Create(ctx, deployment("x", 1),
		meta.CreateOptions{})
	_, answers[fmt.Sprintf("reads a Lease in %s", s.namespace)] = node.CoordinationV1().Leases(s.namespace).Get(ctx, name,
		meta.GetOptions{})
	return answers
}
