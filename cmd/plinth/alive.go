package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
)

// alive returns a function that asks the server at a URL whether it lives, as a client would, on a connection of its
// own: what is asked for is that a new client is answered. Any answer shows it but that of a server that fails; without
// a credential it may be that the client is unauthorized.
func alive(url string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it asks itself, and tells nothing
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/livez", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode >= http.StatusInternalServerError {
			return fmt.Errorf("/livez answered %s", response.Status)
		}
		return nil
	}
}
