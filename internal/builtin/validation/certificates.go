package validation

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// This file has the rules of certificates.k8s.io.

var (
	keyUsages = []string{"any", "cert sign", "client auth", "code signing", "content commitment", "crl sign",
		"data encipherment",
		"decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
		"ipsec user",
		"key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth",
		"signing", "timestamping"}
	verdicts       = []string{"Approved", "Denied", "Failed"}
	onlyTrue       = []string{"True"}
	pemCertificate = "CERTIFICATE"
)

const (
	legacySigner       = "kubernetes.io/legacy-unknown"
	minCertificateLife = 600
	maxTrustBundle     = 1 << 20
	maxUIDLength       = 128
	maxRequestBytes    = 10 << 10
	maxChainBytes      = 100 << 10
	refreshMargin      = 10 * time.Minute
	clockSkew          = 5 * time.Minute
	minRequestLife     = 60 * 60
	maxRequestLife     = 91 * 24 * 60 * 60
	maxKubernetesLife  = 24 * 60 * 60
	omitted            = "<value omitted>"
	badStubRequest     = "must be a valid PKCS#10 CSR"
	badPKIXKey         = "must be a valid PKIX-serialized public key"
	badPKIXCurve       = "elliptic public keys must use curve P256 or P384"
	badCurve           = "elliptic public keys must use curve P256, P384, or P521"
	badModulus         = "RSA keys must have modulus size 3072 or 4096"
	unknownKey         = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
	noStubRequest      = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
	approvedShown      = `conditions[{"type": "Approved"}]`
	deniedShown        = `conditions[{"type": "Denied"}]`
	bothVerdictsShown  = "{" + approvedShown + ", " + deniedShown + "}"
)

// decodedBytes is the decoded content of a binary member.
func decodedBytes(v object.Value) []byte {
	content, _ := base64.StdEncoding.DecodeString(v.Str()) // decoding the request has checked it
	return content
}

// tolerated has the errors that a request for a certificate may keep because the stored one has them.
type tolerated struct {
	// signerAndUsages is set for every stored request, as no update changes its spec.
	signerAndUsages                                 bool
	bothVerdicts, sameTypes, noType, anyCertificate bool
}

func toleratedOf(old object.Value) tolerated {
	t := tolerated{signerAndUsages: true}
	var types nameSet
	for _, condition := range old.At("status", "conditions").Items() {
		t.sameTypes = types.add(text(condition, "type")) || t.sameTypes
	}
	t.noType = types.has("")
	t.bothVerdicts = types.has("Approved") && types.has("Denied")
	t.anyCertificate = certificateFault(decodedBytes(old.At("status", "certificate"))) != nil
	return t
}

func signingRequestCreate(f *errorList, obj object.Value) { f.signingRequest(obj, tolerated{}) }

func signingRequestUpdate(f *errorList, obj, old object.Value) {
	f.signingRequest(obj, toleratedOf(old))
}

func signingRequestStatus(f *errorList, obj, old object.Value) {
	f.signingRequest(obj, toleratedOf(old))
	f.verdictsKept(obj, old)
	f.verdictsNotAdded(obj, old)
	f.certificateKept(obj, old)
}

func signingRequestApproval(f *errorList, obj, old object.Value) {
	f.signingRequest(obj, toleratedOf(old))
	f.verdictsKept(obj, old)
}

func (f *errorList) signingRequest(obj object.Value, t tolerated) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	if err := signingRequestFault(decodedBytes(spec.At("request"))); err != nil {
		f.Invalid(p.To("request"), fielderrors.Show(spec.At("request")), err.Error())
	}
	usages := spec.At("usages")
	if usages.Len() == 0 {
		f.Required(p.To("usages"), "")
	}
	var met nameSet
	for i, item := range usages.Items() {
		if t.signerAndUsages {
			break
		}
		f.only(p.To("usages").Item(i), item.Str(), keyUsages)
		if met.add(item.Str()) {
			f.Duplicate(p.To("usages").Item(i), fielderrors.Word(item.Str()))
		}
	}
	signer := text(spec, "signerName")
	if signer == legacySigner && !t.signerAndUsages {
		f.Invalid(p.To("signerName"), signer, "the legacy signerName is not allowed via this API version")
	} else {
		f.signerName(p.To("signerName"), signer)
	}
	if seconds := spec.At("expirationSeconds"); !seconds.IsNull() && seconds.Int() < minCertificateLife {
		f.Invalid(p.To("expirationSeconds"), seconds.Int(),
			"may not specify a duration less than 600 seconds (10 minutes)")
	}
	p = (*fielderrors.Location)(nil).To("status")
	f.requestConditions(obj.At("status", "conditions"), t, p.To("conditions"))
	if !t.anyCertificate {
		if err := certificateFault(decodedBytes(obj.At("status", "certificate"))); err != nil {
			f.Invalid(p.To("certificate"), "<certificate data>", err.Error())
		}
	}
}

