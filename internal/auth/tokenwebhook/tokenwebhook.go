// Package tokenwebhook authenticates bearer tokens by a webhook (AUTH-1): --authentication-token-webhook-config-file.
// It posts a TokenReview to the webhook, which answers with the review's status. Callers cache the results: see
// auth.Cached.
package tokenwebhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	kubejson "sigs.k8s.io/json"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/webhook"
)

const (
	kind  = "TokenReview"
	group = "authentication.k8s.io/"
)

// Versions are the versions of TokenReview that can be sent. They are identical.
var Versions = []string{"v1", "v1beta1"}

// Webhook authenticates tokens by a webhook.
type Webhook struct {
	// Post sends a JSON body and returns the body of the response.
	Post func(ctx context.Context, body []byte) ([]byte, error)
	// Version is the version of the TokenReviews.
	Version string
	// Audiences are this server's. They apply if the response names none.
	Audiences []string
	Logger    *slog.Logger
}

// review is a TokenReview.
type review struct {
	Kind       string   `json:"kind"`
	APIVersion string   `json:"apiVersion"`
	Metadata   struct{} `json:"metadata"`
	Spec       spec     `json:"spec"`
	Status     status   `json:"status"`
}

type spec struct {
	Token     string   `json:"token,omitempty"`
	Audiences []string `json:"audiences,omitempty"`
}

type status struct {
	Authenticated bool     `json:"authenticated,omitempty"`
	User          user     `json:"user"`
	Audiences     []string `json:"audiences,omitempty"`
	Error         string   `json:"error,omitempty"`
}

type user struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// Token implements auth.Tokens. As in the reference, a webhook whose response names no audiences does not support them:
// its tokens are for this server.
func (w *Webhook) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	wanted := audiences
	if wanted == nil {
		wanted = w.Audiences
	}
	body, err := json.Marshal(&review{Kind: kind, APIVersion: group + w.Version, Spec: spec{token, wanted}})
	if err != nil {
		return nil, err
	}
	response := &review{}
	err = webhook.Retry(ctx, webhook.RetryDelay, func() error {
		text, err := w.Post(ctx, body)
		if err != nil {
			return err
		}
		return w.read(text, response)
	})
	if err != nil {
		w.Logger.Error("the token webhook failed", "error", err)
		return nil, err
	}
	valid := w.Audiences
	s := &response.Status
	if len(s.Audiences) > 0 {
		valid = s.Audiences
	}
	id := &access.Identity{
		User:      access.User{Name: s.User.Username, UID: s.User.UID, Groups: s.User.Groups, Extra: s.User.Extra},
		Audiences: auth.Common(wanted, valid),
	}
	switch {
	case len(wanted) > 0 && len(id.Audiences) == 0:
		return nil, nil
	case !s.Authenticated && s.Error != "":
		return nil, errors.New(s.Error)
	case !s.Authenticated:
		return nil, nil
	}
	return id, nil
}

// read parses a response. apiVersion and kind may be missing, but must not differ.
func (w *Webhook) read(text []byte, response *review) error {
	*response = review{}
	if err := kubejson.UnmarshalCaseSensitivePreserveInts(text, response); err != nil {
		return err
	}
	if r := response; r.Kind != "" && r.Kind != kind || r.APIVersion != "" && r.APIVersion != group+w.Version {
		return fmt.Errorf("the webhook answered with a %s of %s, want a %s of %s", r.Kind, r.APIVersion, kind,
			group+w.Version)
	}
	return nil
}
