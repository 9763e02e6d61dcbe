// Package plinthtest gives each test a Kubernetes control plane of its own: the API server that Plinth is, in memory,
// in the process of the test.
//
//	func TestReconciler(t *testing.T) {
//		p := plinthtest.New(t, plinthtest.CRDs(os.DirFS("../config/crd"), "bases/*.yaml"))
//		config := &rest.Config{Host: p.Host(), Transport: p.Transport()}
//		…
//	}
//
// A [Plane] needs no binaries, no port and no certificates. It is made in a millisecond or two, so a test need not
// share it, and it ends with the test. Clients reach it through an http.RoundTripper, so any version of client-go,
// controller-runtime or another client works; the package imports none of them. Programs in other processes, such as
// kubectl, use [Plane.Kubeconfig].
//
// The nouns of the package:
//
//   - a Plane is a control plane: an API server with its objects, as one test sees it.
//   - an Image is the objects of a plane at one moment. Other planes begin with it ([From]), and [Plane.Reset] goes
//     back to it.
//   - a bubble is that of testing/synctest: in [Bubble], time is virtual, and passes when all goroutines wait.
//   - a fault is what happens to a request in place of its answer, or before it ([Plane.Fault]).
//   - the code under test is what makes requests through [Plane.Transport] and Kubeconfig; the test itself may use
//     [Plane.Driver], whose requests are neither recorded nor subject to faults.
//
// # Differences from a cluster
//
// As in envtest there are no nodes, and by default no controllers: a Deployment gets no Pods, a deleted namespace
// stays, and dependents outlive their owners. [Controllers] turns those of Plinth on. The admission plugin
// ServiceAccount is off unless its controller runs.
//
// A plane says what the time is by the clock of its process, or by that of the bubble. Nothing is written to disk.
//
// # Caveats
//
// A Transport serves a request on the goroutine of the client, a watch on one of its own. It upgrades no connections:
// WebSockets need the port of Kubeconfig.
//
// A watch without timeoutSeconds lasts as long as its client wants. In a bubble so does one whose timeoutSeconds is
// five minutes or more, which informers choose at random, and bookmarks come every ten minutes.
//
// In a bubble, code that was not written for one may surprise. What is known of client-go and controller-runtime:
//
//   - The second of the ErrorHandlers in k8s.io/apimachinery/pkg/util/runtime sleeps until a millisecond after the last
//     error of the process, which outside of the bubble was decades later: a watch that has failed is not continued.
//     Keep the first one only: runtime.ErrorHandlers = runtime.ErrorHandlers[:1], in an init function of the tests.
//   - A manager whose context ends before it is elected asks again and again without a pause, and the bubble never
//     ends: let some time pass before you stop it.
//   - A manager must not listen: its metrics are off with the address "0". A webhook server with a Start method that
//     only waits for the end of its context leaves its requests to the mux that was given to Webhooks.
//   - Clients that are made of a kubeconfig, not of Transport, have sockets. One without certificates uses
//     http.DefaultTransport, in which http.Transport.RegisterProtocol can lead a scheme of URLs to a plane.
//
// In a bubble: t.Run, t.Parallel and sockets do not work (testing/synctest says why), so Kubeconfig fails the test;
// the clock begins at midnight UTC 2000-01-01.
package plinthtest