// SigningRequest reads a request for a certificate in PEM.
func SigningRequest(content []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// signingRequestFault returns the error in a request in PEM.
func signingRequestFault(content []byte) error {
	request, err := SigningRequest(content)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// certificateFault returns the error in certificates in PEM; an empty text is valid.
func certificateFault(content []byte) error {
	if len(content) == 0 {
		return nil
	}
	n := 0
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		n++
		switch {
		case block.Type != pemCertificate:
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		case len(block.Headers) != 0:
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	if n == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

func (f *errorList) requestConditions(conditions object.Value, t tolerated, p *fielderrors.Location) {
	var types nameSet
	for i, condition := range conditions.Items() {
		p := p.Item(i)
		kind := text(condition, "type")
		if kind == "" && !t.noType {
			f.Required(p.To("type"), "")
		}
		statuses := conditionStatuses
		if slices.Contains(verdicts, kind) {
			statuses = onlyTrue
		}
		f.oneOf(p.To("status"), text(condition, "status"), statuses)
		if types.add(kind) && !t.sameTypes {
			f.Duplicate(p.To("type"), fielderrors.Word(kind))
		}
	}
	if types.has("Approved") && types.has("Denied") && !t.bothVerdicts {
		f.Invalid(p, bothVerdictsShown, "must specify at most one of: `"+approvedShown+"`, `"+deniedShown+"`")
	}
}

// ofType are the conditions of a type.
func ofType(conditions object.Value, kind string) []object.Value {
	var of []object.Value
	for _, condition := range conditions.Items() {
		if text(condition, "type") == kind {
			of = append(of, condition)
		}
	}
	return of
}

// verdictsKept demands that no verdict is removed.
func (f *errorList) verdictsKept(obj, old object.Value) {
	for _, kind := range verdicts {
		if verdictCount(obj, kind) < verdictCount(old, kind) {
			f.Forbidden((*fielderrors.Location)(nil).To("status").To("conditions"),
				fmt.Sprintf("updates may not remove a condition of type %q", kind))
		}
	}
}

// verdictsNotAdded demands that a write of the status neither approves nor denies. It cannot modify a verdict either:
// those of the stored request have been put in their place (builtin's keepApproval).
func (f *errorList) verdictsNotAdded(obj, old object.Value) {
	for _, kind := range [...]string{"Approved", "Denied"} {
		if verdictCount(obj, kind) > verdictCount(old, kind) {
			f.Forbidden((*fielderrors.Location)(nil).To("status").To("conditions"),
				fmt.Sprintf("updates may not add a condition of type %q", kind))
		}
	}
}

func verdictCount(obj object.Value, kind string) int {
	return len(ofType(obj.At("status", "conditions"), kind))
}

// certificateKept demands that the certificate is set only once.
func (f *errorList) certificateKept(obj, old object.Value) {
	now, before := obj.At("status", "certificate"), old.At("status", "certificate")
	if before.Len() > 0 && !same(now, before) {
		f.Forbidden((*fielderrors.Location)(nil).To("status").To("certificate"),
			"updates may not modify existing certificate content")
	}
}

func trustBundleCreate(f *errorList, obj object.Value) { f.trustBundle(obj, true) }

func trustBundleUpdate(f *errorList, obj, old object.Value) {
	f.trustBundle(obj, text(obj.At("spec"), "trustBundle") != text(old.At("spec"), "trustBundle"))
	if signer := text(obj.At("spec"), "signerName"); signer != text(old.At("spec"), "signerName") {
		f.Invalid((*fielderrors.Location)(nil).To("spec").To("signerName"), signer, fielderrors.Immutable)
	}
}

func (f *errorList) trustBundle(obj object.Value, parse bool) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	signer := text(spec, "signerName")
	if name := text(obj.At("metadata"), "name"); name != "" {
		f.Each((*fielderrors.Location)(nil).To("metadata").To("name"), name, trustBundleNameErrors(name, signer))
	}
	if signer != "" {
		f.signerName(p.To("signerName"), signer)
	}
	if parse {
		f.trustAnchors(text(spec, "trustBundle"), p.To("trustBundle"))
	}
}

// trustAnchors demands certificates of authorities, each once.
func (f *errorList) trustAnchors(bundle string, p *fielderrors.Location) {
	if len(bundle) > maxTrustBundle {
		f.TooLong(p, maxTrustBundle)
		return
	}
	before := len(f.List)
	at := map[string][]int{}
	i := 0
	for block, rest := pem.Decode([]byte(bundle)); block != nil; block, rest = pem.Decode(rest) {
		if why := trustAnchorFault(block); why != "" {
			f.Invalid(p, omitted, fmt.Sprintf("entry %d %s", i, why))
		} else {
			at[string(block.Bytes)] = append(at[string(block.Bytes)], i)
		}
		i++
	}
	if len(f.List) > before {
		return
	}
	if len(at) == 0 {
		f.Invalid(p, omitted, "at least one trust anchor must be provided")
	}
	for _, indexes := range slices.SortedFunc(maps.Values(at), slices.Compare) {
		if len(indexes) > 1 {
			f.Invalid(p, omitted, fmt.Sprintf("duplicate trust anchor (indices %v)", indexes))
		}
	}
}

func trustAnchorFault(block *pem.Block) string {
	if block.Type != pemCertificate {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) != 0 {
		return "has PEM block headers"
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA: // otherwise, package x509 has found its basic constraints to be valid
		return "does not have the CA bit set"
	}
	return ""
}

func podCertificateCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	signer := text(spec, "signerName")
	f.signerName(p.To("signerName"), signer)
	f.userAnnotations(spec.At("unverifiedUserAnnotations"), p.To("unverifiedUserAnnotations"))
	for _, of := range [...][2]string{{"podName", "podUID"}, {"serviceAccountName", "serviceAccountUID"},
		{"nodeName", "nodeUID"}} {
		name, uid := text(spec, of[0]), text(spec, of[1])
		f.subdomain(p.To(of[0]), name)
		if uid == "" {
			f.Invalid(p.To(of[1]), uid, "must not be empty")
		} else if len(uid) > maxUIDLength {
			f.TooLong(p.To(of[1]), maxUIDLength)
		}
	}
	longest := int64(maxRequestLife)
	if isKubernetesSigner(signer) {
		longest = maxKubernetesLife
	}
	if n := number(spec, "maxExpirationSeconds"); n < minRequestLife || n > longest {
		f.Invalid(p.To("maxExpirationSeconds"), n, fmt.Sprintf("must be in the range [%d, %d]", minRequestLife,
			longest))
	}
	// Only v1beta1 has the two members of the other form.
	stub, key, proof := decodedBytes(spec.At("stubPKCS10Request")), decodedBytes(spec.At("pkixPublicKey")),
		decodedBytes(spec.At("proofOfPossession"))
	switch {
	case len(stub) != 0 && len(key) == 0 && len(proof) == 0:
		f.stubRequest(stub, p.To("stubPKCS10Request"))
	case len(stub) == 0 && len(key) != 0 && len(proof) != 0:
		f.provenKey(key, proof, text(spec, "podUID"), p)
	default:
		f.InvalidAsSuch(p, noStubRequest)
	}
}

// provenKey checks a public key, and that the sender has the private one: proof is its signature of the UID of the Pod.
func (f *errorList) provenKey(encoded, proof []byte, uid string, p *fielderrors.Location) {
	at := p.To("pkixPublicKey")
	for _, of := range [...]struct {
		bytes []byte
		at    *fielderrors.Location
	}{{encoded, at}, {proof, p.To("proofOfPossession")}} {
		if len(of.bytes) > maxRequestBytes {
			f.TooLong(of.at, maxRequestBytes)
			return
		}
	}
	key, err := x509.ParsePKIXPublicKey(encoded)
	if err != nil {
		f.Invalid(at, encoded, badPKIXKey)
		return
	}
	if bad, why := keyFault(key); bad != nil {
		if why == badCurve {
			why = badPKIXCurve
		}
		f.Invalid(at, *bad, why)
		return
	} else if why != "" {
		f.Invalid(at, encoded, why)
		return
	}
	digest := sha256.Sum256([]byte(uid))
	var proven bool
	switch key := key.(type) {
	case ed25519.PublicKey:
		proven = ed25519.Verify(key, []byte(uid), proof)
	case *ecdsa.PublicKey:
		proven = ecdsa.VerifyASN1(key, digest[:], proof)
	case *rsa.PublicKey:
		proven = rsa.VerifyPSS(key, crypto.SHA256, digest[:], proof, nil) == nil
	}
	if !proven {
		f.InvalidAsSuch(p.To("proofOfPossession"), "could not verify proof-of-possession signature")
	}
}

// requestedKey is the public key for which a certificate is requested. A fault is about a member of the spec.
func requestedKey(spec object.Value) (key any, member, fault string) {
	if stub := decodedBytes(spec.At("stubPKCS10Request")); len(stub) != 0 {
		request, err := x509.ParseCertificateRequest(stub)
		if err != nil {
			return nil, "stubPKCS10Request", badStubRequest
		}
		return request.PublicKey, "", ""
	}
	key, err := x509.ParsePKIXPublicKey(decodedBytes(spec.At("pkixPublicKey")))
	if err != nil {
		return nil, "pkixPublicKey", badPKIXKey
	}
	return key, "", ""
}

func (f *errorList) stubRequest(stub []byte, p *fielderrors.Location) {
	if len(stub) > maxRequestBytes {
		f.TooLong(p, maxRequestBytes)
		return
	}
	request, err := x509.ParseCertificateRequest(stub)
	if err != nil {
		f.InvalidAsSuch(p, badStubRequest)
		return
	}
	if bad, why := keyFault(request.PublicKey); bad != nil {
		f.Invalid(p, *bad, why)
	} else if why != "" {
		f.InvalidAsSuch(p, why)
	} else if request.CheckSignature() != nil {
		f.InvalidAsSuch(p, "invalid signature")
	}
}

// keyFault returns the invalid part of a public key, and the error; a nil part means the whole key.
func keyFault(key any) (part *string, why string) {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return nil, ""
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() && key.Curve != elliptic.P384() && key.Curve != elliptic.P521() {
			name := "curve " + key.Params().Name
			return &name, badCurve
		}
		return nil, ""
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			name := strconv.Itoa(bits) + "-bit modulus"
			return &name, badModulus
		}
		return nil, ""
	}
	return nil, unknownKey
}

