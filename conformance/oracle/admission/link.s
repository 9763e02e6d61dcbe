// An empty assembly file lets policies_test.go declare functions of other packages (go:linkname).
