// Package credentials has what each plane of a process issues, and whom it believes.
//
// [Credentials] are those of the process: a secret, which all keys of planes are derived from, and the users of the
// process. A [Plane] is what one Plane object gets of them; [Plane.Configure] sets them in the configuration of the
// plane.
//
// # Keys
//
// A plane has a key that signs tokens of service accounts, an authority of client certificates, one of front proxies,
// and the client certificates by which aggregated API servers and kubelets know it. The keys are derived from the
// secret of the process and the UID of the Plane:
//
//	key(purpose, UID) = keygen(HKDF(secret, "plinth planes 1", purpose ‖ 0 ‖ UID))
//
// So they are made when the plane is opened, are the same after a restart, need no file, and are gone with the UID. Two
// Planes have different UIDs, so a plane accepts nothing of another one: also not of the one that had its name before,
// and not of the one that it has begun with. The certificates of the authorities are a function of the UID and of the
// time at which the Plane was created, to the byte, because they are published in objects of the plane.
//
// All authorities of clients have the same subject, and so have all of front proxies. In a handshake a server lists the
// authorities that it believes by their subjects, many clients send no certificate of another one, and the names of ten
// thousand planes are more than a handshake can have. [Credentials.Subjects] are what it lists. The authorities
// differ in their keys, key identifiers and serial numbers, by which verification tells them apart.
//
// # Users
//
// Who a request in a plane comes from is decided by, in this order:
//
//  1. What the plane has issued: certificates of its two authorities, tokens of its service accounts, its bootstrap
//     tokens. These are users of this plane alone, and what they are called is the plane's business, system: included.
//  2. What the process accepts: client certificates, static tokens, tokens of OpenID Connect issuers, tokens that a
//     webhook knows. These are users of the process, in every plane.
//
// The process' front proxies, and what the first plane has issued (tokens of service accounts, bootstrap tokens, and
// certificates of CertificateSigningRequests) count in the first plane alone. A user of the process has in a plane:
//
//	name     the same; a name with the prefix system: is refused
//	uid      the same
//	extra    the same, without the keys of Kubernetes (kubernetes.io, k8s.io and their subdomains), but for the one that
//	         identifies the credential
//	groups   the same, without those with the prefix system:; and system:authenticated
//	         and system:masters, exactly if the first plane's authorizer allows the user, as it is there, the verb access
//	         on the Plane
//
// Names with the prefix system: are given by the plane in which they mean something: a node, a controller or a service
// account of the first plane is nobody in another one. The verb is asked about for every request, so that a right that
// is given or taken away counts from the next request on.
//
// # Certificates that the first plane has signed
//
// The authority that signs the CertificateSigningRequests of the first plane is the one that the process has made for
// itself, and has signed the administrator's certificate with, too. Whoever may approve requests there must not become
// a user of all planes. Of the certificates of that authority planes accept those that have exactly the subject of the
// administrator, and no extension for basic constraints. Those of requests always have that extension: the signer of
// Plinth and that of kube-controller-manager add it, and take no extensions from a request. A certificate of another
// authority of the process (--client-ca-file) is accepted, unless its chain leads through that authority.
//
// The caveat: if the operator gives a signer in the first plane the key of an authority in --client-ca-file, as kubeadm
// does for kube-controller-manager, what it signs is from the process.
package credentials
