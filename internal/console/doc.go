// Package console serves the console: a page for browsers, and the sessions in which the page sends requests to the API
// (BEY-14).
//
// The page is a client of the API like any other. It has the rights of its user, and no others: a session has the
// credential of the user, which is checked at each of its requests.
//
//	GET  /console/…           the page (static.go): files, for everybody, as they say nothing
//	POST /console/session     a session (session.go), for a one-time code, a token, or the connection's certificate
//	POST /console/code        a one-time code, for a client with credentials: `plinth console`
//	POST /console/enter       a session in another plane, for who has one at the first
//	GET  /console/oidc        where one can sign in, and
//	POST /console/oidc…       a session for a token of one of these issuers (issuers.go)
//	     /console/api/PATH    /PATH of the API, in the name of the session (api.go)
//
// A browser sends cookies and certificates by itself, also for a page of somebody else. What keeps others out:
//
//   - The cookie of a session has the path /console, below that of its plane, and is no credential anywhere else.
//     Other people's HTML is served from this origin, by Services and Pods behind the subresource proxy, and by
//     aggregated API servers, those of other planes among them. A plane serves it in a sandbox, which makes it a page
//     of another origin (httpapi.Config.Console).
//   - Every request of a session says by Sec-Fetch-Site, which a page cannot set, that a page of this origin sends it,
//     and has the session's key in a header, which only such a page can read.
//   - Who goes to another plane gets a session there with the same credential, for which that plane is asked at each
//     request. Its cookie is for that plane, and so is the session: shown anywhere else, it is none.
//   - A session begins with a new cookie: one that a browser was given before has no meaning.
//   - The page runs no script that is not a file of this server (Content-Security-Policy), and it cannot be framed.
//
// A cookie is for a host, not for a port: another server on the same host that the user visits gets it, too, and could
// begin to use it. It is the same for everything that browsers and kubectl do with a machine on which others may open
// ports.
package console