// podCertificateFields are the fields of the spec of a PodCertificateRequest in the reference's internal type. Two of
// them exist only in the beta version.
var podCertificateFields = []goField{{name: "SignerName", member: "signerName"}, {name: "PodName", member: "podName"},
	{name: "PodUID", member: "podUID"}, {name: "ServiceAccountName", member: "serviceAccountName"},
	{name: "ServiceAccountUID", member: "serviceAccountUID"}, {name: "NodeName", member: "nodeName"},
	{name: "NodeUID", member: "nodeUID"}, {name: "MaxExpirationSeconds", member: "maxExpirationSeconds"},
	{name: "PKIXPublicKey", member: "pkixPublicKey"}, {name: "ProofOfPossession", member: "proofOfPossession"},
	{name: "StubPKCS10Request", member: "stubPKCS10Request"},
	{name: "UnverifiedUserAnnotations", member: "unverifiedUserAnnotations"}}

func podCertificateUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	if spec := obj.At("spec"); !same(spec, old.At("spec")) {
		f.Invalid((*fielderrors.Location)(nil).To("spec"), goForm{spec, podCertificateFields}, fielderrors.Immutable)
	}
}

var podCertificateVerdicts = []string{"Issued", "Denied", "Failed"}

func podCertificateStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("status")
	status, before := obj.At("status"), old.At("status")
	known := 0
	for i, condition := range status.At("conditions").Items() {
		p := p.To("conditions").To("[" + strconv.Itoa(i) + "]") // the reference prints the index as a name
		kind := text(condition, "type")
		if !slices.Contains(podCertificateVerdicts, kind) {
			f.UnsupportedText(p.To("type"), kind, podCertificateVerdicts)
			continue
		}
		if known++; known > 1 {
			f.Invalid(p.To("type"), kind,
				`There may be at most one condition with type "Issued", "Denied", or "Failed"`)
		}
		f.only(p.To("status"), text(condition, "status"), onlyTrue)
	}
	f.conditions(status.At("conditions"), p.To("conditions"))
	if len(f.List) > 0 {
		return
	}
	isTrue := func(status object.Value, kinds ...string) bool {
		return slices.ContainsFunc(status.At("conditions").Items(), func(c object.Value) bool {
			return slices.Contains(kinds, text(c, "type")) && text(c, "status") == "True"
		})
	}
	switch {
	case isTrue(before, podCertificateVerdicts...):
		if !same(status, before) {
			f.InvalidAsSuch(p, "immutable after PodCertificateRequest is issued, denied, or failed")
		}
	case isTrue(status, "Denied", "Failed"):
		if !same(status.Without("conditions"), object.MapOf()) {
			f.InvalidAsSuch(p, "non-condition status fields must be empty when denying or failing the PodCertificateRequest")
		}
	case isTrue(status, "Issued"):
		f.issued(status, old.At("spec"), p)
	case !same(status, before):
		f.InvalidAsSuch(p, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
	}
}

