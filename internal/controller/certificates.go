package controller

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// The signer names that Kubernetes defines.
const (
	clientSigner        = "kubernetes.io/kube-apiserver-client"
	kubeletClientSigner = "kubernetes.io/kube-apiserver-client-kubelet"
	kubeletSigner       = "kubernetes.io/kubelet-serving"
	unknownSigner       = "kubernetes.io/legacy-unknown"
)

// Certificates is the three controllers of CertificateSigningRequests, which Sign, Approve and Clean begin.
type Certificates struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
	// Authority and PrivateKey sign certificates. Life is the validity of a certificate whose request does not specify
	// one, and the longest that a request can get.
	Authority  *x509.Certificate
	PrivateKey crypto.Signer
	Life       time.Duration
	// Authorizer decides whose requests for node certificates are approved.
	Authorizer access.Authorizer
}

// signingRequest is a CertificateSigningRequest.
type signingRequest struct {
	*Certificates
	of   *engine.Resource
	live *engine.Object
	obj  object.Value
}

// follow calls sync for every request, and again when one changes.
func (c *Certificates) follow(g *steps.Group, name string,
	look func(context.Context, *signingRequest) (time.Duration, error)) {
	if c.Now == nil {
		c.Now = time.Now
	}
	of := c.Registry.Builtin().Find("certificates.k8s.io", "v1", "certificatesigningrequests")
	(&follower{
		engine: c.Engine, logger: c.Logger, name: name, types: []*engine.Resource{of},
		sync: func(ctx context.Context, of *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			obj, err := parsed(o)
			if gone || err != nil { // it cannot be decoded
				return 0, nil
			}
			return look(ctx, &signingRequest{c, of, o, obj})
		},
	}).start(g)
}

// Sign begins to sign approved requests.
func (c *Certificates) Sign(g *steps.Group) {
	c.follow(g, "certificatesigningrequest-signing-controller",
		func(ctx context.Context, r *signingRequest) (time.Duration, error) {
			return 0, r.sign(ctx)
		})
}

// Approve begins to approve the requests that nodes are authorized to make.
func (c *Certificates) Approve(g *steps.Group) {
	c.follow(g, "certificatesigningrequest-approving-controller",
		func(ctx context.Context, r *signingRequest) (time.Duration, error) {
			return 0, r.approve(ctx)
		})
}

// Clean begins to delete old requests.
func (c *Certificates) Clean(g *steps.Group) {
	c.follow(g, "certificatesigningrequest-cleaner-controller",
		func(ctx context.Context, r *signingRequest) (time.Duration, error) {
			return r.clean(ctx)
		})
}

// is says whether the request has a condition whose status is not False, and when that was last updated.
func (r *signingRequest) is(condition string) (at time.Time, ok bool) {
	for _, c := range r.obj.At("status", "conditions").Items() {
		if c.At("type").Str() == condition && c.At("status").Str() != "False" {
			at, _ = time.Parse(time.RFC3339, c.At("lastUpdateTime").Str())
			return at, true
		}
	}
	return at, false
}

func (r *signingRequest) issued() bool { return r.obj.At("status", "certificate").Str() != "" }

// parse decodes the PKCS #10 request in spec.request.
func (r *signingRequest) parse() (*x509.CertificateRequest, error) {
	text, err := base64.StdEncoding.DecodeString(r.obj.At("spec", "request").Str())
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

func (r *signingRequest) usages() []string {
	var usages []string
	for _, u := range r.obj.At("spec", "usages").Items() {
		usages = append(usages, u.Str())
	}
	return usages
}

// write updates the request through one of its subresources.
func (r *signingRequest) write(ctx context.Context, subresource string, obj object.Value) error {
	rq := &engine.Request{
		Resource: r.of, Subresource: r.of.Subresource(subresource), Name: r.live.Key.Name,
		User: access.ControllerAccount("certificate-controller"), FieldManager: manager,
	}
	return unlessChanged(r.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(obj, r.live)}))
}

func (r *signingRequest) withCondition(condition object.Value) object.Value {
	conditions := slices.Concat(r.obj.At("status", "conditions").Items(), []object.Value{condition})
	return r.obj.WithAt(object.ListOf(conditions...), "status", "conditions")
}

// sign signs the request if it is approved and names one of our signers.
func (r *signingRequest) sign(ctx context.Context) error {
	signer := r.obj.At("spec", "signerName").Str()
	_, approved := r.is("Approved")
	_, denied := r.is("Denied")
	_, failed := r.is("Failed")
	if !approved || denied || failed || r.issued() ||
		!slices.Contains([]string{clientSigner, kubeletClientSigner, kubeletSigner, unknownSigner}, signer) {
		return nil
	}
	request, err := r.parse()
	if err != nil {
		return fmt.Errorf("unable to parse csr %q: %w", r.live.Key.Name, err)
	}
	if err := fitsSigner(signer, request, r.usages()); err != nil {
		return r.write(ctx, "status", r.withCondition(object.Fields(
			"type", object.StringOf("Failed"), "status", object.StringOf("True"),
			"reason", object.StringOf("SignerValidationFailure"),
			"message", object.StringOf(err.Error()),
			"lastUpdateTime", object.StringOf(r.Now().UTC().Format(time.RFC3339)))))
	}
	der, err := r.certificate(request)
	if err != nil {
		return fmt.Errorf("error auto signing csr: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return r.write(ctx, "status", r.obj.WithAt(object.StringOf(base64.StdEncoding.EncodeToString(text)), "status",
		"certificate"))
}

