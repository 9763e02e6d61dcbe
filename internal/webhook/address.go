package webhook

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const (
	urlForm = "; desired format: https://host[/path]"
	maxPort = 65535
)

// CheckClient validates the address in a client configuration, which is at p: it must have a valid url or a valid
// service reference, not both. It matches ValidateWebhookURL and ValidateWebhookService of k8s.io/apiserver.
func CheckClient(f *fielderrors.Errors, client object.Value, p *fielderrors.Location) {
	address, service := client.At("url"), client.At("service")
	switch {
	case address.IsNull() == service.IsNull():
		f.Required(p, "exactly one of url or service is required")
	case !address.IsNull():
		checkURL(f, address.Str(), p.To("url"))
	default:
		checkService(f, service, p.To("service"))
	}
}

func checkURL(f *fielderrors.Errors, address string, p *fielderrors.Location) {
	u, err := url.Parse(address)
	if err != nil {
		f.Required(p, "url must be a valid URL: "+err.Error()+urlForm)
		return
	}
	if u.Scheme != "https" {
		f.Invalid(p, u.Scheme, "'https' is the only allowed URL scheme"+urlForm)
	}
	if u.Host == "" {
		f.Invalid(p, u.Host, "host must be specified"+urlForm)
	}
	if u.User != nil {
		f.Invalid(p, u.User.String(), "user information is not permitted in the URL")
	}
	if u.Fragment != "" {
		f.Invalid(p, u.Fragment, "fragments are not permitted in the URL")
	}
	if u.RawQuery != "" {
		f.Invalid(p, u.RawQuery, "query parameters are not permitted in the URL")
	}
}

// checkService validates a service reference. As in the reference, the error for a missing namespace has the path of
// the name, and the one for a missing name that of the namespace.
func checkService(f *fielderrors.Errors, service object.Value, p *fielderrors.Location) {
	if service.At("namespace").Str() == "" {
		f.Required(p.To("name"), "")
	}
	if service.At("name").Str() == "" {
		f.Required(p.To("namespace"), "")
	}
	if port := service.At("port").Int(); port < 1 || port > maxPort {
		f.Invalid(p.To("port"), port, "port is not valid: "+utilvalidation.InclusiveRangeError(1, maxPort))
	}
	path := service.At("path").Str()
	if path == "" || path == "/" {
		return
	}
	p = p.To("path")
	if path == "//" {
		f.Invalid(p, path, "segment[0] may not be empty")
		return
	}
	if path[0] != '/' {
		f.Invalid(p, path, "must start with a '/'")
	}
	i := 0
	for segment := range strings.SplitSeq(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			f.Invalid(p, path, fmt.Sprintf("segment[%d] may not be empty", i))
		} else {
			for _, wrong := range objectmeta.SubdomainErrors(segment) {
				f.Invalid(p, path, fmt.Sprintf("segment[%d]: %v", i, wrong))
			}
		}
		i++
	}
}

// CABundle returns the pool of CA certificates in a PEM bundle. Other PEM blocks are ignored; a bundle without a valid
// certificate is an error.
func CABundle(bundle []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if pool.AppendCertsFromPEM(bundle) {
		return pool, nil
	}
	return nil, fmt.Errorf("unable to load root certificates: %w", bundleError(bundle))
}

// bundleError returns the reason why a bundle has no certificate, in the words of the reference.
func bundleError(bundle []byte) error {
	for len(bundle) > 0 {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return errors.New("unable to parse bytes as PEM block")
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("failed to parse certificate: %w", err)
		}
	}
	return errors.New("no valid certificate authority data seen")
}
