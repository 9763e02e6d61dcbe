// Package webhook has the validation of webhook addresses and the clients that call webhooks.
//
// There are two sorts, with a client each:
//
//   - Webhooks of objects: conversion webhooks of CustomResourceDefinitions, and admission webhooks. Each object has a
//     client configuration (url or service, caBundle), which [CheckClient] validates. [Clients] calls them.
//   - Webhooks of the server's flags, for audit, authentication and authorization: a kubeconfig names one. [Remote]
//     calls it, and [Retry] calls it again after errors that may be temporary.
//
// What a webhook can cost is bounded: a call takes at most 30 s unless its caller sets another timeout, a response has
// at most 32 MiB, and at most 10 redirects are followed, to https only.
package webhook
