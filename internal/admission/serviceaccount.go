package admission

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"plinth/internal/apierr"
	"plinth/internal/authz"
	"plinth/internal/engine"
	"plinth/object"
)

// serviceAccounts is the plugin ServiceAccount: a Pod runs as a ServiceAccount that exists, gets its token as a volume
// and its secrets for pulling images, and may be limited to the secrets that the account lists.
type serviceAccounts struct{ objects *objects }

const (
	defaultAccount = "default"
	tokenPath      = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenVolume    = "kube-api-access-"
	// tokenSeconds is the life of a mounted token: an hour, and the time that the reference adds so that it can tell
	// its tokens from others.
	tokenSeconds = 60*60 + 7
	// accountWait is how long the ServiceAccount default of a namespace is waited for: a controller makes it a moment
	// after the namespace. The reference tries ten times, up to 200 ms apart.
	accountWait = 1800 * time.Millisecond

	enforceSecrets = "kubernetes.io/enforce-mountable-secrets"
)

func newServiceAccount(c *Config) (steps, error) {
	p := &serviceAccounts{c.objects}
	return steps{admit: p.admit, validate: p.validate}, nil
}

func isMirror(pod object.Value) bool {
	_, ok := pod.At("metadata", "annotations").Get(corev1.MirrorPodAnnotationKey)
	return ok
}

func (p *serviceAccounts) admit(ctx context.Context, a *engine.Attributes) error {
	if a.Operation != engine.OperationCreate || !about(a, "", "pods", "") {
		return nil
	}
	if isMirror(a.Object) {
		return p.validate(ctx, a)
	}
	spec := a.Object.At("spec")
	name := spec.At("serviceAccountName").Str()
	if name == "" {
		name = defaultAccount
		text := object.StringOf(name)
		spec = spec.Edit([]object.Member{{Key: "serviceAccountName", Value: text}, {Key: "serviceAccount", Value: text}})
	}
	account, err := p.account(ctx, a, name)
	if err != nil {
		return err
	}
	if mountsToken(account, spec) {
		spec = withToken(spec)
	}
	if secrets := account.At("imagePullSecrets"); secrets.Len() > 0 && spec.At("imagePullSecrets").Len() == 0 {
		spec = spec.With("imagePullSecrets", secrets)
	}
	a.Object = a.Object.With("spec", spec)
	return p.limit(a, account)
}

// mountsToken says whether the Pod, or else its account, wants the token as a volume.
func mountsToken(account, spec object.Value) bool {
	for _, v := range []object.Value{spec, account} {
		if mount := v.At("automountServiceAccountToken"); !mount.IsNull() {
			return mount.Bool()
		}
	}
	return true
}

// withToken mounts the token in all containers of a Pod that have nothing at its path.
func withToken(spec object.Value) object.Value {
	name := ""
	for _, v := range spec.At("volumes").Items() {
		if strings.HasPrefix(v.At("name").Str(), tokenVolume) {
			name = v.At("name").Str()
			break
		}
	}
	found := name != ""
	if !found {
		name = tokenVolume + rand.String(5)
	}
	mount := object.Fields("name", object.StringOf(name), "readOnly", object.BoolOf(true),
		"mountPath", object.StringOf(tokenPath))
	added := false
	for _, list := range []string{"initContainers", "containers"} {
		spec = editItems(spec, func(c object.Value) object.Value {
			mounts := c.At("volumeMounts").Items()
			if slices.ContainsFunc(mounts, func(m object.Value) bool { return m.At("mountPath").Str() == tokenPath }) {
				return c
			}
			added = true
			return c.With("volumeMounts", object.ListOf(append(mounts[:len(mounts):len(mounts)], mount)...))
		}, list)
	}
	if found || !added {
		return spec
	}
	volumes := spec.At("volumes").Items()
	volumes = append(volumes[:len(volumes):len(volumes)], object.Fields("name", object.StringOf(name),
		"projected", tokenSource))
	return spec.With("volumes", object.ListOf(volumes...))
}

// tokenSource is the volume: the token, the authority by which the API server is verified, and the namespace.
var tokenSource = object.Fields(
	"defaultMode", object.IntOf(int64(corev1.ProjectedVolumeSourceDefaultMode)),
	"sources", object.ListOf(
		object.Fields("serviceAccountToken", object.Fields("path", object.StringOf("token"),
			"expirationSeconds", object.IntOf(tokenSeconds))),
		object.Fields("configMap", object.Fields("name", object.StringOf("kube-root-ca.crt"),
			"items", object.ListOf(object.Fields("key", object.StringOf("ca.crt"), "path", object.StringOf("ca.crt"))))),
		object.Fields("downwardAPI", object.Fields("items", object.ListOf(object.Fields(
			"path", object.StringOf("namespace"),
			"fieldRef", object.Fields("apiVersion", object.StringOf("v1"),
				"fieldPath", object.StringOf("metadata.namespace")))))),
	))

