package controller

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// manager is the field manager of those controllers that have no specific one in the reference.
const manager = "kube-controller-manager"

// ServiceAccounts creates the ServiceAccount "default" in every namespace.
type ServiceAccounts struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
}

// Start begins its loops.
func (c *ServiceAccounts) Start(g *steps.Group) {
	types := c.Registry.Builtin()
	namespaces, accounts := types.Find("", "v1", "namespaces"), types.Find("", "v1", "serviceaccounts")
	user := access.ControllerAccount("service-account-controller")
	(&follower{
		engine: c.Engine, logger: c.Logger, name: "serviceaccount-controller", types: []*engine.Resource{namespaces,
			accounts},
		sync: func(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			namespace := o.Key.Name
			if of == accounts {
				var name string
				if namespace, name, _ = strings.Cut(o.Key.Name, "/"); !gone || name != "default" {
					return 0, nil
				}
			} else if gone || o.Sidecar.Deleting {
				return 0, nil
			}
			return 0, ensure(ctx, c.Engine, &engine.Request{
				Resource: accounts, Namespace: namespace, Name: "default", User: user, FieldManager: manager,
			}, object.Nil, nil)
		},
	}).start(g)
}

// ensure creates an object with this content if it does not exist. If it exists, it is updated to the result of
// renew, unless that is the same; a nil renew leaves it. No object is created in a namespace that does not exist or is
// being deleted.
func ensure(ctx context.Context, e *engine.Engine, rq *engine.Request, content object.Value,
	renew func(object.Value) object.Value) error {
	live, err := e.Get(ctx, rq, "")
	switch {
	case apierr.Is(err, apierr.NotFound):
		create := *rq
		create.Name = ""
		meta := content.At("metadata").With("name", object.StringOf(rq.Name))
		_, err := e.Create(ctx, &create, object.Parsed{Value: content.With("metadata", meta)})
		if apierr.Is(err, apierr.AlreadyExists) || apierr.Is(err, apierr.NotFound) || terminating(err) {
			return nil
		}
		return err
	case err != nil || renew == nil:
		return err
	}
	obj, err := engine.ObjectOf(live.Object)
	if err != nil {
		return err
	}
	next := renew(obj)
	if object.Equal(next, obj) {
		return nil
	}
	_, err = e.Update(ctx, rq, object.Parsed{Value: withRevision(next, live.Object)})
	return err
}

// terminating says whether an object could not be created because its namespace is being deleted.
func terminating(err error) bool {
	var wire *apierr.Error
	return errors.As(err, &wire) && wire.Details != nil &&
		slices.ContainsFunc(wire.Details.Causes,
			func(c apierr.Cause) bool { return c.Reason == "NamespaceTerminating" })
}

// RootCA publishes in every namespace the certificate authority with which clients verify this server.
type RootCA struct {
	Engine      *engine.Engine
	Registry    *engine.Registry
	Logger      *slog.Logger
	Certificate []byte // as PEM
}

