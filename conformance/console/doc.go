// Package console has the tests of the console's page, in a real browser: Chromium, headless, against a spawned server.
package console