// Certificates are valid from a little before they are made, for clients whose clock is slow. A validity shorter than
// shortLife counts from now; any other one counts from NotBefore.
const (
	backdate  = 5 * time.Minute
	shortLife = 8 * time.Hour
	minLife   = 10 * time.Minute
)

// certificate makes the requested certificate. It takes subject, names and usages from the request, and no
// extensions.
func (r *signingRequest) certificate(request *x509.CertificateRequest) ([]byte, error) {
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("unable to verify certificate request signature: %w", err)
	}
	life := r.Life
	if asked := r.obj.At("spec", "expirationSeconds"); !asked.IsNull() {
		life = min(life, max(minLife, time.Duration(asked.Int())*time.Second))
	}
	now := r.Now()
	ends := now.Add(life)
	if life >= shortLife {
		ends = ends.Add(-backdate)
	}
	if last := r.Authority.NotAfter; !ends.Before(last) {
		ends = last
	}
	if !now.Before(r.Authority.NotAfter) {
		return nil, fmt.Errorf("the signer has expired: NotAfter=%v", r.Authority.NotAfter)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		EmailAddresses: request.EmailAddresses, URIs: request.URIs, BasicConstraintsValid: true,
		NotBefore: now.Add(-backdate), NotAfter: ends,
	}
	for _, usage := range r.usages() {
		if key, ok := keyUsages[usage]; ok {
			template.KeyUsage |= key
		} else if extended, ok := extendedUsages[usage]; ok {
			if !slices.Contains(template.ExtKeyUsage, extended) {
				template.ExtKeyUsage = append(template.ExtKeyUsage, extended)
			}
		} else {
			return nil, fmt.Errorf("unrecognized usage values: %q", []string{usage})
		}
	}
	slices.Sort(template.ExtKeyUsage)
	return x509.CreateCertificate(rand.Reader, template, r.Authority, request.PublicKey, r.PrivateKey)
}

var keyUsages = map[string]x509.KeyUsage{
	"signing": x509.KeyUsageDigitalSignature, "digital signature": x509.KeyUsageDigitalSignature,
	"content commitment": x509.KeyUsageContentCommitment, "key encipherment": x509.KeyUsageKeyEncipherment,
	"key agreement": x509.KeyUsageKeyAgreement, "data encipherment": x509.KeyUsageDataEncipherment,
	"cert sign": x509.KeyUsageCertSign, "crl sign": x509.KeyUsageCRLSign,
	"encipher only": x509.KeyUsageEncipherOnly, "decipher only": x509.KeyUsageDecipherOnly,
}

var extendedUsages = map[string]x509.ExtKeyUsage{
	"any": x509.ExtKeyUsageAny, "server auth": x509.ExtKeyUsageServerAuth, "client auth": x509.ExtKeyUsageClientAuth,
	"code signing": x509.ExtKeyUsageCodeSigning, "email protection": x509.ExtKeyUsageEmailProtection,
	"s/mime": x509.ExtKeyUsageEmailProtection, "ipsec end system": x509.ExtKeyUsageIPSECEndSystem,
	"ipsec tunnel": x509.ExtKeyUsageIPSECTunnel, "ipsec user": x509.ExtKeyUsageIPSECUser,
	"timestamping": x509.ExtKeyUsageTimeStamping, "ocsp signing": x509.ExtKeyUsageOCSPSigning,
	"microsoft sgc": x509.ExtKeyUsageMicrosoftServerGatedCrypto,
	"netscape sgc":  x509.ExtKeyUsageNetscapeServerGatedCrypto,
}

// fitsSigner returns why a signer does not sign a request; nil if it does.
func fitsSigner(signer string, request *x509.CertificateRequest, usages []string) error {
	switch signer {
	case clientSigner:
		for _, u := range usages {
			if u != "client auth" && u != "digital signature" && u != "key encipherment" {
				return fmt.Errorf("invalid usage for client certificate: %s", u)
			}
		}
		if !slices.Contains(usages, "client auth") {
			return errors.New("missing required usage for client certificate: client auth")
		}
	case kubeletClientSigner, kubeletSigner:
		return ofKubelet(request, usages, signer == kubeletSigner)
	}
	return nil
}

