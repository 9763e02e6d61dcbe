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
	return func(ctx context.Context) error { return answers(ctx, url+"/livez") }
}

// answers asks a server of this machine at a URL, and says whether it answers and has not failed.
func answers(ctx context.Context, url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is told nothing
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%s answered %s", request.URL.Path, response.Status)
	}
	return nil
}