func (p *serviceAccounts) validate(ctx context.Context, a *engine.Attributes) error {
	switch {
	case a.Operation == engine.OperationUpdate && about(a, "", "pods", "ephemeralcontainers"):
	case a.Operation == engine.OperationCreate && about(a, "", "pods", ""):
		if isMirror(a.Object) {
			return validateMirror(a)
		}
	default:
		return nil
	}
	name := a.Object.At("spec", "serviceAccountName").Str()
	if name == "" {
		return forbidden(a, fmt.Sprintf("no service account specified for pod %s/%s", a.Request.Namespace,
			a.Object.At("metadata", "name").Str()))
	}
	account, err := p.account(ctx, a, name)
	if err != nil {
		return err
	}
	return p.limit(a, account)
}

// validateMirror refuses a mirror Pod that uses anything of the API: the kubelet runs it from a file.
func validateMirror(a *engine.Attributes) error {
	switch {
	case a.Object.At("spec", "serviceAccountName").Str() != "":
		return forbidden(a, "a mirror pod may not reference service accounts")
	case len(authz.PodSecrets(a.Object)) > 0:
		return forbidden(a, "a mirror pod may not reference secrets")
	}
	for _, v := range a.Object.At("spec", "volumes").Items() {
		for _, source := range v.At("projected", "sources").Items() {
			if !source.At("serviceAccountToken").IsNull() {
				return forbidden(a, "a mirror pod may not use ServiceAccountToken volume projections")
			}
		}
	}
	return nil
}

// account returns the ServiceAccount of a Pod, and waits for the one with the name default.
func (p *serviceAccounts) account(ctx context.Context, a *engine.Attributes, name string) (object.Value, error) {
	kind := kindOf{"", "v1", "serviceaccounts"}
	account, err := p.objects.get(ctx, kind, a.Request.Namespace, name)
	if err == nil && account.IsNull() && name == defaultAccount {
		account, err = p.objects.await(ctx, kind, a.Request.Namespace, name, accountWait)
	}
	if err == nil && account.IsNull() {
		err = apierr.NewNotFound(apierr.Type{Name: "serviceaccount"}, name)
	}
	if err != nil {
		return object.Nil, forbidden(a, fmt.Sprintf("error looking up service account %s/%s: %v", a.Request.Namespace, name,
			err))
	}
	return account, nil
}

// limit refuses secrets that the account does not list, if the account demands that.
func (p *serviceAccounts) limit(a *engine.Attributes, account object.Value) error {
	text := account.At("metadata", "annotations", enforceSecrets).Str()
	if enforce, err := strconv.ParseBool(text); err != nil || !enforce {
		return nil
	}
	l := secretLimit{account: account.At("metadata", "name").Str(), mountable: account.At("secrets")}
	if a.Operation == engine.OperationUpdate {
		if why := l.containers(a.Object, "ephemeralContainers", "ephemeral container"); why != "" {
			return unknown(why)
		}
		return nil
	}
	if why := l.pod(a.Object, account.At("imagePullSecrets")); why != "" {
		return forbidden(a, why)
	}
	return nil
}

// secretLimit are the secrets that the Pods of an account may mount.
type secretLimit struct {
	account   string
	mountable object.Value
}

func names(list object.Value, name string) bool {
	return slices.ContainsFunc(list.Items(), func(v object.Value) bool { return v.At("name").Str() == name })
}

// pod says why a Pod may not use its secrets; "": it may.
func (l *secretLimit) pod(pod, pull object.Value) string {
	spec := pod.At("spec")
	for _, v := range spec.At("volumes").Items() {
		if secret := v.At("secret"); !secret.IsNull() && !names(l.mountable, secret.At("secretName").Str()) {
			return fmt.Sprintf("volume with secret.secretName=%q is not allowed because service account %s does not "+
				"reference that secret", secret.At("secretName").Str(), l.account)
		}
	}
	if why := l.containers(pod, "initContainers", "init container"); why != "" {
		return why
	}
	if why := l.containers(pod, "containers", "container"); why != "" {
		return why
	}
	for i, s := range spec.At("imagePullSecrets").Items() {
		if name := s.At("name").Str(); !names(pull, name) {
			return fmt.Sprintf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference "+
				"that imagePullSecret", i, name, l.account)
		}
	}
	return ""
}

// containers says why the containers of a list may not use their secrets; "": they may.
func (l *secretLimit) containers(pod object.Value, list, what string) string {
	for _, c := range pod.At("spec", list).Items() {
		for _, env := range c.At("env").Items() {
			if ref := env.At("valueFrom", "secretKeyRef"); !ref.IsNull() && !names(l.mountable, ref.At("name").Str()) {
				return fmt.Sprintf("%s %s with envVar %s referencing secret.secretName=%q is not allowed because service "+
					"account %s does not reference that secret", what, c.At("name").Str(), env.At("name").Str(),
					ref.At("name").Str(), l.account)
			}
		}
		for _, from := range c.At("envFrom").Items() {
			if ref := from.At("secretRef"); !ref.IsNull() && !names(l.mountable, ref.At("name").Str()) {
				return fmt.Sprintf("%s %s with envFrom referencing secret.secretName=%q is not allowed because service "+
					"account %s does not reference that secret", what, c.At("name").Str(), ref.At("name").Str(), l.account)
			}
		}
	}
	return ""
}