// ofKubelet returns why a request is not that of a kubelet for its client certificate, or its serving certificate;
// nil if it is.
func ofKubelet(request *x509.CertificateRequest, usages []string, serves bool) error {
	usage := "client auth"
	if serves {
		usage = "server auth"
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(usages)))
	long := []string{usage, "digital signature", "key encipherment"}
	slices.Sort(long)
	short := []string{usage, "digital signature"}
	slices.Sort(short)
	switch {
	case !slices.Equal(request.Subject.Organization, []string{"system:nodes"}):
		return errors.New("subject organization is not system:nodes")
	case serves && len(request.DNSNames)+len(request.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case !serves && len(request.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(request.EmailAddresses) > 0:
		//lint:ignore ST1005 the reference's words
		return errors.New("Email subjectAltNames are not allowed")
	case !serves && len(request.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(request.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !slices.Equal(sorted, long) && !slices.Equal(sorted, short):
		return fmt.Errorf("usages did not match %v", long)
	case !strings.HasPrefix(request.Subject.CommonName, "system:node:"):
		//lint:ignore ST1005 the reference's words
		return errors.New("subject common name does not begin with system:node:")
	}
	return nil
}

// approve approves the request for the client certificate of a node, if its user may make such requests: a node for
// itself (selfnodeclient), or any user for a node (nodeclient).
func (r *signingRequest) approve(ctx context.Context) error {
	_, approved := r.is("Approved")
	_, denied := r.is("Denied")
	if approved || denied || r.issued() || r.obj.At("spec", "signerName").Str() != kubeletClientSigner {
		return nil
	}
	request, err := r.parse()
	if err != nil {
		return fmt.Errorf("unable to parse csr %q: %w", r.live.Key.Name, err)
	}
	if ofKubelet(request, r.usages(), false) != nil {
		return nil
	}
	spec := r.obj.At("spec")
	by := access.User{Name: spec.At("username").Str(), UID: spec.At("uid").Str()}
	for _, g := range spec.At("groups").Items() {
		by.Groups = append(by.Groups, g.Str())
	}
	for _, m := range spec.At("extra").Members() {
		if by.Extra == nil {
			by.Extra = map[string][]string{}
		}
		for _, v := range m.Value.Items() {
			by.Extra[m.Key] = append(by.Extra[m.Key], v.Str())
		}
	}
	for _, way := range []struct{ subresource, says string }{
		{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."},
		{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."},
	} {
		if way.subresource == "selfnodeclient" && by.Name != request.Subject.CommonName {
			continue
		}
		decision, _, err := r.Authorizer.Authorize(ctx, &access.Attributes{
			User: by, Verb: "create", IsResource: true, Group: "certificates.k8s.io", Version: "*",
			Resource: "certificatesigningrequests", Subresource: way.subresource,
		})
		switch {
		case decision == access.Allow:
			return r.write(ctx, "approval",
				r.withCondition(object.Fields("type", object.StringOf("Approved"), "status", object.StringOf("True"),
					"reason", object.StringOf("AutoApproved"), "message", object.StringOf(way.says))))
		case err != nil:
			return err
		}
	}
	return nil
}

// How long requests are kept: decided ones, and ones that are pending, or approved and not signed.
const (
	decidedLife = time.Hour
	pendingLife = 24 * time.Hour
)

// clean deletes the request when its time is over; before that it returns how long to wait until then.
func (r *signingRequest) clean(ctx context.Context) (time.Duration, error) {
	var ends time.Time
	until := func(at time.Time, life time.Duration) {
		if end := at.Add(life); !at.IsZero() && (ends.IsZero() || end.Before(ends)) {
			ends = end
		}
	}
	for _, c := range r.obj.At("status", "conditions").Items() {
		at, _ := time.Parse(time.RFC3339, c.At("lastUpdateTime").Str())
		switch typ := c.At("type").Str(); {
		case typ == "Denied", typ == "Failed", typ == "Approved" && r.issued():
			until(at, decidedLife)
		case typ == "Approved":
			until(at, pendingLife)
		}
	}
	if r.obj.At("status", "conditions").Len() == 0 {
		at, _ := time.Parse(time.RFC3339, r.obj.At("metadata", "creationTimestamp").Str())
		until(at, pendingLife)
	}
	if text, err := base64.StdEncoding.DecodeString(r.obj.At("status", "certificate").Str()); err == nil &&
		r.issued() {
		if block, _ := pem.Decode(text); block != nil {
			if c, err := x509.ParseCertificate(block.Bytes); err == nil {
				until(c.NotAfter, 0)
			}
		}
	}
	left := ends.Sub(r.Now())
	switch {
	case ends.IsZero():
		return 0, nil
	case left > 0:
		return left, nil
	}
	rq := &engine.Request{Resource: r.of, Name: r.live.Key.Name, User: access.ControllerAccount("certificate-controller")}
	return 0, unlessChanged(r.Engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: r.live.Sidecar.UID}))
}