// issued checks a chain of certificates that a signer has just issued.
func (f *errorList) issued(status, spec object.Value, p *fielderrors.Location) {
	chain := text(status, "certificateChain")
	at := p.To("certificateChain")
	if len(chain) > maxChainBytes {
		f.TooLong(at, maxChainBytes)
		return
	}
	block, rest := pem.Decode([]byte(chain))
	if block == nil {
		f.Invalid(at, chain, "issued certificate chain must contain at least one certificate")
		return
	}
	if block.Type != pemCertificate {
		f.Invalid(at, chain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
		return
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		f.Invalid(at, chain, "leaf certificate does not parse as valid X.509")
		return
	}
	f.leafNames(leaf, at)
	requested, member, fault := requestedKey(spec)
	if fault != "" {
		f.InvalidAsSuch(p.Up.To("spec").To(member), fault)
		return
	}
	if key, ok := requested.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		f.Invalid(at, chain, "leaf certificate was not issued to the requested public key")
		return
	}
	if f.validity(status, spec, leaf, p); len(f.List) > 0 {
		return
	}
	for block, rest = pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			f.Invalid(at, chain, "issued certificate chain must consist entirely of CERTFICATE PEM blocks")
			return
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			f.Invalid(at, chain, "intermediate certificate does not parse as valid X.509")
			return
		}
	}
}

