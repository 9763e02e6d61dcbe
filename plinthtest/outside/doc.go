// Package outside gives each test a Kubernetes control plane, as plinthtest does, in another process: importing it
// brings nothing but the standard library into a project. It is for projects whose Kubernetes libraries are older, or
// newer, than those of Plinth, which plinthtest would lift to its own.
//
//	func TestReconciler(t *testing.T) {
//		p := outside.New(t, outside.CRDs(os.DirFS("../config/crd"), "bases/*.yaml"))
//		config := &rest.Config{Host: p.Host(), Transport: p.Transport()}
//		…
//	}
//
// Names and meanings are those of plinthtest: planes, images, faults, the record of requests, settling, ownership. One
// process, `plinth test-server --planes`, has all planes of a test binary, at one port: each is at /clusters/NAME, and
// ends with its test. The process is started by the first [New], and ends with the test binary, however that ends. The
// program is, in this order,
//
//   - what the environment variable PLINTH_BINARY names,
//   - plinth on the PATH,
//   - built by the go command, from the sources that go.mod names: the folder of a replace directive, or the version of
//     this module. The first time that takes minutes; Plinth's own dependencies are in a module graph of their own.
//
// # Differences from plinthtest
//
// There is no virtual time: testing/synctest knows the goroutines of one process, and the plane is in another one. New
// fails in a bubble. Explore, which runs its scenarios in bubbles, and Logger are not there.
//
// [Plane.Settle] sees what clients of [Plane.Transport] have read of their watches. Of clients that are made of
// [Plane.Access] or [Plane.Kubeconfig] it sees the server's side only.
package outside
