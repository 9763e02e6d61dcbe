package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"plinth/internal/console"
	"plinth/object"
)

// consoleCommand is `plinth console`: it opens the console in a browser, in the name of the kubeconfig's user.
func consoleCommand() *cobra.Command {
	var kubeconfig string
	var noBrowser bool
	c := &cobra.Command{
		Use:   "console",
		Short: "open the console, a page for browsers, as the user of the kubeconfig",
		Long: "Opens the server's console in a browser. The browser gets a code that is valid once, for a minute, and has the\n" +
			"rights of the kubeconfig's user for a working day.",
		Example: "  plinth console\n  plinth console --no-browser",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			files := defaultKubeconfigs()
			if kubeconfig != "" {
				files = []string{kubeconfig}
			}
			return openConsole(c.OutOrStdout(), files, !noBrowser)
		},
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig to use (default: as for plinth owners)")
	c.Flags().BoolVar(&noBrowser, "no-browser", false, "print the address, and open no browser")
	return c
}

func openConsole(out io.Writer, kubeconfigs []string, browse bool) error {
	server, err := connect(kubeconfigs)
	if err != nil {
		return err
	}
	text, err := server.send(http.MethodPost, console.Path+"/code", nil, http.Header{})
	if err != nil {
		return fmt.Errorf("the server at %s gives no code for its console; was it started with --console=false? (%w)",
			server.url, err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		return err
	}
	code := parsed.Value.At("code").Str()
	if code == "" {
		return errors.New("the server's answer has no code")
	}
	address := server.url + console.Path + "/#code=" + code
	if browse {
		if err = browser(address); err == nil {
			_, err = fmt.Fprintf(out, "The console is at %s%s/ and opens in a browser.\n", server.url, console.Path)
			return err
		}
	}
	_, err = fmt.Fprintf(out, "Open this address in a browser within a minute; it works once:\n\n  %s\n", address)
	return err
}

// browser opens an address in the browser of whoever is at this machine.
func browser(address string) error {
	program, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, program, args...).Run()
}