func (f *errorList) leafNames(leaf *x509.Certificate, p *fielderrors.Location) {
	for _, name := range leaf.DNSNames {
		if name == "" {
			f.Invalid(p, name, "leaf certificate should not contain empty DNSName")
		}
		if strings.Contains(name, "..") {
			f.Invalid(p, name, "leaf certificate's DNSName should not contain '..'")
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			f.Invalid(p, name, "leaf certificate's DNSName should not start or end with '.'")
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			f.Invalid(p, address, "leaf certificate should not contain invalid EmailAddress")
		}
	}
}

// validity compares the times of a status with those of the certificate and with the clock.
func (f *errorList) validity(status, spec object.Value, leaf *x509.Certificate, p *fielderrors.Location) {
	for _, key := range [...]string{"notBefore", "notAfter"} {
		if !has(status, key) {
			f.Required(p.To(key), "must be present and consistent with the issued certificate")
		}
	}
	if !has(status, "beginRefreshAt") {
		f.Required(p.To("beginRefreshAt"), "must be present and in the range [notbefore+10min, notafter-10min]")
	}
	if len(f.List) > 0 {
		return
	}
	start, end, refresh := moment(status.At("notBefore")), moment(status.At("notAfter")),
		moment(status.At("beginRefreshAt"))
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	longest := number(spec, "maxExpirationSeconds")
	switch {
	case !start.Equal(leaf.NotBefore):
		f.Invalid(p.To("notBefore"), start, "must be set to the NotBefore time encoded in the leaf certificate")
	case f.Now != nil && start.Sub(f.Now()).Abs() >= clockSkew:
		f.Invalid(p.To("notBefore"), start, "must be set to within 5 minutes of kube-apiserver's current time")
	case !end.Equal(leaf.NotAfter):
		f.Invalid(p.To("notAfter"), end, "must be set to the NotAfter time encoded in the leaf certificate")
	case life < time.Hour:
		f.Invalid(p.To("certificateChain"), life, "leaf certificate lifetime must be >= 1 hour")
	case life > time.Duration(longest)*time.Second:
		f.Invalid(p.To("certificateChain"), life,
			fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", longest))
	case refresh.Before(start.Add(refreshMargin)):
		f.Invalid(p.To("beginRefreshAt"), refresh, "must be at least 10 minutes after status.notBefore")
	case refresh.After(end.Add(-refreshMargin)):
		f.Invalid(p.To("beginRefreshAt"), refresh, "must be at least 10 minutes before status.notAfter")
	}
}

// moment reads a time, in the zone in which the reference shows it.
func moment(v object.Value) time.Time {
	t, _ := time.Parse(time.RFC3339, v.Str()) // decoding the request has checked it
	return t.Local()
}