// The ConfigMap of RootCA.
const (
	rootConfigMap     = "kube-root-ca.crt"
	rootAnnotation    = "kubernetes.io/description"
	rootAnnotationSay = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the " +
		"internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)

// Start begins its loops.
func (c *RootCA) Start(g *steps.Group) {
	types := c.Registry.Builtin()
	namespaces, maps := types.Find("", "v1", "namespaces"), types.Find("", "v1", "configmaps")
	user := access.ControllerAccount("root-ca-cert-publisher")
	data := object.Fields("ca.crt", object.StringOf(string(c.Certificate)))
	note := object.StringOf(rootAnnotationSay)
	content := object.Fields("metadata", object.Fields("annotations", object.Fields(rootAnnotation, note)), "data",
		data)
	renew := func(obj object.Value) object.Value {
		if object.Equal(obj.At("data"), data) && obj.At("metadata", "annotations", rootAnnotation).Str() != "" {
			return obj
		}
		return obj.With("data", data).WithAt(note, "metadata", "annotations", rootAnnotation)
	}
	(&follower{
		engine: c.Engine, logger: c.Logger, name: "root-ca-certificate-publisher-controller",
		types: []*engine.Resource{namespaces, maps},
		sync: func(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			namespace := o.Key.Name
			if of == maps {
				var name string
				if namespace, name, _ = strings.Cut(o.Key.Name, "/"); name != rootConfigMap {
					return 0, nil
				}
			} else if gone || o.Sidecar.Deleting {
				return 0, nil
			}
			return 0, ensure(ctx, c.Engine, &engine.Request{
				Resource: maps, Namespace: namespace, Name: rootConfigMap, User: user, FieldManager: manager,
			}, content, renew)
		},
	}).start(g)
}

// AccountTokens fills in Secrets for tokens of ServiceAccounts, and deletes them with their ServiceAccount.
type AccountTokens struct {
	Engine      *engine.Engine
	Registry    *engine.Registry
	Logger      *slog.Logger
	Certificate []byte // of the authority with which clients verify this server, as PEM
	// Token returns the token for a Secret.
	Token func(namespace, account, uid, secret string) (string, error)

	secrets, accounts *engine.Resource
	user              access.User
}

// The type of such Secrets, and the annotations that name their ServiceAccount.
const (
	tokenType         = "kubernetes.io/service-account-token"
	accountAnnotation = "kubernetes.io/service-account.name"
	uidAnnotation     = "kubernetes.io/service-account.uid"
)

// Start begins its loops.
func (c *AccountTokens) Start(g *steps.Group) {
	types := c.Registry.Builtin()
	c.secrets, c.accounts = types.Find("", "v1", "secrets"), types.Find("", "v1", "serviceaccounts")
	c.user = access.User{Name: "system:kube-controller-manager", Groups: []string{access.Authenticated}}
	(&follower{
		engine: c.Engine, logger: c.Logger, name: "serviceaccount-token-controller",
		types: []*engine.Resource{c.secrets, c.accounts},
		sync: func(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			switch {
			case of == c.secrets && isTokenSecret(o):
				return 0, c.syncSecret(ctx, o, gone)
			case of == c.accounts && gone:
				return 0, c.deleteOf(ctx, o)
			}
			return 0, nil
		},
	}).start(g)
}

func isTokenSecret(o *engine.Object) bool {
	for _, f := range o.Sidecar.Fields {
		if f.Name == "type" {
			return f.Value == tokenType
		}
	}
	return false
}

// syncSecret completes a Secret, or deletes it if its ServiceAccount is gone. If the Secret is gone, it removes it
// from the list of its ServiceAccount.
func (c *AccountTokens) syncSecret(ctx context.Context, o *engine.Object, gone bool) error {
	obj, err := parsed(o)
	if err != nil {
		return nil // it cannot be decoded
	}
	namespace, name, _ := strings.Cut(o.Key.Name, "/")
	account := obj.At("metadata", "annotations", accountAnnotation).Str()
	uid := obj.At("metadata", "annotations", uidAnnotation).Str()
	if account == "" {
		return nil
	}
	rq := &engine.Request{Resource: c.accounts, Namespace: namespace, Name: account, User: c.user,
		FieldManager: manager}
	live, err := c.Engine.Get(ctx, rq, "")
	switch {
	case err != nil && !apierr.Is(err, apierr.NotFound):
		return err
	case err == nil && (uid == "" || uid == live.Object.Sidecar.UID):
		if gone {
			return c.forget(ctx, rq, live.Object, name)
		}
		return c.fill(ctx, o, obj, live.Object)
	case gone:
		return nil
	}
	return c.delete(ctx, o)
}

// fill completes a Secret. If it has changed meanwhile, it is synced again.
func (c *AccountTokens) fill(ctx context.Context, o *engine.Object, obj object.Value, account *engine.Object) error {
	namespace, name, _ := strings.Cut(o.Key.Name, "/")
	_, owner, _ := strings.Cut(account.Key.Name, "/")
	data := obj.At("data")
	var missing []object.Member
	add := func(key string, value []byte) {
		missing = append(missing, object.Member{Key: key,
			Value: object.StringOf(base64.StdEncoding.EncodeToString(value))})
	}
	if have, err := base64.StdEncoding.DecodeString(data.At("ca.crt").Str()); len(c.Certificate) > 0 &&
		(err != nil || !bytes.Equal(have, c.Certificate)) {
		add("ca.crt", c.Certificate)
	}
	if data.At("namespace").Str() == "" {
		add("namespace", []byte(namespace))
	}
	if data.At("token").Str() == "" {
		token, err := c.Token(namespace, owner, account.Sidecar.UID, name)
		if err != nil {
			return err
		}
		add("token", []byte(token))
	}
	if len(missing) == 0 {
		return nil
	}
	obj = obj.With("data", data.Edit(missing)).
		WithAt(object.StringOf(owner), "metadata", "annotations", accountAnnotation).
		WithAt(object.StringOf(account.Sidecar.UID), "metadata", "annotations", uidAnnotation)
	rq := &engine.Request{Resource: c.secrets, Namespace: namespace, Name: name, User: c.user, FieldManager: manager}
	return unlessChanged(c.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(obj, o)}))
}

// unlessChanged returns err unless it is a conflict, or the object is gone: the change of another client arrives as an
// event.
func unlessChanged(_ *engine.Result, err error) error {
	if apierr.Is(err, apierr.Conflict) || apierr.Is(err, apierr.NotFound) {
		return nil
	}
	return err
}

// delete deletes a Secret, unless another one has its name by now.
func (c *AccountTokens) delete(ctx context.Context, o *engine.Object) error {
	namespace, name, _ := strings.Cut(o.Key.Name, "/")
	rq := &engine.Request{Resource: c.secrets, Namespace: namespace, Name: name, User: c.user}
	return unlessChanged(c.Engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: o.Sidecar.UID}))
}

// deleteOf deletes the Secrets of a ServiceAccount.
func (c *AccountTokens) deleteOf(ctx context.Context, account *engine.Object) error {
	namespace, name, _ := strings.Cut(account.Key.Name, "/")
	list, err := c.Engine.List(ctx, &engine.Request{Resource: c.secrets, Namespace: namespace, User: c.user},
		engine.ListOptions{})
	if err != nil {
		return err
	}
	var failed []error
	for o := range list.Items {
		if !isTokenSecret(o) {
			continue
		}
		obj, err := parsed(o)
		if err != nil {
			continue
		}
		annotations := obj.At("metadata", "annotations")
		if uid := annotations.At(uidAnnotation).Str(); annotations.At(accountAnnotation).Str() == name &&
			(uid == "" || uid == account.Sidecar.UID) {
			failed = append(failed, c.delete(ctx, o))
		}
	}
	return errors.Join(append(failed, list.Err())...)
}

// forget removes a Secret from the list of its ServiceAccount.
func (c *AccountTokens) forget(ctx context.Context, rq *engine.Request, account *engine.Object, secret string) error {
	obj, err := parsed(account)
	if err != nil {
		return nil
	}
	var left []object.Value
	for _, s := range obj.At("secrets").Items() {
		if s.At("name").Str() != secret {
			left = append(left, s)
		}
	}
	if len(left) == obj.At("secrets").Len() {
		return nil
	}
	if obj = obj.Without("secrets"); len(left) > 0 {
		obj = obj.With("secrets", object.ListOf(left...))
	}
	_, err = c.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(obj, account)})
	if apierr.Is(err, apierr.NotFound) {
		return nil
	}
	return err
}
